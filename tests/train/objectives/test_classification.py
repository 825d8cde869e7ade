"""Classes, several labels and numbers: ids, label sets, figures as scikit-learn has them, and clear errors."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.errors import InputError
from clearhead.train.objectives.classification import Classification
from tests.train.objectives.small import bpe, encoded, learns, small, wordpiece

SENTENCES = [("the cat sat .", "good"), ("a dog ran away .", "bad"), ("the house is old and the sea is new .", "good")]
RECORDS = [{"text": text, "label": label, "where": f"data.csv:{n}"} for n, (text, label) in enumerate(SENTENCES, 2)]


def made(records=RECORDS, tokenizer=None, length=16, **options):
    objective = Classification(tokenizer or wordpiece(), length, **options)
    objective.learn_labels(iter(records))
    return objective


def test_exact_ids_and_labels():
    tok = wordpiece()
    objective = made(length=6)
    examples = encoded(objective, RECORDS)
    assert objective.labels.names == ["bad", "good"]
    assert [int(e["label"]) for e in examples] == [1, 0, 1]
    words = [tok.convert_tokens_to_ids(w) for w in "[CLS] the cat sat . [SEP]".split()]
    assert examples[0]["input_ids"].tolist() == words
    assert [len(e["input_ids"]) for e in examples] == [6, 6, 6]  # cut, with [SEP] kept
    assert examples[2]["input_ids"][-1] == tok.sep_token_id

    batch = made().collate(encoded(made(), RECORDS))
    longest = batch.inputs["input_ids"].shape[1]
    assert batch.inputs["attention_mask"].sum(1).tolist() == [6, 7, 12]
    assert longest == 12 and batch.inputs["input_ids"][0, 6:].eq(tok.pad_token_id).all()
    assert batch.inputs["labels"].tolist() == [1, 0, 1]
    assert batch.counts == {"loss": 3} and batch.units == 25


def test_pairs_have_segments():
    objective = made()
    example = next(objective.encode({"text": "the cat", "text_pair": "a dog", "label": "bad"}))
    assert example["token_type_ids"].tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_whole_numbers_are_ordered_as_numbers():
    objective = made([{"text": "the cat", "label": label} for label in (10, "9", 2.0)])
    assert objective.labels.names == ["2", "9", "10"]
    mixed = made([{"text": "the cat", "label": label} for label in (10, "9", "x")])
    assert mixed.labels.names == ["10", "9", "x"]


def test_configuration():
    config = made().configure({"vocab_size": 9})
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert config["label2id"] == {"bad": 0, "good": 1}
    assert (config["num_labels"], config["problem_type"]) == (2, "single_label_classification")
    assert config["pad_token_id"] == wordpiece().pad_token_id
    assert made(tokenizer=bpe()).configure({})["pad_token_id"] == bpe().eos_token_id  # GPT-2 has no other
    number = made([{"text": "a", "label": 0.5}], problem_type="regression").configure({})
    assert (number["num_labels"], number["problem_type"]) == (1, "regression")
    with pytest.raises(InputError, match="learn_labels"):
        Classification(wordpiece(), 8).configure({})


def test_labels_given_in_an_order_are_kept():
    objective = made(labels=["good", "bad"])
    assert objective.labels.names == ["good", "bad"]
    assert [int(e["label"]) for e in encoded(objective, RECORDS)] == [0, 1, 0]


def test_examples_on_disk_depend_on_the_labels():
    assert made().identity() != made(labels=["good", "bad"]).identity()


def test_numbers_are_places_among_given_names():
    """SST-2 says 0 and 1; its model says negative and positive."""
    numbered = [record | {"label": n} for record, n in zip(RECORDS, ("1", 0, 1.0), strict=True)]
    objective = made(numbered, labels=["negative", "positive"])
    assert [int(e["label"]) for e in encoded(objective, numbered)] == [1, 0, 1]
    with pytest.raises(InputError, match="label '2'"):
        encoded(objective, [RECORDS[0] | {"label": 2}])
    with pytest.raises(InputError, match="label '1'"):  # names that are numbers stand for themselves
        encoded(made(labels=["2", "3"]), [RECORDS[0] | {"label": 1}])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": "the cat", "label": "goood"}, r"dev\.csv:7.*'goood' does not occur.*Did you mean good.*bad, good"),
        ({"text": "the cat"}, r"dev\.csv:7 has no column 'label'"),
        ({"text": "  ", "label": "good"}, r"dev\.csv:7: text is empty"),
        ({"text": None, "label": "good"}, r"dev\.csv:7: text must be a text, but it is missing"),
        ({"text": "the cat", "label": None}, r"dev\.csv:7: label must be a label"),
        ({"text": "the cat", "label": ""}, r"dev\.csv:7: label must be a label"),
        ({"text": "the cat", "label": ["good"]}, r"dev\.csv:7: label must be a label"),
        ({"text": "the cat", "label": 0.5}, r"dev\.csv:7: label is 0.5.*regression"),
    ],
)
def test_bad_records_say_where(record, message):
    with pytest.raises(InputError, match=message):
        list(made().encode({**record, "where": "dev.csv:7"}))


def test_no_labels_at_all():
    with pytest.raises(InputError, match="no label"):
        made([])
    with pytest.raises(InputError, match="Did you mean regression"):
        Classification(wordpiece(), 8, problem_type="regresion")


def added(objective, batches):
    """The sums of several batches added up, as the loop does."""
    total: dict[str, float] = {}
    for sums in batches:
        total = {name: total.get(name, 0.0) + value for name, value in sums.items()}
    return objective.report(total | {"loss": 0.0, "loss.count": total.get("rows", total.get("n", 1))})


def test_figures_are_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    objective = made([{"text": "a", "label": label} for label in "abcde"])
    torch.manual_seed(3)
    logits, labels = torch.randn(60, 5), torch.randint(0, 4, (60,))
    logits[:, 4] = -9  # a class that is neither there nor chosen does not count
    parts = (logits[:20], labels[:20]), (logits[20:], labels[20:])
    told = added(objective, [objective.metric_sums(*part) for part in parts])
    chosen = logits.argmax(1)
    assert told["accuracy"] == pytest.approx(metrics.accuracy_score(labels, chosen))
    assert told["macro_f1"] == pytest.approx(metrics.f1_score(labels, chosen, average="macro"))

    several = made([{"text": "a", "label": list("abcde")}], problem_type="multi_label_classification")
    wanted = (torch.rand(60, 5) > 0.7).float()
    told = added(several, [several.metric_sums(logits[:7], wanted[:7]), several.metric_sums(logits[7:], wanted[7:])])
    assert told["accuracy"] == pytest.approx(metrics.accuracy_score(wanted, logits > 0))
    assert told["macro_f1"] == pytest.approx(
        metrics.f1_score(wanted, (logits > 0).float(), average="macro", zero_division=0)
    )


def test_pearson_of_batches_is_pearson_of_all():
    objective = made([{"text": "a", "label": 1}], problem_type="regression")
    x, y = torch.randn(50, 1), torch.rand(50) * 5
    told = added(objective, [objective.metric_sums(x[:11], y[:11]), objective.metric_sums(x[11:], y[11:])])
    assert told["pearson"] == pytest.approx(np.corrcoef(x[:, 0], y)[0, 1], abs=1e-6)
    assert added(objective, [objective.metric_sums(x, torch.ones(50))])["pearson"] == 0


@pytest.mark.parametrize("family", ["bert", "distilbert", "gpt2"])
def test_one_class_is_learned(family):
    tok = bpe() if family == "gpt2" else wordpiece()
    records = [{**record, "text_pair": "the sea"} for record in RECORDS]
    objective = made(records, tok, length=40)
    model = small(family, objective.task, tok, **objective.configure({}))
    examples = encoded(objective, records)
    before, after = learns(objective, model, examples)
    assert after < before
    told = objective.report(objective.measure(model.eval(), objective.collate(examples)))
    assert list(told) == ["loss", "accuracy", "macro_f1"]
    batch = objective.collate(examples)
    logits = model(**objective.model_inputs(batch)).logits.detach()
    assert told["loss"] == pytest.approx(float(F.cross_entropy(logits, batch.inputs["labels"])), rel=1e-5)


def test_several_labels_and_numbers_are_learned():
    several = [
        {"text": "the cat", "label": ["a", "b"]},
        {"text": "a dog", "label": []},
        {"text": "sea", "label": ["b"]},
    ]
    objective = made(several, problem_type="multi_label_classification")
    batch = objective.collate(encoded(objective, several))
    assert batch.inputs["labels"].tolist() == [[1, 1], [0, 0], [0, 1]]
    model = small("bert", objective.task, wordpiece(), **objective.configure({}))
    before, after = learns(objective, model, encoded(objective, several))
    assert after < before
    with pytest.raises(InputError, match="label must be a list"):
        list(objective.encode({"text": "the cat", "label": "a"}))

    numbers = [{"text": "the cat", "label": "2.5"}, {"text": "a dog", "label": -1}]
    objective = made(numbers, problem_type="regression")
    batch = objective.collate(encoded(objective, numbers))
    assert batch.inputs["labels"].tolist() == [2.5, -1.0]
    model = small("bert", objective.task, wordpiece(), **objective.configure({}))
    before, after = learns(objective, model, encoded(objective, numbers))
    assert after < before
    with pytest.raises(InputError, match="label must be a number"):
        list(objective.encode({"text": "the cat", "label": "high"}))
