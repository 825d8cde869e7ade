"""Span corruption: exact lengths, random cuts, sentinels in order, and that inputs and targets give the text back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import InputError
from clearhead.train.objectives.spans import SpanCorruption, random_parts, sentinels_of
from tests.train.objectives.pretraining import (
    SENTENCES,
    batch_of,
    blocks,
    byte_bpe,
    documents,
    model_of,
    rng,
    same,
    steps_lower_the_loss,
    unigram,
)

TOK = unigram(100)
ORDINARY = np.setdiff1d(np.arange(len(TOK)), TOK.all_special_ids)
SENTINELS = [TOK.convert_tokens_to_ids(f"<extra_id_{n}>") for n in range(100)]


def put_back(inputs, targets, end):
    """The text, from what is read and what is written."""
    assert inputs[-1] == targets[-1] == end
    spans, mark = {}, None
    for token in targets[:-1]:
        if token in SENTINELS:
            mark = token
            spans[mark] = []
        else:
            spans[mark].append(token)
    return [word for token in inputs[:-1] for word in (spans[token] if token in SENTINELS else [token])], spans


@given(
    st.lists(st.sampled_from(ORDINARY.tolist()), min_size=1, max_size=200),
    st.integers(0, 99),
    st.sampled_from([0.15, 0.3, 0.5]),
    st.sampled_from([1.5, 3.0, 5.0]),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_it_can_be_put_back(ids, seed, density, span, final):
    objective = SpanCorruption(TOK, 40, noise_density=density, mean_span_length=span, final_sentinel=final)
    made = objective.noise({"input_ids": np.array(ids)}, rng(seed))
    inputs, targets = made["input_ids"].tolist(), made["labels"].tolist()
    text, spans = put_back(inputs, targets, TOK.eos_token_id)
    assert text == ids
    assert (len(inputs), len(targets)) == objective.lengths_for(len(ids))
    marks = [token for token in inputs if token in SENTINELS]
    assert marks == SENTINELS[: len(marks)]
    assert [token for token in targets if token in SENTINELS] == SENTINELS[: len(marks) + final]
    cut = [spans[mark] for mark in marks]
    assert all(cut)  # no span is empty
    if final:
        assert targets[-2] == SENTINELS[len(marks)] and spans[targets[-2]] == []
    if len(ids) > 1:
        assert inputs[0] not in SENTINELS and inputs[-2] in SENTINELS  # begins with what stays, ends with what goes
        assert sum(map(len, cut)) == min(max(round(len(ids) * density), 1), len(ids) - 1)


def test_sentinels_count_down():
    assert sentinels_of(TOK).tolist() == SENTINELS
    assert (np.diff(SENTINELS) == -1).all() and SENTINELS[0] == len(TOK) - 1


def test_published_lengths():
    """T5: 512 tokens of input come from 568 of text, and leave 114 of target (115 with the last sentinel)."""
    objective = SpanCorruption(TOK, 512)
    assert (objective.block_length, objective.target_length) == (568, 115)
    assert SpanCorruption(TOK, 512, final_sentinel=False).target_length == 114


@given(st.integers(3, 250), st.sampled_from([0.05, 0.15, 0.5]), st.sampled_from([2.0, 3.0, 10.0]))
@settings(max_examples=60, deadline=None)
def test_inputs_are_exactly_as_long_as_asked(length, density, span):
    objective = SpanCorruption(TOK, length, noise_density=density, mean_span_length=span)
    block = rng(length).choice(ORDINARY, objective.block_length)
    made = objective.noise({"input_ids": block}, rng())
    assert len(made["input_ids"]) == length
    assert len(made["labels"]) == objective.target_length
    assert put_back(made["input_ids"].tolist(), made["labels"].tolist(), TOK.eos_token_id)[0] == block.tolist()


def test_rates():
    objective = SpanCorruption(TOK, 102)
    size = objective.block_length
    assert objective.counts_for(size) == (round(0.15 * size), round(round(0.15 * size) / 3))
    gone = np.zeros(size)
    lengths = []
    for seed in range(300):
        _, spans = put_back(*objective.noise({"input_ids": np.full(size, ORDINARY[0])}, rng(seed)).values(), 1)
        lengths += [len(span) for span in spans.values() if span]
    assert np.mean(lengths) == pytest.approx(17 / 6, abs=1e-9) and set(lengths) >= {1, 2, 3, 4, 5, 6}
    for seed in range(600):
        marked = objective.noise({"input_ids": np.arange(1000, 1000 + size)}, rng(seed))["labels"]
        gone[marked[marked >= 1000] - 1000] += 1
    assert gone[0] == 0 and gone[-1] == 600  # the text begins with what stays and ends with what goes
    middle = gone[size // 4 : -size // 4] / 600
    assert middle.mean() == pytest.approx(0.15, abs=0.015)


def test_every_way_to_cut_is_as_likely():
    found = [tuple(random_parts(5, 3, rng(n))) for n in range(3000)]
    ways = {(1, 1, 3), (1, 3, 1), (3, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1)}
    assert set(found) == ways
    assert [found.count(way) / 3000 for way in ways] == pytest.approx([1 / 6] * 6, abs=0.03)
    assert random_parts(4, 1, rng()).tolist() == [4] and random_parts(4, 4, rng()).tolist() == [1, 1, 1, 1]


def test_it_learns():
    tok = unigram()
    objective = SpanCorruption(tok, 32)
    found = blocks(objective)
    assert sum(len(block["input_ids"]) for block in found) == sum(
        len(tok.encode(text, add_special_tokens=False)) for text in SENTENCES
    )  # no mark between documents
    made = objective.noise(found[0], rng(1))
    assert same(made, objective.noise(found[0], rng(1))) and not same(made, objective.noise(found[0], rng(2)))
    batch = batch_of(objective, found[:3])
    assert batch.inputs["input_ids"].shape == (3, 32) and batch.inputs["labels"].shape == (3, objective.target_length)
    assert batch.counts == {"loss": 3 * objective.target_length} and "attention_mask" not in batch.inputs
    model = model_of("t5", tok, "seq2seq-lm", objective.configure)
    assert model.config.decoder_start_token_id == tok.pad_token_id and model.config.eos_token_id == tok.eos_token_id
    steps_lower_the_loss(objective, model, batch, lr=1e-2)
    ragged = batch_of(objective, [found[0], found[-1]])
    assert ragged.inputs["labels"][1, -1] == -100 and ragged.inputs["attention_mask"][1, -1] == 0
    assert ragged.units == int(ragged.inputs["attention_mask"].sum()) + ragged.counts["loss"]


def test_what_is_refused():
    with pytest.raises(InputError, match=r"no sentinels.*special_tokens"):
        SpanCorruption(byte_bpe(), 32)
    with pytest.raises(InputError, match="the tokenizer has 20"):
        SpanCorruption(unigram(), 512)
    with pytest.raises(InputError, match="density"):
        SpanCorruption(TOK, 32, noise_density=1.0)
    assert documents(SpanCorruption(TOK, 32), ["", " "]) == []
