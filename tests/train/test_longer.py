"""A run goes on for longer than it was begun, and without the files that it was begun with."""

import json
import shutil

import pytest
import torch

import clearhead as ch
from clearhead.errors import CheckpointError, InputError
from clearhead.train import train
from tests.train.runs import left_by, recipe, weights
from tests.train.test_run import case, stopping_at

CONSTANT = {"schedule": {"name": "constant", "warmup": 2}, "evaluation": {"every": 2}}


def notes(events):
    return [event["text"] for event in events if event["event"] == "note"]


# ---- more steps


def test_a_run_that_ended_goes_on_to_the_same_bits(tmp_path):
    train(recipe(tmp_path, **CONSTANT))
    heard = []
    longer = train(recipe(tmp_path, **CONSTANT, steps=10), watchers=[heard.append])
    assert longer.finished and longer.step == 10
    assert notes(heard)[0].startswith("The run goes on from step 6 to step 10; it was to end at 6.")
    assert "schedule" not in notes(heard)[0]
    straight = train(recipe(tmp_path, **CONSTANT, steps=10, out=str(tmp_path / "straight")))
    ours, theirs = left_by(longer.folder), left_by(straight.folder)
    for event in ours["log"] + theirs["log"]:
        event.pop("steps", None)  # how many there were to be, when it was told
    assert ours == theirs
    assert "steps: 10" in (longer.folder / "recipe.yaml").read_text()
    assert train(recipe(tmp_path, **CONSTANT, steps=10)).step == 10  # the longer recipe is the run's now


def test_the_schedule_is_that_of_the_longer_run(tmp_path):
    linear = {"schedule": {"name": "linear"}}
    train(recipe(tmp_path, **linear))
    heard = []
    train(recipe(tmp_path, **linear, steps=12), watchers=[heard.append])
    assert "that of a linear schedule over all 12 steps" in notes(heard)[0]
    rates = {event["step"]: event["lr"] for event in heard if event["event"] == "step"}
    assert rates[7] == pytest.approx(0.01 * (12 - 6) / 12)  # the step after six of twelve


def test_epochs_are_raised_too_and_nothing_is_lowered(tmp_path):
    first = train(recipe(tmp_path, steps=None, epochs=1.0))
    assert train(recipe(tmp_path, steps=None, epochs=2.0)).step == 2 * first.step
    with pytest.raises(CheckpointError, match=r"It has epochs=2, which can be raised to train longer, and not"):
        train(recipe(tmp_path, steps=None, epochs=1.5))
    with pytest.raises(CheckpointError, match="It has epochs=2"):
        train(recipe(tmp_path, steps=500))


def test_out_of_patience_it_goes_on_with_more_of_it(tmp_path):
    hopeless = {"optimizer": {"lr": 1e-12}, "steps": 20}
    short = train(recipe(tmp_path, **hopeless, evaluation={"every": 1, "patience": 1}))
    assert short.step == 2
    assert train(recipe(tmp_path, **hopeless, evaluation={"every": 1, "patience": 3})).step == 4


# ---- sources that are gone


@pytest.mark.parametrize("name", ["causal-lm", "classification", "tagging", "seq2seq", "sentence-contrastive"])
def test_when_its_sources_are_gone_a_run_goes_on_from_what_it_has_prepared(tmp_path, name):
    straight = train(case(tmp_path, name, "straight"))
    asked = case(tmp_path, name, "run")
    assert not train(asked, watchers=[stopping_at(1)]).finished
    heard = []
    for path in tmp_path.glob("*.jsonl"):
        path.unlink()
    result = train(asked, watchers=[heard.append])
    assert result.finished and result.metrics == straight.metrics
    assert all(torch.equal(tensor, weights(straight.folder)[key]) for key, tensor in weights(result.folder).items())
    assert sum("is gone; the run goes on from the examples" in note for note in notes(heard)) == 3
    assert straight.test.keys() - result.test.keys() == ({"bleu"} if name == "seq2seq" else set())
    assert ch.load(result.folder).model.task


def test_a_source_that_changed_is_told_at_once(tmp_path):
    asked = recipe(tmp_path)
    train(asked, watchers=[stopping_at(2)])
    text = tmp_path / "text.txt"
    text.write_text(text.read_text() + "one more line\n")
    tables = sorted((tmp_path / "run" / "data").iterdir())
    with pytest.raises(CheckpointError, match=r"The train data \(.*text.txt\) has changed since .* take it away"):
        train(asked)
    assert sorted((tmp_path / "run" / "data").iterdir()) == tables  # nothing was prepared for it
    text.unlink()
    assert train(asked).finished


def test_without_prepared_data_the_sources_are_asked_for(tmp_path):
    asked = recipe(tmp_path)
    train(asked, watchers=[stopping_at(2)])
    (tmp_path / "text.txt").unlink()
    shutil.rmtree(tmp_path / "run" / "data")
    with pytest.raises(InputError, match=r"text.txt is gone, and its prepared examples"):
        train(asked)
    assert "parts" in json.loads((tmp_path / "run" / "sources.json").read_text())
