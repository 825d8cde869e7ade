"""Permutation language modelling: how many targets, in what spans, and that nothing leaks to whom it must not."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import InputError
from clearhead.train.objectives.permutation import PermutationLM
from tests.train.objectives.pretraining import (
    batch_of,
    blocks,
    model_of,
    rng,
    same,
    steps_lower_the_loss,
    wordpiece,
    xlnet_unigram,
)

TOK = xlnet_unigram()
CLS, SEP = TOK.cls_token_id, TOK.sep_token_id
ORDINARY = np.setdiff1d(np.arange(len(TOK)), TOK.all_special_ids)


def runs(positions):
    return np.diff(np.flatnonzero(np.diff(positions, prepend=-9, append=10**9) > 1))


def test_shape_and_count():
    objective = PermutationLM(TOK, 48)
    assert objective.block_length == 46
    block = blocks(objective)[0]
    for seed in range(20):
        made = objective.noise(block, rng(seed))
        assert made["input_ids"].tolist() == [*block["input_ids"], SEP, CLS]
        assert len(made["targets"]) == round(48 / 6)
        assert not np.isin(made["input_ids"][made["targets"]], TOK.all_special_ids).any()
    assert same(made, objective.noise(block, rng(19))) and not same(made, objective.noise(block, rng(0)))
    batch = objective.collate([made])
    inputs = batch.inputs
    assert inputs["labels"][0].tolist() == made["input_ids"][made["targets"]].tolist()
    assert inputs["target_mapping"][0].argmax(-1).tolist() == made["targets"].tolist()
    assert inputs["target_mapping"].sum() == 8 == batch.counts["loss"]
    assert inputs["token_type_ids"][0].tolist() == [0] * 47 + [2]
    assert "attention_mask" not in inputs


def test_spans_are_words_by_one_over_n():
    objective = PermutationLM(TOK, 60_002, from_words=False)
    ids = np.append(rng(1).choice(ORDINARY, 60_000), [SEP, CLS])
    found = objective.targets(ids, rng(2))
    assert len(found) == round(len(ids) / 6)
    lengths = np.bincount(runs(found), minlength=7)
    # a span in a context of 6 times as many makes 1 in 7; single tokens make up the rest
    sizes = np.arange(1, 6)
    share = 1 / sizes / (1 / sizes).sum()
    spans = len(ids) / 7 / (share * sizes).sum()
    assert lengths[2:6] / spans == pytest.approx(share[1:], rel=0.2)
    assert abs(np.corrcoef(np.bincount(found // 1000, minlength=60)[:60], np.arange(60))[0, 1]) < 0.35


def test_spans_begin_where_words_do():
    text = "unbelievably complicated instructions given by extraordinarily misunderstood human beings " * 6
    ids = np.array(TOK.encode(text, add_special_tokens=False)[:300])
    at_words = {}
    for from_words in (True, False):
        objective = PermutationLM(TOK, 400, from_words=from_words)
        begins = PermutationLM(TOK, 400).begins[ids]
        assert begins.mean() < 0.5
        firsts = []
        for seed in range(60):
            at = objective.targets(ids, rng(seed))
            assert len(at) == round(len(ids) / 6)
            firsts += [run[0] for run in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1) if len(run) > 1]
        at_words[from_words] = begins[firsts].mean()
    assert at_words[True] > 0.6 > 0.4 > at_words[False]  # single tokens that fill up may stand before a span


@given(st.integers(1, 60), st.integers(0, 50), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_a_target_sees_neither_itself_nor_what_comes_later(size, seed, k):
    objective = PermutationLM(TOK, 64, K=k)
    made = objective.noise({"input_ids": rng(seed, 1).choice(len(TOK), size)}, rng(seed))
    hidden = objective.model_inputs(objective.collate([made]))["perm_mask"][0].numpy().astype(bool)
    order, targets = made["order"], made["targets"]
    special = np.isin(made["input_ids"], TOK.all_special_ids)
    context = order == -1
    late = ~context
    assert (late == (special | np.isin(np.arange(len(order)), targets))).all()
    assert sorted(order[late]) == list(range(late.sum()))  # a permutation
    assert not hidden[:, context].any()  # all see the context
    assert hidden[np.ix_(context, late)].all()  # the context sees nothing else
    for i in np.flatnonzero(late):
        for j in np.flatnonzero(late):
            itself = i == j and not special[i]
            assert hidden[i, j] == (itself or order[j] > order[i])


@torch.no_grad()
def test_nothing_leaks():
    """What a target is cannot be read off its own prediction, nor off an earlier one's."""
    objective = PermutationLM(TOK, 34, K=4)
    model = model_of("xlnet", TOK, "permutation-lm", num_hidden_layers=4)
    made = objective.noise(blocks(objective)[0], rng(5))
    place = made["order"][made["targets"]]
    before = model(**objective.model_inputs(objective.collate([made]))).logits[0]
    other = made | {"input_ids": made["input_ids"].copy()}
    touched = 0
    for n, position in enumerate(made["targets"]):
        other["input_ids"][:] = made["input_ids"]
        other["input_ids"][position] = ORDINARY[0] if made["input_ids"][position] != ORDINARY[0] else ORDINARY[1]
        after = model(**objective.model_inputs(objective.collate([other]))).logits[0]
        changed = (before - after).abs().amax(-1).numpy() > 1e-6
        assert not changed[place <= place[n]].any()
        assert changed[place > place[n]].all()
        touched += changed.sum()
    assert touched > 10


