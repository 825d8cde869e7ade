"""Proposed tokens decide nothing: the text is that of plain decoding, whoever proposes, and only the work is less."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import InputError
from clearhead.generate import generate
from clearhead.generate.speculative import PromptLookup
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.model import Model
from tests.generate.models import VOCAB, afresh, ids, model, padded
from tests.generate.test_loop import chi_square, expected

FAMILIES = ["gpt2", "gptj", "roberta", "gpt_neo", "bart", "t5"]
WAYS = {
    "greedy": {},
    "sampled": {"temperature": 1.2, "top_k": 12, "seed": 4},
    "rules": {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "presence_penalty": 0.5, "min_new_tokens": 8},
}


def proposers(name: str, ours: Model) -> list[dict]:
    """A bad draft, a perfect one, and none at all."""
    bad = model(name, 7)
    return [
        {"assistant_model": bad},
        {"assistant_model": ours, "num_assistant_tokens": 3},
        {"prompt_lookup_num_tokens": 4},
    ]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("way", WAYS)
def test_the_same_tokens(name, way):
    ours = model(name)
    given, mask = padded([ids(1, n, n)[0].tolist() for n in (6, 4)], "right")
    for some, hidden in ((given[:1], None), (given, mask)):
        for end in ([], None):
            options = {"attention_mask": hidden, "max_new_tokens": 17, "eos_token_id": end, **WAYS[way]}
            want = ours.generate(some, **options)
            for proposer in proposers(name, ours):
                assert torch.equal(ours.generate(some, **options, **proposer), want), (proposer, end)


@pytest.mark.parametrize("way", WAYS)
def test_ends_in_the_middle_and_copies(way):
    ours, given = model("gpt2"), ids(2, 5, 9)
    free = ours.generate(given, max_new_tokens=14, eos_token_id=[], **WAYS[way])[:, 5:].tolist()
    options = {"max_new_tokens": 14, "eos_token_id": [free[0][6], free[1][9]], **WAYS[way]}
    if way == "sampled":
        options["num_return_sequences"] = 2
    want = generate(ours, given, return_dict_in_generate=True, **options)
    for proposer in proposers("gpt2", ours):
        got = generate(ours, given, return_dict_in_generate=True, **options, **proposer)
        assert torch.equal(got.sequences, want.sequences) and got.finish_reason == want.finish_reason
        torch.testing.assert_close(got.log_probs, want.log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
@pytest.mark.parametrize("way", ["greedy", "sampled"])
def test_a_perfect_draft_is_always_right(name, way):
    """Of 16 tokens, the first comes with the prompt; every call after that brings one token and 4 proposed ones."""
    ours, given = model(name), ids(1, 5, 9)
    options = {"max_new_tokens": 16, "eos_token_id": [], "return_dict_in_generate": True, **WAYS[way]}
    got = generate(ours, given, assistant_model=ours, num_assistant_tokens=4, **options)
    assert got.model_calls == 4
    bad = generate(ours, given, assistant_model=model(name, 7), num_assistant_tokens=4, **options)
    assert 4 < bad.model_calls <= 16 and torch.equal(got.sequences, bad.sequences)
    assert generate(ours, given, **options).model_calls is None


def test_copying_what_followed_before():
    proposer = PromptLookup(3)
    text = torch.tensor([[5, 6, 7, 8, 9, 5, 6, 7]])
    assert proposer(text, 2).tolist() == [[8, 9, 5]]
    assert proposer(torch.tensor([[1, 2, 3]]), 1).shape == (1, 0)
    assert proposer(torch.tensor([[4, 4]]), 1).tolist() == [[4]]
    assert proposer(torch.tensor([[1, 9, 1, 8, 1]]), 1).tolist() == [[8, 1]]  # the last time it stood there
    assert proposer(torch.tensor([[5, 6, 1, 7, 6, 2, 5, 6]]), 1).tolist() == [[1, 7, 6]]  # the longer run counts
    assert proposer(text.repeat(2, 1), 2).shape == (2, 0)


def test_copying_saves_work_on_a_text_that_repeats():
    ours = model("transformer")  # which writes the same word for ever
    options = {"max_new_tokens": 20, "eos_token_id": [], "prompt_lookup_num_tokens": 4}
    got = generate(ours, ids(1, 5), return_dict_in_generate=True, **options)
    assert got.model_calls < 20


@pytest.mark.parametrize("name", ["gpt_neo", "gpt3"])
def test_windows_that_move_on_while_proposals_are_taken_back(name):
    """Local layers drop what lies further back than their window and a block or two: proposals cross that limit."""
    long = {"max_position_embeddings": 300} if name == "gpt_neo" else {"n_positions": 300}
    ours, bad = model(name, **long), model(name, 5, **long)
    given, options = ids(1, 110, 2), {"max_new_tokens": 60, "eos_token_id": []}
    want = ours.generate(given, **options)
    for proposer in (
        {"assistant_model": bad, "num_assistant_tokens": 9},
        {"prompt_lookup_num_tokens": 5},
        {"prompt_lookup_num_tokens": 180},  # more than a local layer can take back
    ):
        assert torch.equal(ours.generate(given, **options, **proposer), want)
    few = {"max_new_tokens": 75, "eos_token_id": []}
    want = ours.generate(given[:, :70], **few)
    assert torch.equal(ours.generate(given[:, :70], assistant_model=bad, num_assistant_tokens=180, **few), want)


def test_a_draft_with_fewer_positions():
    ours, small = model("gpt2"), model("gpt2", 4, n_positions=14)
    for prompt in (6, 13, 14, 20):
        given = ids(1, prompt, 1)
        for options in ({}, {"seed": 3}):
            want = ours.generate(given, max_new_tokens=16, eos_token_id=[], **options)
            got = ours.generate(given, max_new_tokens=16, eos_token_id=[], assistant_model=small, **options)
            assert torch.equal(got, want)


def test_to_the_last_position():
    ours = model("gpt2")
    want = ours.generate(ids(1, 40), max_new_tokens=50, eos_token_id=[])
    assert want.shape == (1, 49)
    for proposer in proposers("gpt2", ours):
        assert torch.equal(ours.generate(ids(1, 40), max_new_tokens=50, eos_token_id=[], **proposer), want)


def test_the_distribution_is_unchanged():
    """Tokens drawn beside a draft that is mostly wrong have exactly the model's chances, the first and the third."""
    ours, bad, given = model("gpt2"), model("gpt2", 7), ids(1, 5, 2)
    options = {"top_k": 4, "eos_token_id": [], "max_new_tokens": 3, "assistant_model": bad, "num_assistant_tokens": 2}
    drawn = torch.cat([ours.generate(given.repeat(40, 1), seed=1000 * n, **options)[:, 5:] for n in range(25)])
    one_by_one = torch.cat([ours.generate(given, seed=50_000 + n, **options)[:, 5:] for n in range(700)])
    for some in (drawn, one_by_one):
        chi_square(some[:, 0].bincount(minlength=VOCAB), expected(afresh(ours, given[0].tolist()), {"top_k": 4}))
        for token in some[:, 0].unique().tolist():
            after = some[some[:, 0] == token]
            if len(after) > 60:
                logits = afresh(ours, [*given[0].tolist(), token])
                chi_square(after[:, 1].bincount(minlength=VOCAB), expected(logits, {"top_k": 4}))


