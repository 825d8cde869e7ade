"""The next word: labels, document boundaries in attention, positions and loss, and bits per byte."""

import math

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.train.objectives.causal import CausalLM, byte_lengths
from tests.train.objectives.pretraining import (
    SENTENCES,
    blocks,
    byte_bpe,
    documents,
    model_of,
    steps_lower_the_loss,
    unigram,
    wordpiece,
)

LENGTH = 32


def made(**options):
    objective = CausalLM(byte_bpe(), LENGTH, **options)
    return objective, blocks(objective)


def test_documents_end_with_the_end_token():
    objective = CausalLM(byte_bpe(), LENGTH)
    for text, example in zip(SENTENCES, documents(objective), strict=True):
        assert example["input_ids"][-1] == byte_bpe().eos_token_id
        assert byte_bpe().decode(example["input_ids"][:-1]) == text
    assert documents(objective, ["", "  \n"]) == []


def test_a_block_without_a_boundary_is_plain():
    objective, _ = made()
    batch = objective.collate([{"input_ids": np.arange(5, 5 + LENGTH), "starts": np.array([0])}])
    assert set(batch.inputs) == {"input_ids", "labels"}
    assert torch.equal(batch.inputs["labels"], batch.inputs["input_ids"])
    assert batch.counts == {"loss": LENGTH - 1} and batch.units == LENGTH


def test_boundaries_by_hand():
    objective, _ = made()
    rows = [{"input_ids": np.array([7, 8, 9, 7, 8]), "starts": np.array([3])}, {"input_ids": np.array([7, 8, 9])}]
    inputs = objective.model_inputs(objective.collate(rows))
    assert set(inputs) == {"input_ids", "labels", "attention_mask", "position_ids"}
    assert inputs["position_ids"].tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 0, 0]]
    assert inputs["labels"].tolist() == [[7, 8, 9, -100, 8], [7, 8, 9, -100, -100]]
    first, second = inputs["attention_mask"].long().tolist()
    assert first == [[1, 1, 1, 0, 0]] * 3 + [[0, 0, 0, 1, 1]] * 2
    assert second == [[1, 1, 1, 0, 0]] * 3 + [[0, 0, 0, 1, 1]] * 2
    assert objective.collate(rows).counts == {"loss": 3 + 2}


def test_crossing_documents_is_plain_text():
    objective, found = made(cross_documents=True)
    batch = objective.collate(found[:2])
    assert set(batch.inputs) == {"input_ids", "labels"}
    assert bool((batch.inputs["labels"] == batch.inputs["input_ids"]).all())


@pytest.mark.parametrize("family", ["gpt2", "gptj", "roberta"])
@torch.no_grad()
def test_a_document_in_a_block_is_as_if_alone(family):
    options = {"is_decoder": True} if family == "roberta" else {}
    objective, found = made()
    model = model_of(family, byte_bpe(), "causal-lm", **options)
    objective.training_module(model)
    apart = [[int(t) for t in part] for part in np.split(found[1]["input_ids"], found[1]["starts"])]
    apart = [part for part in apart if len(part) > 1]
    assert len(apart) > 1
    together = objective.collate([found[1]])
    alone = [objective.collate([{"input_ids": np.array(part)}]) for part in apart]
    total = sum(float(objective.losses(model, one)["loss"]) * one.counts["loss"] for one in alone)
    assert together.counts["loss"] == sum(one.counts["loss"] for one in alone)
    assert float(objective.losses(model, together)["loss"]) * together.counts["loss"] == pytest.approx(total, rel=1e-4)
    crossing = CausalLM(byte_bpe(), LENGTH, cross_documents=True)
    assert float(crossing.losses(model, crossing.collate([found[1]]))["loss"]) * LENGTH != pytest.approx(
        total, rel=1e-3
    )


def test_it_learns_and_reports_perplexity_and_bits_per_byte():
    objective, found = made()
    model = model_of("gpt2", byte_bpe(), "causal-lm")
    batch = objective.collate(found)
    report = steps_lower_the_loss(objective, model, batch)
    assert list(report) == ["loss", "perplexity", "bits_per_byte"]
    assert report["perplexity"] == pytest.approx(math.exp(report["loss"]))
    labels = batch.inputs["labels"][:, 1:]
    size = len(
        b"".join(byte_bpe().decode(int(t)).encode() for t in labels[labels >= 0] if t not in [byte_bpe().eos_token_id])
    )
    assert batch.extra["bytes"] == size  # ASCII text: no half characters
    assert report["bits_per_byte"] == pytest.approx(
        report["loss"] * batch.counts["loss"] / math.log(2) / size, rel=1e-5
    )
    assert objective.report({"loss": 1e6, "loss.count": 1})["perplexity"] == math.inf


def test_bytes_of_tokens():
    tok = byte_bpe()
    lengths = byte_lengths(tok)
    for text in ("Zoë würde 你好 🤖 sagen…", "a\n\tb"):
        assert int(lengths[tok.encode(text)].sum()) == len(text.encode())
    assert int(lengths[tok.eos_token_id]) == 0
    assert byte_lengths(unigram()) is None and byte_lengths(wordpiece()) is None
    objective = CausalLM(unigram(), LENGTH)
    assert "bits_per_byte" not in objective.report({"loss": 2.0, "loss.count": 1})


def test_a_last_block_of_one_token_counts_for_nothing():
    objective, _ = made()
    batch = objective.collate([{"input_ids": np.array([5]), "starts": np.array([])}])
    sums = objective.measure(model_of("gpt2", byte_bpe(), "causal-lm"), batch)
    assert sums == {"loss": 0.0, "loss.count": 0, "bytes": 0}


def test_what_is_refused():
    with pytest.raises(InputError, match="eos_token"):
        CausalLM(wordpiece(), LENGTH)
    with pytest.raises(InputError, match="at least 2"):
        CausalLM(byte_bpe(), 1)
    objective = CausalLM(byte_bpe(), LENGTH)
    with pytest.raises(InputError, match=r"data\.jsonl:3 has no column 'text'. Did you mean texts"):
        list(objective.encode({"texts": "a", "where": "data.jsonl:3"}))
    with pytest.raises(InputError, match="must be a text"):
        list(objective.encode({"text": 3}))
    for family, task in (("bert", "masked-lm"), ("bart", "causal-lm"), ("t5", "seq2seq-lm")):
        with pytest.raises(InputError, match="gpt2"):
            objective.training_module(model_of(family, byte_bpe(), task))
