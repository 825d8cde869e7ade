"""Choices: rows of ids, questions with fewer answers than others, the loss, and clear errors."""

import pytest
import torch
import torch.nn.functional as F

from clearhead.errors import InputError
from clearhead.train.objectives.multiple_choice import MultipleChoice
from tests.train.objectives.small import bpe, encoded, learns, small, wordpiece

RECORDS = [
    {"prompt": "the cat sat", "choices": ["on the mat", "a dog", "in berlin ."], "label": 0, "where": "q.jsonl:1"},
    {
        "prompt": "who ran ?",
        "choices": ["a dog", "the old house is"],
        "label": "the old house is",
        "where": "q.jsonl:2",
    },
]


def test_exact_rows():
    tok, objective = wordpiece(), MultipleChoice(wordpiece(), 20)
    examples = encoded(objective, RECORDS)
    assert [int(e["label"]) for e in examples] == [0, 1]
    assert all(values.ndim == 1 for e in examples for name, values in e.items() if name != "label")
    batch = objective.collate(examples)
    ids, mask = batch.inputs["input_ids"], batch.inputs["attention_mask"]
    assert ids.shape[:2] == (2, 3)
    for n, record in enumerate(RECORDS):
        for c, choice in enumerate(record["choices"]):
            assert ids[n, c][mask[n, c].bool()].tolist() == tok.encode(record["prompt"], choice)
    assert batch.inputs["choice_mask"].tolist() == [[True] * 3, [True, True, False]]
    assert batch.inputs["labels"].tolist() == [0, 1]
    assert batch.counts == {"loss": 2}
    assert batch.units == sum(len(tok.encode(r["prompt"], c)) for r in RECORDS for c in r["choices"])


def test_a_missing_choice_changes_nothing():
    objective = MultipleChoice(wordpiece(), 20)
    model = small("bert", objective.task, wordpiece())
    objective.training_module(model)
    examples = encoded(objective, RECORDS)
    together = objective.losses(model, objective.collate(examples))["loss"]
    alone = [objective.losses(model, objective.collate([e]))["loss"] for e in examples]
    assert torch.allclose(together, torch.stack(alone).mean(), atol=1e-6)
    # and where nothing is missing it is the head's own loss
    batch = objective.collate(examples[:1])
    inputs = {name: t for name, t in batch.inputs.items() if name != "choice_mask"}
    assert torch.allclose(model(**inputs).loss, alone[0], atol=1e-6)
    assert torch.allclose(F.cross_entropy(model(**inputs).logits, torch.tensor([0])), alone[0], atol=1e-6)


def test_it_is_learned():
    objective = MultipleChoice(wordpiece(), 20)
    for name in ("bert", "distilbert"):
        model = small(name, objective.task, wordpiece())
        before, after = learns(objective, model, encoded(objective, RECORDS), steps=12)
        assert after < before
    told = objective.report(objective.measure(model.eval(), objective.collate(encoded(objective, RECORDS))))
    assert list(told) == ["loss", "accuracy"]
    with pytest.raises(InputError, match="gpt-multiple-choice"):
        objective.training_module(small("gpt2", "multiple-choice", bpe()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 3}, r"q\.jsonl:1: label is 3; .* 0 to 2"),
        ({"label": -1}, r"q\.jsonl:1: label is -1"),
        ({"label": "neither"}, r"q\.jsonl:1: label is 'neither'"),
        ({"choices": ["one"]}, r"q\.jsonl:1: there is only one choice"),
        ({"choices": ["one", " "]}, r"q\.jsonl:1: choices must be texts"),
        ({"choices": "one or two"}, r"q\.jsonl:1: choices must be a list"),
        ({"prompt": ""}, r"q\.jsonl:1: prompt is empty"),
    ],
)
def test_bad_records_say_where(change, message):
    with pytest.raises(InputError, match=message):
        list(MultipleChoice(wordpiece(), 20).encode({**RECORDS[0], **change}))