def test_who_cannot_guess():
    ours, given = model("gpt2"), ids(1, 5)
    for wrong, says in (
        (model("gpt2", vocab_size=41), "knows 41 tokens and the model 40"),
        ("gpt2", "loaded model, not str"),
        (model("bart"), "has an encoder"),
        (model("transfo-xl"), "cannot go back"),
        (model("gpt2").stack, "loaded model"),
    ):
        with pytest.raises(InputError, match=says):
            ours.generate(given, assistant_model=wrong, max_new_tokens=5)
    for proposer in ({"prompt_lookup_num_tokens": 3}, {"assistant_model": ours}):
        with pytest.raises(InputError, match="carries a state that cannot go back when a proposed token was wrong"):
            model("transfo-xl").generate(given, max_new_tokens=5, **proposer)


def test_a_draft_that_pads_with_another_token():
    """What is padding is decided once: by the model that writes."""
    ours, other = model("gpt2"), model("gpt2", 5, pad_token_id=7)
    given = ids(2, 6, 3)
    given[0, :2] = 0
    given[1, 0] = 7
    want = ours.generate(given, max_new_tokens=8, eos_token_id=[])
    assert torch.equal(ours.generate(given, max_new_tokens=8, eos_token_id=[], assistant_model=other), want)


def test_an_encoder_s_draft():
    ours = model("bart")
    assert isinstance(ours, EncoderDecoderModel)
    with pytest.raises(InputError, match="has an encoder"):
        ours.generate(ids(1, 4), assistant_model=model("gpt2"), max_new_tokens=3)
