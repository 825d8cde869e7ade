"""Recipes of several stages: ULMFiT from end to end, going on, what is said of mistakes, the command line."""

import json
import random

import pytest
from typer.testing import CliRunner

import clearhead as ch
from clearhead.cli import app
from clearhead.errors import ConfigError, InputError
from clearhead.train import read_stages, train_stages
from clearhead.zoo.recipes import find_recipe

NOUNS = "cat dog girl wolf house tree river king".split()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("stages"), random.Random(1)
    texts = [f"The {rng.choice(NOUNS)} sees the {rng.choice(NOUNS)}." for _ in range(160)]
    (folder / "books.txt").write_text(" ".join(texts))
    rows = [f"{t},{'pet' if 'cat' in t or 'dog' in t else 'other'}" for t in texts]
    (folder / "labels.csv").write_text("text,label\n" + "\n".join(rows))
    return folder


def settings(data, out, pretrain=True):
    said = [
        f"out={out}", f"data.train={data}/labels.csv", f"data.test={data}/labels.csv", "device=cpu", "log_every=1",
        "pretrain.tokenizer.vocab_size=14", "pretrain.model.config={emb_sz: 8, n_hid: 10, n_layers: 2}",
        "pretrain.batch.size=4", "language-model.batch.size=4", "pretrain.batch.length=10",
        "language-model.batch.length=10", "pretrain.epochs=1", "language-model.epochs=0.5", "classifier.epochs=2",
        "pretrain.data.validation_fraction=0", "pretrain.evaluation.sample=null", "pretrain.data.documents=lines",
    ]  # fmt: skip
    return [*said, f"pretrain.data.train={data}/books.txt"] if pretrain else said


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("ulmfit") / "run"
    stages = read_stages(find_recipe("ulmfit"), settings(data, out))
    seen = []
    result = train_stages(stages, watchers=[seen.append])
    assert result is not None and result.finished
    return out, stages, result, seen


def test_three_stages_each_from_the_one_before(run):
    out, stages, result, seen = run
    assert [stage.name for stage in stages] == ["pretrain", "language-model", "classifier"]
    assert [stage.recipe.model.start for stage in stages[1:]] == [
        f"{out}/pretrain/model",
        f"{out}/language-model/model",
    ]
    assert [event["objective"] for event in seen if event["event"] == "begin"] == [
        "recurrent-lm", "recurrent-lm", "classification",
    ]  # fmt: skip
    assert result.folder == out / "classifier" and "accuracy" in result.test
    pipe = ch.load(result.model)
    assert {one.label for one in pipe.classify("The cat sees the king.")} == {"pet", "other"}
    assert len(pipe.tokenizer) > len(ch.load(out / "pretrain" / "model").tokenizer) == 14
    # the middle stage has words of the task's text, and the classifier has the middle stage's
    assert pipe.tokenizer.get_vocab() == ch.load(out / "language-model" / "model").tokenizer.get_vocab()


def test_what_is_done_is_not_done_again(run, data, tmp_path):
    out, stages, _, _ = run
    skipped = []
    assert train_stages(stages, on_skip=skipped.append) is None and skipped == stages
    longer = read_stages(find_recipe("ulmfit"), [*settings(data, out), "classifier.epochs=3"])
    assert [stage.is_finished() for stage in longer] == [True, True, False]
    other = read_stages(find_recipe("ulmfit"), [*settings(data, out), "pretrain.optimizer.lr=1"])
    assert not other[0].is_finished()


def test_without_text_of_its_own_a_stage_is_left_out(run, data, tmp_path):
    out, *_ = run
    stages = read_stages(
        find_recipe("ulmfit"), [*settings(data, tmp_path / "run", False), f"start={out}/pretrain/model"]
    )
    assert [stage.name for stage in stages] == ["language-model", "classifier"]
    assert stages[0].recipe.model.start == f"{out}/pretrain/model"
    assert stages[0].recipe.data.test is None and stages[1].recipe.data.test is not None
    assert read_stages(find_recipe("ulmfit"), ["data.train=x"])[0].recipe.model.start == "awd-lstm"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epochs=3", r"every stage has its own epochs. Say which: pretrain\.epochs=…, language-model\.epochs=…"),
        ("clasifier.epochs=3", "Did you mean classifier"),
        ("classifier.optimizer.lrr=3", "unknown key 'optimizer.lrr'"),
        ("data.train=null", r"data\.train is missing"),
        ("out=", "out is missing"),
        ("start=null", "there is none before it"),
    ],
)
def test_mistakes_are_named(setting, message):
    with pytest.raises(ConfigError, match=message):
        read_stages(find_recipe("ulmfit"), ["data.train=x", setting])


def test_a_missing_column_is_found_before_the_first_stage(data, tmp_path):
    (tmp_path / "bad.csv").write_text("text,kind\na,b\n")
    said = [*settings(data, tmp_path / "run"), f"classifier.data.train={tmp_path}/bad.csv"]
    with pytest.raises(InputError, match="has no column 'label'"):
        train_stages(read_stages(find_recipe("ulmfit"), said))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="stages must be a table"):
        read_stages({"out": "x", "stages": []})


def test_from_the_command_line(run, data, tmp_path):
    out, *_ = run
    said = [*settings(data, tmp_path / "run", False), f"start={out}/pretrain/model", "classifier.epochs=0.5"]
    shown = CliRunner().invoke(app, ["train", "ulmfit", *said, "--show"])
    assert shown.exit_code == 0 and shown.stdout.count("---\n") == 1 and "# classifier" in shown.stdout
    done = CliRunner().invoke(app, ["train", "ulmfit", *said, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["model"] == str(tmp_path / "run" / "classifier" / "model")
    again = CliRunner().invoke(app, ["train", "ulmfit", *said])
    assert again.exit_code == 0 and "All stages are done" in again.output
    one = CliRunner().invoke(app, ["train", "ulmfit", *said], env={"RANK": "0"})
    assert one.exit_code == 1 and "one recipe at a time" in str(one.exception)
