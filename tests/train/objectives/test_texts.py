"""What the task objectives share: rows padded on either side, and what models without segments are given."""

import copy

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.train.objectives.fields import number_of, text_of
from clearhead.train.objectives.labels import Labels
from clearhead.train.objectives.padding import IGNORED
from clearhead.train.objectives.question_answering import QuestionAnswering
from clearhead.train.objectives.sequence import SequenceObjective
from clearhead.train.objectives.tagging import Tagging
from clearhead.train.objectives.vocabulary import grow_vocabulary
from tests.train.objectives.small import bpe, encoded, small, wordpiece


def left():
    tok = copy.copy(wordpiece())
    tok.padding_side = "left"
    return tok


def test_padding_on_the_left_moves_labels_and_positions():
    records = [{"tokens": ["the", "cat"], "tags": ["O", "B-X"]}, {"tokens": ["a", "dog", "ran"], "tags": ["O"] * 3}]
    tagging = Tagging(left(), 20, labels=["O", "B-X"])
    batch = tagging.collate(encoded(tagging, records))
    assert batch.inputs["attention_mask"].tolist() == [[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
    assert batch.inputs["labels"].tolist() == [[IGNORED, IGNORED, 0, 1, IGNORED], [IGNORED, 0, 0, 0, IGNORED]]

    squad = QuestionAnswering(left(), 30)
    asked = [{"question": "who", "context": context, "answer": "a dog"} for context in ("a dog", "the cat sat . a dog")]
    batch = squad.collate(encoded(squad, asked))
    for ids, start, end in zip(
        *(batch.inputs[n] for n in ("input_ids", "start_positions", "end_positions")), strict=True
    ):
        assert wordpiece().decode(ids[start : end + 1]) == "a dog"


def test_who_takes_segments():
    task = "sequence-classification"
    assert small("bert", task, wordpiece()).reads_segments
    assert not small("distilbert", task, wordpiece()).reads_segments
    assert not small("gpt2", task, bpe()).reads_segments  # it would look them up as words
    objective = SequenceObjective(wordpiece(), 20)
    batch = objective.inputs([objective.ids_of("the cat", "a dog")])
    assert set(batch) == {"input_ids", "attention_mask", "token_type_ids"}


def test_a_vocabulary_never_shrinks():
    tok = bpe()
    model = small("gpt2", "causal-lm", tok, vocab_size=len(tok) + 7)
    grow_vocabulary(model, tok)
    assert model.config.vocab_size == len(tok) + 7
    tok.add_tokens([f"new{n}" for n in range(9)])
    grow_vocabulary(model, tok)
    assert model(torch.tensor([[len(tok) - 1]])).logits.shape[-1] == len(tok)
    other = small("transformer", "seq2seq-lm", bpe())
    with pytest.raises(InputError, match="one stack"):
        grow_vocabulary(other, tok)


def test_fields():
    where = {"where": "f:3"}
    assert number_of({"x": " 2.5 "}, "x") == 2.5
    assert text_of({"x": " a "}, "x") == " a "
    for value in (None, "two", float("nan"), True, [1]):
        with pytest.raises(InputError, match="f:3: x must be a number"):
            number_of({"x": value, **where}, "x")
    with pytest.raises(InputError, match="A record: x is empty"):
        text_of({"x": ""}, "x")


def test_labels():
    labels = Labels()
    labels.learn(["b", "O", "a", "b"], first="O")
    assert labels.names == ["O", "a", "b"] and len(labels) == 3
    labels.learn(["-1", "10", "2"])
    assert labels.names == ["-1", "2", "10"]
    assert labels.number({}, "label", np.int64(2)) == 1
    many = Labels(map(str, range(100)))
    with pytest.raises(InputError, match=r"0, 1, .*, 19, …"):
        many.number({}, "label", "x")