@torch.no_grad()
def test_padding_changes_nothing():
    objective = PermutationLM(TOK, 48)
    model = model_of("xlnet", TOK, "permutation-lm")
    found = blocks(objective)
    pair = [objective.noise(found[0], rng(0)), objective.noise(found[-1], rng(1))]
    batch = objective.collate(pair)
    assert len(pair[1]["input_ids"]) < 48 and "attention_mask" in batch.inputs
    together = model(**objective.model_inputs(batch)).logits
    for n, one in enumerate(pair):
        alone = model(**objective.model_inputs(objective.collate([one]))).logits[0]
        assert torch.allclose(together[n, : len(alone)], alone, atol=1e-5)
    assert batch.counts["loss"] == sum(len(one["targets"]) for one in pair) == int((batch.inputs["labels"] >= 0).sum())


def test_the_collator_of_transformers_agrees_in_kind(tmp_path):
    from transformers import DataCollatorForPermutationLanguageModeling, PreTrainedTokenizerFast

    TOK.save(tmp_path)
    theirs = DataCollatorForPermutationLanguageModeling(PreTrainedTokenizerFast.from_pretrained(tmp_path))
    objective = PermutationLM(TOK, 302, from_words=False)
    ids = rng(1).choice(ORDINARY, 300)
    torch.manual_seed(0)
    made = theirs([{"input_ids": [*ids, SEP, CLS]}])
    ours = objective.model_inputs(objective.collate([objective.noise({"input_ids": ids}, rng())]))
    shares = []
    for batch, labels in ((made, made["labels"][0]), (ours, None)):
        hidden = torch.as_tensor(batch["perm_mask"][0]).bool()
        if labels is None:
            targets = ours["target_mapping"][0].sum(0) > 0
        else:
            targets = labels >= 0
        shares.append(float(targets.float().mean()))
        assert not bool(hidden[:, :300][:, ~targets[:300]].any())  # the context is seen by all
        assert bool(hidden[:300][~targets[:300]][:, targets].all())  # and sees no target
        assert bool(hidden.diagonal()[targets].all())
        block = hidden[targets][:, targets]
        assert bool((block | block.T).all()) and int((block & block.T).sum()) == int(targets.sum())  # an order
    assert shares[1] == pytest.approx(shares[0], abs=0.05) and shares[1] == pytest.approx(1 / 6, abs=0.01)


def test_it_learns():
    objective = PermutationLM(TOK, 48)
    model = model_of("xlnet", TOK, "permutation-lm")
    report = steps_lower_the_loss(objective, model, batch_of(objective, blocks(objective)))
    assert list(report) == ["loss", "target_accuracy"]


def test_a_last_block_without_words_counts_for_nothing():
    objective = PermutationLM(TOK, 48)
    batch = batch_of(objective, [{"input_ids": np.array([SEP])}])
    sums = objective.measure(model_of("xlnet", TOK, "permutation-lm"), batch)
    assert sums == {"loss": 0.0, "loss.count": 0, "target_hits": 0, "target.count": 0}


def test_what_is_refused():
    with pytest.raises(InputError, match="K is 0"):
        PermutationLM(TOK, 48, K=0)
    with pytest.raises(InputError, match="at least 4"):
        PermutationLM(wordpiece(), 3)
