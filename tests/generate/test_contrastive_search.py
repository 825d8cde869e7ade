"""Contrastive search against a loop written from its paper: no cache, each text by itself, all read afresh."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import InputError
from clearhead.generate import PromptCache, generate
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.nn.segment_recurrence import SegmentRecurrentStack
from tests.generate.models import afresh, ids, model, padded, until_end


@torch.no_grad()
def states(ours, texts: list[list[int]], source: list[int], prompt: int) -> torch.Tensor:
    """The last hidden state of every token of texts of one length, (texts, time, width)."""
    ids = torch.tensor(texts)
    if isinstance(ours, EncoderDecoderModel):
        sources = torch.tensor([source] * len(texts))
        return ours(sources, decoder_input_ids=ids, output_hidden_states=True).hidden_states[-1]
    if isinstance(ours.stack, SegmentRecurrentStack):
        out = ours(ids[:, :prompt], use_mems=True, output_hidden_states=True)
        found = [out.hidden_states[-1]]
        for n in range(prompt, ids.shape[1]):
            out = ours(ids[:, n : n + 1], mems=out.mems, use_mems=True, output_hidden_states=True)
            found.append(out.hidden_states[-1])
        return torch.cat(found, 1)
    places = torch.arange(ids.shape[1])[None] + ours.stack.embed.first_position
    return ours(ids, position_ids=places, output_hidden_states=True).hidden_states[-1]


def paper(ours, text: list[int], source: list[int], alpha: float, k: int, new: int, never=(), ends=(2,)) -> list[int]:
    text, prompt = list(text), len(text)
    for _ in range(new):
        logits = afresh(ours, text, source, prompt)
        logits[list(never)] = -torch.inf
        best = logits.softmax(-1).topk(k)
        hidden = states(ours, [[*text, token] for token in best.indices.tolist()], source, prompt)
        alike = torch.cosine_similarity(hidden[:, -1:], hidden[:, :-1], dim=-1).amax(-1).tolist()
        worth = [
            (1 - alpha) * p - alpha * a if p > 0 else -torch.inf
            for p, a in zip(best.values.tolist(), alike, strict=True)
        ]
        text.append(int(best.indices[max(range(k), key=worth.__getitem__)]))
        if text[-1] in ends:
            break
    return text[prompt:]


@pytest.mark.parametrize("name", ["gpt2", "roberta", "gpt_neo", "bart", "t5", "transfo-xl"])
@pytest.mark.parametrize(("alpha", "k"), [(0.6, 4), (0.9, 3)])
def test_as_the_paper_says(name, alpha, k):
    ours = model(name, 3)
    rows = [ids(1, n, n + 2)[0].tolist() for n in ((5, 5) if name == "transfo-xl" else (5, 3, 7))]
    encodes = isinstance(ours, EncoderDecoderModel)
    starts = [[ours.config.decoder_start_token_id]] * len(rows) if encodes else rows
    wanted = [paper(ours, start, row, alpha, k, 7) for start, row in zip(starts, rows, strict=True)]
    for side in ("left", "right"):
        given, mask = padded(rows, side)
        out = ours.generate(given, attention_mask=mask, penalty_alpha=alpha, top_k=k, max_new_tokens=7)
        assert [until_end(row) for row in out[:, 1 if encodes else given.shape[1] :].tolist()] == wanted


def test_it_is_another_text_than_the_likeliest():
    ours, given = model("gpt2", 3), ids(1, 5, 1)
    out = ours.generate(given, penalty_alpha=0.9, top_k=6, max_new_tokens=7, eos_token_id=[])
    assert not torch.equal(out, ours.generate(given, max_new_tokens=7, eos_token_id=[]))


def test_what_a_rule_forbids_is_not_chosen_for_being_different():
    ours, row = model("gpt2", 3), ids(1, 5, 1)[0].tolist()
    likeliest = afresh(ours, row).topk(38).indices.tolist()
    for never in (likeliest[:37], likeliest[1:]):  # three tokens are left, or two, of six candidates
        out = ours.generate(
            torch.tensor([row]), penalty_alpha=0.95, top_k=6, max_new_tokens=6, suppress_tokens=never, eos_token_id=[]
        )
        assert not set(out[0, 5:].tolist()) & set(never)
        assert out[0, 5:].tolist() == paper(ours, row, row, 0.95, 6, 6, never, ())
    bart = model("bart", 3)
    assert bart.generate(ids(1, 4), penalty_alpha=0.95, top_k=6, max_new_tokens=3, forced_bos_token_id=9)[0, 1] == 9


def test_to_the_last_position():
    """Every token is read before it is chosen, the last one too."""
    ours = model("gpt2", 3)
    out = ours.generate(ids(1, 40), penalty_alpha=0.5, top_k=3, max_new_tokens=50, eos_token_id=[])
    assert out.shape == (1, 48)
    with pytest.raises(InputError, match="no room to write"):
        ours.generate(ids(1, 48), penalty_alpha=0.5, top_k=3, max_new_tokens=50)


def test_more_candidates_than_words():
    ours, row = model("gpt2", 3), ids(1, 5, 1)[0].tolist()
    out = ours.generate(torch.tensor([row]), penalty_alpha=0.7, top_k=1000, max_new_tokens=3, eos_token_id=[])
    assert out[0, 5:].tolist() == paper(ours, row, row, 0.7, 40, 3, (), ())


def test_what_was_read_before_is_read_again():
    """A prompt cache holds keys and no hidden states, which this search compares with."""
    ours, past, given = model("gpt2", 3), PromptCache(), ids(1, 6, 1)
    options = {"penalty_alpha": 0.7, "top_k": 4, "max_new_tokens": 5, "eos_token_id": []}
    want = generate(ours, given, **options)
    for _ in range(2):
        ours.generate(given, past=past, max_new_tokens=2)
        assert torch.equal(generate(ours, given, past=past, **options), want)
