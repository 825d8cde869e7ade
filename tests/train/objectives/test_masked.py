"""Masked words: rates, what is never chosen, whole words, dynamic and static masks; beside transformers' collator."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import InputError
from clearhead.train.objectives.masked import MaskedLM, Masking, word_begins
from clearhead.train.objectives.padding import IGNORED
from tests.train.objectives.pretraining import (
    SENTENCES,
    bart_bpe,
    batch_of,
    blocks,
    byte_bpe,
    model_of,
    rng,
    same,
    steps_lower_the_loss,
    unigram,
    wordpiece,
)

TOK = wordpiece()
ORDINARY = np.setdiff1d(np.arange(len(TOK)), TOK.all_special_ids)


def long_text(count=2000):
    return np.concatenate(([TOK.cls_token_id], rng(1).choice(ORDINARY, count - 2), [TOK.sep_token_id]))


def shares(inputs, labels, ids, mask):
    """Of the chosen: masked, changed, kept."""
    at = labels >= 0
    masked = inputs[at] == mask
    kept = inputs[at] == ids[at]
    return masked.mean(), (~masked & ~kept).mean(), kept.mean()


def test_rates_over_many_draws():
    ids, masking = long_text(), Masking(TOK)
    drawn = [masking(ids, rng(n)) for n in range(40)]
    inputs, labels = (np.concatenate(part) for part in zip(*drawn, strict=True))
    assert all((one >= 0).sum() == round(0.15 * len(ids)) for _, one in drawn)  # a fixed number, as BERT has it
    masked, changed, kept = shares(inputs, labels, np.tile(ids, 40), TOK.mask_token_id)
    assert masked == pytest.approx(0.8, abs=0.01)
    assert changed == pytest.approx(0.1, abs=0.01)
    assert kept == pytest.approx(0.1, abs=0.01)
    times = sum((one >= 0).astype(int) for _, one in drawn)  # every position is as likely
    assert abs(np.corrcoef(times[1:-1], np.arange(len(ids) - 2))[0, 1]) < 0.08


def test_the_collator_of_transformers_agrees_in_kind(tmp_path):
    from transformers import BertTokenizerFast, DataCollatorForLanguageModeling

    TOK.save(tmp_path)
    theirs = DataCollatorForLanguageModeling(BertTokenizerFast.from_pretrained(tmp_path), seed=1)
    ids = long_text(4000)
    made = theirs([{"input_ids": ids.tolist()}])
    inputs, labels = made["input_ids"][0].numpy(), made["labels"][0].numpy()
    expected = (labels >= 0).mean(), *shares(inputs, labels, ids, TOK.mask_token_id)
    inputs, labels = Masking(TOK)(ids, rng(2))
    ours = (labels >= 0).mean(), *shares(inputs, labels, ids, TOK.mask_token_id)
    assert ours == pytest.approx(expected, abs=0.05)
    assert set(made) - {"attention_mask"} == {"input_ids", "labels"}


@given(st.lists(st.sampled_from(range(len(TOK))), min_size=1, max_size=60), st.integers(0, 9), st.booleans())
@settings(max_examples=80, deadline=None)
def test_special_tokens_are_never_touched_and_labels_are_the_words(ids, seed, whole):
    ids = np.array(ids)
    inputs, labels = Masking(TOK, mlm_probability=0.4, whole_word=whole)(ids, rng(seed))
    special = np.isin(ids, TOK.all_special_ids)
    assert (inputs[special] == ids[special]).all() and (labels[special] == IGNORED).all()
    assert (inputs[labels == IGNORED] == ids[labels == IGNORED]).all()
    assert (labels[labels >= 0] == ids[labels >= 0]).all()
    assert (labels >= 0).any() == (~special).any()
    new = inputs[inputs != ids]
    assert not np.isin(new, np.setdiff1d(TOK.all_special_ids, [TOK.mask_token_id])).any()


def test_random_tokens_are_any_that_is_not_special():
    ids = long_text()
    seen = [
        Masking(TOK, mlm_probability=0.9, mask_replace_prob=0.0, random_replace_prob=1.0)(ids, rng(n))[0]
        for n in range(5)
    ]
    assert set(np.concatenate(seen)) == {*ORDINARY, TOK.cls_token_id, TOK.sep_token_id}


def test_how_many():
    def count(length, **options):
        return (Masking(TOK, **options)(np.full(length, ORDINARY[0]), rng())[1] >= 0).sum()

    assert [count(n) for n in (1, 3, 10, 20, 128, 512)] == [1, 1, 2, 3, 19, 77]
    assert count(512, max_predictions=20) == 20 and count(512, mlm_probability=0.4) == 205


@pytest.mark.parametrize("ngrams", [1, 3])
def test_whole_words(ngrams):
    pieces = TOK.tokenize("unbelievably complicated instructions given by extraordinarily misunderstood beings " * 4)
    ids = np.array(TOK.convert_tokens_to_ids(pieces))
    word = np.cumsum([not piece.startswith("##") for piece in pieces])
    assert word[-1] < len(ids)  # there are words of several pieces
    masking = Masking(TOK, mlm_probability=0.3, whole_word=True, ngrams=ngrams)
    for seed in range(30):
        chosen = masking.choose(ids, rng(seed))
        assert 0 < len(chosen) <= round(0.3 * len(ids))
        assert np.isin(word, word[chosen]).sum() == len(chosen)  # all pieces of a word, or none
    fates = [masking(ids, rng(n))[0] for n in range(20)]
    mixed = [
        len({inputs[p] == TOK.mask_token_id for p in np.flatnonzero(word == word[c])}) > 1
        for n, inputs in enumerate(fates)
        for c in masking.choose(ids, rng(n))
    ]
    assert any(mixed)  # but each piece has its own fate


def test_a_word_longer_than_what_is_wanted_is_chosen_if_there_is_no_other():
    ids = np.array(TOK.encode("misunderstood"))
    assert len(ids) > 4
    assert sorted(Masking(TOK, whole_word=True).choose(ids, rng())) == list(range(1, len(ids) - 1))


def test_ngrams_have_lengths_by_one_over_n():
    ids = np.full(30_000, ORDINARY[0])
    chosen = Masking(TOK, mlm_probability=0.01, ngrams=3).choose(ids, rng(3))
    runs = np.diff(np.flatnonzero(np.diff(chosen, prepend=-9, append=99_999) > 1))
    share = np.bincount(runs, minlength=4)[1:4] / len(runs)
    assert share == pytest.approx(np.array([6, 3, 2]) / 11, abs=0.08)
    for seed in range(5):  # those that overlap are left out: the number is exact
        assert len(Masking(TOK, mlm_probability=0.5, ngrams=3).choose(ids[:300], rng(seed))) == 150


def test_ngrams_do_not_cross_special_tokens():
    ids = np.array([ORDINARY[0], TOK.sep_token_id] * 50)
    chosen = Masking(TOK, mlm_probability=0.5, ngrams=3).choose(ids, rng())
    assert (chosen % 2 == 0).all()


def test_where_words_begin():
    for tok, text, expected in (
        (wordpiece(), "unbelievably misunderstood", 2),
        (byte_bpe(), " unbelievably complicated\nbeings", 3),
        (unigram(), "unbelievably misunderstood", 2),
    ):
        ids = tok.encode(text, add_special_tokens=False)
        assert len(ids) > expected and word_begins(tok)[ids].sum() == expected and word_begins(tok)[ids[0]]


def test_dynamic_and_static():
    for dynamic in (True, False):
        objective = MaskedLM(TOK, 48, dynamic=dynamic)
        block = blocks(objective)[0]
        assert same(objective.noise(block, rng(1)), objective.noise(block, rng(1)))
        assert same(objective.noise(block, rng(1)), objective.noise(block, rng(2))) == (not dynamic)
    masks = [objective.noise(block, rng(1))["labels"] for block in blocks(objective)[:2]]
    assert not np.array_equal(masks[0] >= 0, masks[1] >= 0)


def test_blocks_are_wrapped():
    objective = MaskedLM(TOK, 32)
    assert objective.block_length == 30
    found = blocks(objective)
    made = objective.noise(found[0], rng())
    assert len(made["input_ids"]) == 32
    assert made["input_ids"][0] == TOK.cls_token_id and made["input_ids"][-1] == TOK.sep_token_id
    shown = np.where(made["labels"] >= 0, made["labels"], made["input_ids"])
    assert (shown[1:-1] == found[0]["input_ids"]).all()
    assert sum((block["input_ids"] == TOK.sep_token_id).sum() for block in found) == len(SENTENCES)  # documents end
    batch = objective.collate([objective.noise(found[0], rng(0)), objective.noise(found[-1], rng(1))])
    short = len(found[-1]["input_ids"]) + 2
    assert batch.inputs["attention_mask"].sum(1).tolist() == [32, short]
    assert batch.inputs["labels"][1, short:].eq(IGNORED).all()
    assert batch.inputs["input_ids"][1, short:].eq(TOK.pad_token_id).all()
    assert batch.counts["loss"] == int((batch.inputs["labels"] >= 0).sum()) and batch.units == 32 + short
    assert "attention_mask" not in batch_of(objective, found[:2]).inputs


@pytest.mark.parametrize(("family", "tokenizer"), [("bert", wordpiece), ("roberta", bart_bpe)])
def test_it_learns(family, tokenizer):
    tok = tokenizer()
    objective = MaskedLM(tok, 32, whole_word=family == "bert")
    model = model_of(family, tok, "masked-lm", pad_token_id=tok.pad_token_id, max_position_embeddings=600)
    report = steps_lower_the_loss(objective, model, batch_of(objective, blocks(objective)))
    assert list(report) == ["loss", "masked_accuracy"] and 0 <= report["masked_accuracy"] <= 1


def test_masked_accuracy_counts_labels_only():
    objective = MaskedLM(TOK, 32)
    model = model_of("bert", TOK, "masked-lm")
    batch = batch_of(objective, blocks(objective)[:2])
    with torch.no_grad():
        guess = model(**batch.inputs).logits.argmax(-1)
    batch.inputs["labels"] = torch.where(batch.inputs["labels"] >= 0, guess, IGNORED)
    assert objective.report(objective.measure(model, batch))["masked_accuracy"] == 1.0


def test_a_last_block_without_words_counts_for_nothing():
    objective = MaskedLM(TOK, 32)
    batch = batch_of(objective, [{"input_ids": np.array([TOK.sep_token_id])}])
    sums = objective.measure(model_of("bert", TOK, "masked-lm"), batch)
    assert sums == {"loss": 0.0, "loss.count": 0, "masked_hits": 0, "masked.count": 0}
    assert objective.report(sums)["loss"] == 0.0


def test_what_is_refused():
    with pytest.raises(InputError, match="cls_token"):
        MaskedLM(byte_bpe(), 32)
    with pytest.raises(InputError, match="mask_token"):
        Masking(byte_bpe())
    with pytest.raises(InputError, match=r"mask_replace_prob \+ random_replace_prob is 1\.2"):
        MaskedLM(TOK, 32, mask_replace_prob=0.6, random_replace_prob=0.6)
    with pytest.raises(InputError, match="mlm_probability is -1"):
        Masking(TOK, mlm_probability=-1)
    with pytest.raises(InputError, match="at least 3"):
        MaskedLM(TOK, 2)
