"""BART's five noises, each by itself and together: rates, counts, and what stays where it was."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import InputError
from clearhead.train.objectives.denoising import NOISES, PUBLISHED, Denoising, infill, parts_of
from tests.train.objectives.pretraining import (
    SENTENCES,
    bart_bpe,
    batch_of,
    byte_bpe,
    documents,
    model_of,
    rng,
    same,
    steps_lower_the_loss,
)

TOK = bart_bpe()
BOS, EOS, MASK = TOK.bos_token_id, TOK.eos_token_id, TOK.mask_token_id
TEXT = " ".join(SENTENCES)


def example_of(size, sentences=None):
    """Tokens that are all different, so that each can be followed."""
    sentences = sentences or [size]
    return {"input_ids": np.arange(1000, 1000 + size), "sentences": np.array(sentences)}


def spoilt(noises, example, seed=0):
    made = Denoising(TOK, 10_000, noises=noises).noise(example, rng(seed))
    ids = made["input_ids"]
    assert ids[0] == BOS and ids[-1] == EOS
    assert made["labels"].tolist() == [BOS, *example["input_ids"], EOS]  # the text as it was
    return ids[1:-1]


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(token in rest for token in part)


def test_token_masking():
    example = example_of(1000)
    out = spoilt({"token-masking": 0.3}, example)
    assert len(out) == 1000 and (out == MASK).sum() == 300
    assert (out[out != MASK] == example["input_ids"][out != MASK]).all()


def test_token_deletion():
    example = example_of(1000)
    out = spoilt({"token-deletion": 0.3}, example)
    assert len(out) == 700 and MASK not in out and (np.diff(out) > 0).all()
    assert spoilt({"token-deletion": 1.0}, example_of(5)).size == 1


@given(st.integers(1, 120), st.floats(0, 1), st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_infilling_counts(size, rate, seed):
    ids = np.arange(1000, 1000 + size)
    out = infill(ids, rate, MASK, rng(seed))
    stays = out[out != MASK]
    assert len(stays) == size - math.ceil(rate * size)  # exactly the share is gone
    assert is_subsequence(stays, ids)
    gaps = 1 + np.count_nonzero(np.diff(stays) > 1) if len(stays) else 1
    assert (out == MASK).sum() >= (gaps - 1)
    # whatever is missing between two that stay, a mask stands there
    for left, right in itertools.pairwise(out):
        if left != MASK and right != MASK:
            assert right == left + 1
    if len(out):
        assert out[0] in (MASK, ids[0]) and out[-1] in (MASK, ids[-1])


def test_infilling_lengths_are_poisson():
    size, draws = 3000, 40
    spans, empty = [], 0
    for seed in range(draws):
        out = infill(np.arange(1000, 1000 + size), 0.1, MASK, rng(seed))
        at = np.flatnonzero(out == MASK)
        alone = [p for p in at if 0 < p < len(out) - 1 and out[p - 1] != MASK and out[p + 1] != MASK]
        spans += [out[p + 1] - out[p - 1] - 1 for p in alone]
        empty += sum(out[p + 1] - out[p - 1] == 1 for p in alone)
    share = np.bincount(spans, minlength=8)[:8] / len(spans)
    poisson = [math.exp(-3) * 3**k / math.factorial(k) for k in range(8)]
    assert share == pytest.approx(poisson, abs=0.02)
    assert empty > 0  # masks where nothing was
    assert np.mean(spans) == pytest.approx(3, abs=0.1)


def test_sentence_permutation():
    sizes = [3, 5, 2, 7, 1]
    example = example_of(sum(sizes), sizes)
    whole = [tuple(part) for part in parts_of(example)]
    orders = set()
    for seed in range(200):
        out = spoilt({"sentence-permutation": 1.0}, example, seed)
        parts = [tuple(p) for p in np.split(out, np.flatnonzero(np.diff(out) != 1) + 1)]
        assert sorted(out) == sorted(example["input_ids"])
        flat = [token for part in parts for token in part]
        order = tuple(sorted(range(5), key=lambda n: flat.index(whole[n][0])))
        assert flat == [token for n in order for token in whole[n]]  # sentences stay whole
        orders.add(order)
    assert len(orders) > 75  # of 120
    moved = []
    for seed in range(100):
        out = spoilt({"sentence-permutation": 0.4}, example, seed).tolist()
        first = [whole[n][0] for n in range(5)]
        order = sorted(range(5), key=lambda n: out.index(first[n]))
        moved.append(sum(n != m for n, m in enumerate(order)))
    assert set(moved) == {0, 2}  # two of five change places, or come back to their own


def test_document_rotation():
    example = example_of(50)
    firsts = []
    for seed in range(400):
        out = spoilt({"document-rotation": 1.0}, example, seed)
        cut = out[0] - 1000
        assert out.tolist() == [*range(1000 + cut, 1050), *range(1000, 1000 + cut)]
        firsts.append(cut)
    assert len(set(firsts)) == 50 and np.mean(firsts) == pytest.approx(24.5, abs=2.5)
    turned = [spoilt({"document-rotation": 0.3}, example, seed)[0] != 1000 for seed in range(400)]
    assert np.mean(turned) == pytest.approx(0.3, abs=0.07)


def test_the_published_noise_is_infilling_and_permutation():
    assert PUBLISHED == {"text-infilling": 0.3, "sentence-permutation": 1.0}
    objective = Denoising(TOK, 10_000)
    example = example_of(400, [40] * 10)
    made = objective.noise(example, rng(3))
    out = made["input_ids"][1:-1]
    stays = out[out != MASK]
    assert len(stays) == 400 - 120 and (np.diff(stays) < 0).any()
    assert 20 < (out == MASK).sum() < 70  # one for each span: about 120 / 3
    assert same(made, objective.noise(example, rng(3))) and not same(made, objective.noise(example, rng(4)))
    assert same(example, example_of(400, [40] * 10))  # the example itself stays


def test_all_five_together():
    noises = dict.fromkeys(NOISES, 0.2)
    for seed in range(30):
        out = spoilt(noises, example_of(100, [10] * 10), seed)
        kept = out[out != MASK]
        assert len(set(kept)) == len(kept) < 80 and set(kept) <= set(range(1000, 1100)) and MASK in out
    assert spoilt({}, example_of(9)).tolist() == list(range(1000, 1009))


def test_documents_are_cut_between_sentences():
    objective = Denoising(TOK, 40)
    found = documents(objective, [TEXT])
    assert len(found) > 1 and all(len(example["input_ids"]) <= 38 for example in found)
    ids = [int(token) for example in found for token in example["input_ids"]]
    assert TOK.decode(ids) == TEXT  # nothing is lost, not even the space between sentences
    sizes = [len(part) for example in found for part in parts_of(example)]
    assert len(sizes) >= len(SENTENCES) and sum(sizes) == len(ids)
    assert documents(objective, ["", "\n"]) == []


def test_it_learns():
    objective = Denoising(TOK, 60)
    model = model_of("bart", TOK, "seq2seq-lm", objective.configure)
    config = model.config
    assert (config.decoder_start_token_id, config.bos_token_id, config.pad_token_id) == (EOS, BOS, TOK.pad_token_id)
    batch = batch_of(objective, documents(objective))
    labels = batch.inputs["labels"]
    assert batch.counts == {"loss": int((labels >= 0).sum())}
    assert model.shift_right(labels)[:, :2].tolist() == [[EOS, BOS]] * len(labels)
    steps_lower_the_loss(objective, model, batch)


def test_what_is_refused():
    with pytest.raises(InputError, match="Did you mean text-infilling"):
        Denoising(TOK, 40, noises={"text-infiling": 0.3})
    with pytest.raises(InputError, match=r"rate of token-masking is 1\.5"):
        Denoising(TOK, 40, noises={"token-masking": 1.5})
    with pytest.raises(InputError, match="mask_token"):
        Denoising(byte_bpe(), 40)
