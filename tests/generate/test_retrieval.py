"""Writing with neighbours that are fetched as chunks are finished: the same as reading the whole text each time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate import PromptCache, generate, stream
from clearhead.generate.cuda_graphs import why_no_fixed_shapes
from tests.generate.models import model as any_model
from tests.nn.test_chunked_attention import model_of

NEW, K, TOKENS = 14, 2, 8
OPTIONS = [
    {"null_key": True, "neighbor_positions": "rotary"},
    {"null_key": False, "neighbor_positions": "relative", "norm_placement": "pre", "residual_scale": 1.0},
    {"norm_placement": "post", "residual_scale": 1.3},
]


def retro(n: int = 0):
    return model_of(n, chunk_size=4, tie_word_embeddings=False, initializer_range=0.5, **OPTIONS[n])


def provider(chunks: Tensor) -> Tensor:
    """Neighbours that depend on the chunk alone."""
    found = []
    for chunk in chunks.tolist():
        seed = sum(token * (place + 1) for place, token in enumerate(chunk))
        found.append(torch.randint(0, 30, (K, TOKENS), generator=torch.Generator().manual_seed(seed)))
    return torch.stack(found)


def read(model, ids: Tensor) -> Tensor:
    """The scores of the whole text, without a cache."""
    chunks = ids.shape[1] // 4
    found = torch.zeros(len(ids), 0, 0, 0).long()
    if chunks:
        found = provider(ids[:, : chunks * 4].reshape(-1, 4)).view(len(ids), chunks, K, TOKENS)
    return model(input_ids=ids, neighbor_ids=found).logits


def greedy(model, ids: Tensor, new: int = NEW) -> Tensor:
    for _ in range(new):
        ids = torch.cat([ids, read(model, ids)[:, -1:].argmax(-1)], 1)
    return ids


def prompt(length: int, seed: int = 0) -> Tensor:
    return torch.randint(1, 30, (1, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", range(3))
@pytest.mark.parametrize("length", [1, 3, 4, 9])
@torch.no_grad()
def test_greedy_text_is_that_of_whole_readings(n, length):
    model, ids = retro(n), prompt(length)
    want = greedy(model, ids)
    asked = {"max_new_tokens": NEW, "eos_token_id": [], "neighbors": provider}
    assert torch.equal(generate(model, ids, **asked), want)
    assert torch.equal(torch.stack(list(stream(model, ids, **asked)), 1), want[:, length:])
    assert torch.equal(generate(model, ids, prompt_lookup_num_tokens=3, **asked), want)
    assert torch.equal(model.generate(ids, **asked), want)


@pytest.mark.parametrize("n", range(3))
@torch.no_grad()
def test_neighbours_matter(n):
    model, asked = retro(n), {"max_new_tokens": 30, "eos_token_id": []}
    texts = [generate(model, prompt(9, seed), neighbors=p, **asked) for seed in range(3) for p in (provider, None)]
    assert any(not torch.equal(with_them, without) for with_them, without in zip(texts[::2], texts[1::2], strict=True))


@pytest.mark.parametrize("n", range(3))
@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3, "num_return_sequences": 3},
        {"do_sample": True, "seed": 3, "num_return_sequences": 3},
        {"penalty_alpha": 0.5, "top_k": 3},
    ],
    ids=["beams", "sampling", "contrastive"],
)
@torch.no_grad()
def test_log_probabilities_are_those_of_whole_readings(n, options):
    model, ids = retro(n), prompt(3)
    out = generate(
        model, ids, max_new_tokens=NEW, eos_token_id=[], neighbors=provider, return_dict_in_generate=True, **options
    )
    scores = read(model, out.sequences).log_softmax(-1)[:, 2:-1]
    want = scores.gather(-1, out.sequences[:, 3:, None])[..., 0]
    torch.testing.assert_close(out.log_probs, want, atol=2e-5, rtol=1e-4)
    if out.sequences_scores is not None:
        torch.testing.assert_close(out.sequences_scores, want.mean(-1), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("n", range(3))
@torch.no_grad()
def test_texts_of_different_lengths_write_as_alone(n):
    model, rows = retro(n), [prompt(length, length)[0] for length in (9, 3, 6)]
    ids = torch.stack([torch.cat([torch.zeros(9 - len(row)).long(), row]) for row in rows])
    mask = torch.tensor([[0] * (9 - len(row)) + [1] * len(row) for row in rows])
    got = generate(model, ids, mask, max_new_tokens=NEW, eos_token_id=[], neighbors=provider)
    beams = generate(model, ids, mask, max_new_tokens=NEW, eos_token_id=[], neighbors=provider, num_beams=3)
    for n, row in enumerate(rows):
        assert torch.equal(got[n, 9:], greedy(model, row[None])[0, len(row) :])
        alone = generate(model, row[None], max_new_tokens=NEW, eos_token_id=[], neighbors=provider, num_beams=3)
        assert torch.equal(beams[n, 9:], alone[0, len(row) :])


@torch.no_grad()
def test_what_was_read_with_other_neighbours_is_read_anew():
    model, past, ids = retro(), PromptCache(), prompt(9)
    for text in (ids, torch.cat([ids, prompt(3, 1)], 1), ids[:, :5]):
        got = generate(model, text, max_new_tokens=6, eos_token_id=[], neighbors=provider, past=past)
        assert torch.equal(got, greedy(model, text, 6))
    asked = {"max_new_tokens": 6, "eos_token_id": []}
    assert torch.equal(generate(model, ids, past=past, **asked), generate(model, ids, **asked))


@torch.no_grad()
def test_copies_of_a_text_ask_once():
    asked = []

    def counting(chunks: Tensor) -> Tensor:
        asked.append(len(chunks))
        return provider(chunks)

    generate(retro(), prompt(9), max_new_tokens=1, eos_token_id=[], num_beams=4, neighbors=counting)
    assert asked == [2]


def test_mistakes_are_said():
    with pytest.raises(InputError, match="looks at no neighbours"):
        generate(any_model("gpt2"), prompt(3), max_new_tokens=2, neighbors=provider)
    with pytest.raises(InputError, match="shape"):
        generate(retro(), prompt(9), max_new_tokens=2, neighbors=lambda chunks: provider(chunks)[0])
    assert "chunk" in why_no_fixed_shapes(model_of(0, decoder_positions=None))
