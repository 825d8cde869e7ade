"""Saved models on new test data: by their own recipe, by another, or by what their head is made for."""

import json
import shutil

import pytest
import torch
import yaml

import clearhead as ch
from clearhead.errors import InputError
from clearhead.train import evaluate, train
from tests.train.test_run import ROWS, case


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    names = ("classification", "tagging", "causal-lm", "masked-lm", "sentence-similarity")
    return folder, {name: train(case(folder, name, name)) for name in names}


def new_rows(kind, count=30):
    return [ROWS[kind](n) for n in range(100, 100 + count)]


def test_a_class_is_right_where_the_model_says_so(runs):
    _, trained = runs
    rows = new_rows("labels")
    result = evaluate(trained["classification"].folder, rows)
    pipe = ch.load(trained["classification"].model)
    inputs = pipe.tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
    with torch.no_grad():
        best = pipe.model(**inputs).logits.argmax(-1).tolist()
    right = [pipe.model.config.id2label[n] == row["label"] for n, row in zip(best, rows, strict=True)]
    assert result.metrics["accuracy"] == sum(right) / len(right)
    assert (result.objective, result.examples) == ("classification", 30)


@pytest.mark.parametrize(
    ("name", "kind"), [("classification", "labels"), ("tagging", "tags"), ("causal-lm", "text"), ("masked-lm", "text")]
)
def test_without_a_recipe_the_head_decides(runs, tmp_path, name, kind):
    _, trained = runs
    shutil.copytree(trained[name].model, tmp_path / "bare")
    rows = new_rows(kind)
    bare = evaluate(tmp_path / "bare", rows, overrides=["batch.length=36", "batch.size=4"])
    assert bare.objective == name
    assert bare.metrics == pytest.approx(evaluate(trained[name].model, rows).metrics, rel=1e-6)


def test_a_recipe_is_named_where_the_head_does_not_say_enough(runs, tmp_path):
    _, trained = runs
    shutil.copytree(trained["sentence-similarity"].model, tmp_path / "bare")
    with pytest.raises(InputError, match="Name a recipe"):
        evaluate(tmp_path / "bare", new_rows("scores"))
    with pytest.raises(InputError, match=r"made for sequence-classification, and causal-lm measures causal-lm\. Its"):
        evaluate(trained["classification"].model, new_rows("text"), recipe="language-model")


def test_labels_that_the_model_does_not_know_are_all_named(runs, tmp_path):
    _, trained = runs
    rows = new_rows("labels") + [{"text": "a cat", "label": label} for label in ("great", "great", "poor")]
    path = tmp_path / "new.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(
        InputError, match=r"new.jsonl has labels .* know: 'great' \(2 ×\), 'poor' \(1 ×\)\. It knows: bad, good"
    ):
        evaluate(trained["classification"].folder, str(path))


def test_columns_of_other_names_and_numbers_for_labels(runs, tmp_path):
    _, trained = runs
    rows, names = new_rows("labels"), ["bad", "good", "so so"]
    path = tmp_path / "new.csv"
    path.write_text("".join(f"{names.index(row['label'])},{row['text']}\n" for row in rows))
    there = ["data.columns={label: 0, text: 1}"]
    found = evaluate(trained["classification"].folder, str(path), overrides=there)
    assert found == evaluate(trained["classification"].folder, rows)


def test_a_loaded_model_is_given_back_as_it_was(runs):
    _, trained = runs
    pipe = ch.load(trained["causal-lm"].model)
    pipe.model.train()
    before = {name: (t.clone(), t.requires_grad) for name, t in pipe.model.named_parameters()}
    heard = []
    result = evaluate(pipe, new_rows("text"), watch=lambda *what: heard.append(what))
    assert result == evaluate(trained["causal-lm"].model, new_rows("text"))
    assert pipe.model.training and heard[0][:2] == ("Measuring", 0) and heard[-1][1] == heard[-1][2] - 1
    for name, tensor in pipe.model.named_parameters():
        assert torch.equal(tensor, before[name][0]) and tensor.requires_grad == before[name][1]


@pytest.mark.parametrize("header", ["text,label", "label,text,id"])
def test_new_data_with_names_of_its_own(runs, tmp_path, header):
    """A recipe's columns are those of what it was trained on: there, positions of a table without a header."""
    _, trained = runs
    rows, names = new_rows("labels"), header.split(",")
    path = tmp_path / "new.csv"
    path.write_text("\n".join([header, *(",".join(str(row.get(name, 7)) for name in names) for row in rows)]))
    recipe = yaml.safe_load((trained["classification"].folder / "recipe.yaml").read_text())
    expected = evaluate(trained["classification"].folder, rows)
    for columns in ({"text": 0, "label": 1}, {"text": "review", "label": "stars"}):
        recipe["data"]["columns"] = columns
        other = tmp_path / "recipe.yaml"
        other.write_text(yaml.safe_dump(recipe))
        assert evaluate(trained["classification"].folder, str(path), recipe=other) == expected
    with pytest.raises(InputError, match="'stars'"):
        evaluate(trained["classification"].folder, str(path), overrides=["data.columns={text: text, label: stars}"])


def test_the_recipes_columns_come_first_where_they_are_there(runs, tmp_path):
    _, trained = runs
    rows = new_rows("labels")
    path = tmp_path / "new.jsonl"
    path.write_text("\n".join(json.dumps(row | {"title": row["text"], "text": "nothing"}) for row in rows))
    recipe = yaml.safe_load((trained["classification"].folder / "recipe.yaml").read_text())
    recipe["data"]["columns"] = {"text": "title"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    found = evaluate(trained["classification"].folder, str(path), recipe=tmp_path / "recipe.yaml")
    assert found == evaluate(trained["classification"].folder, rows)


def test_a_header_alone(runs, tmp_path):
    _, trained = runs
    (tmp_path / "new.csv").write_text("text,label\n")
    with pytest.raises(InputError, match="header alone"):
        evaluate(trained["classification"].folder, str(tmp_path / "new.csv"))
