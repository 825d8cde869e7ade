"""Checkpoints are written whole or not at all, and nothing that goes wrong costs the last good one."""

import errno
import fcntl
import json
import resource
import shutil
import sys
from pathlib import Path

import pytest
import torch

from clearhead.errors import CheckpointError, ClearheadError, InputError
from clearhead.train import train
from clearhead.train.engine import checkpoints
from clearhead.train.engine.checkpoints import Checkpoints, Progress
from tests.train.runs import everything, left_by, recipe, write_text


def tensors(value: float) -> dict:
    return {"weights": {"a": torch.full((3,), value)}, "optimizer": {"a.m": torch.zeros(3)}}


def filled(folder: Path, keep: int = 2) -> Checkpoints:
    made = Checkpoints(folder, keep)
    for step in (1, 2, 3):
        made.save(Progress(step=step, units=step * 10, best_step=1, best=0.5), tensors(float(step)))
    return made


def everything_in(folder: Path) -> dict:
    """Every file with its content; locks aside."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def test_round_trip_and_tidying(tmp_path):
    made = filled(tmp_path, keep=1)
    assert made.steps() == [3]  # the newest
    progress, found = made.load(3)
    assert progress == Progress(step=3, units=30, best_step=1, best=0.5)
    assert found["weights"]["a"].tolist() == [3.0] * 3 and found.keys() == {"weights", "optimizer"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000003"]


def test_the_same_step_again_replaces(tmp_path):
    made = filled(tmp_path)
    made.save(Progress(step=3), tensors(9.0))
    assert made.load(3)[1]["weights"]["a"].tolist() == [9.0] * 3
    assert not list(tmp_path.glob(".step-*"))


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_costs_nothing(tmp_path, monkeypatch):
    made = filled(tmp_path)
    before = everything_in(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_file", full_disk)
        with pytest.raises(CheckpointError, match=r"step 4 .*No space left.*step 3 is untouched.*Make room"):
            made.save(Progress(step=4), tensors(4.0))
    assert everything_in(tmp_path) == before and not list(tmp_path.glob(".*"))
    made.save(Progress(step=4), tensors(4.0))
    assert made.steps() == [3, 4]


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of this kind")
@pytest.mark.parametrize("limit", [100, 2_000, 41_000])
def test_a_limit_of_the_system_costs_nothing(tmp_path, limit):
    """A real failure in the middle of a file: the system lets nothing longer be written."""
    made = filled(tmp_path)
    before = everything_in(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(CheckpointError, match="step 3 is untouched"):
            made.save(Progress(step=4), {"weights": {"a": torch.zeros(5_000)}, "optimizer": {"b": torch.zeros(20_000)}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert everything_in(tmp_path) == before and not list(tmp_path.glob(".*"))


def test_a_full_disk_in_a_run(tmp_path, monkeypatch):
    said = recipe(tmp_path, checkpoint__every=2, evaluation__every=2)
    real, calls = checkpoints.save_file, []

    def later(*args, **options):
        calls.append(args)
        full_disk() if len(calls) == 4 else real(*args, **options)  # the second file of the second checkpoint

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_file", later)
        with pytest.raises(CheckpointError, match="step 4 could not be written"):
            train(said)
    assert Checkpoints(tmp_path / "run/checkpoints", 2).steps() == [2]
    assert train(said).finished
    train(recipe(tmp_path, checkpoint__every=2, evaluation__every=2, out=str(tmp_path / "straight")))
    assert left_by(tmp_path / "run") == left_by(tmp_path / "straight")


def spoil_weights(folder: Path) -> None:
    path = folder / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 0x10
    path.write_bytes(data)


def cut_off(folder: Path) -> None:
    path = folder / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-7])


SPOILT = {
    "a bit": spoil_weights,
    "cut off": cut_off,
    "missing": lambda folder: (folder / "weights.safetensors").unlink(),
    "empty": lambda folder: [path.unlink() for path in folder.iterdir()],
    "state": lambda folder: (folder / "state.json").write_text('{"format": 1, "files"'),
    "list": lambda folder: (folder / "state.json").write_text("[]"),
    "later format": lambda folder: (folder / "state.json").write_text('{"format": 99}'),
    "a digit": lambda folder: (folder / "state.json").write_text(
        (folder / "state.json").read_text().replace('"units": 30', '"units": 31')
    ),
    "unknown number": lambda folder: (folder / "state.json").write_text(
        json.dumps({"format": 1, "files": {}, "progress": {"steps": 3}})
    ),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_checkpoint_is_passed_over(tmp_path, how):
    made = filled(tmp_path)
    SPOILT[how](made.path(3))
    progress, found, wrong = made.newest()
    assert progress.step == 2 and found["weights"]["a"].tolist() == [2.0] * 3
    assert len(wrong) == 1 and "step-000000003" in wrong[0]
    made.save(Progress(step=3), tensors(7.0))
    assert made.newest()[1]["weights"]["a"].tolist() == [7.0] * 3


def test_none_that_can_be_read(tmp_path):
    made = filled(tmp_path, keep=1)
    for step in made.steps():
        spoil_weights(made.path(step))
    with pytest.raises(CheckpointError, match="No checkpoint of this run can be read"):
        made.newest()
    assert Checkpoints(tmp_path / "nothing", 1).newest() is None


def test_a_run_goes_back_behind_a_damaged_checkpoint(tmp_path):
    train(everything(tmp_path, checkpoint={"every": 3, "keep": 2}))
    wanted = left_by(tmp_path / "run")
    newest = sorted((tmp_path / "run/checkpoints").iterdir())[-1]
    spoil_weights(newest)
    seen = []
    assert train(everything(tmp_path, checkpoint={"every": 3, "keep": 2}), watchers=[seen.append]).finished
    notes = [event["text"] for event in seen if event["event"] == "note"]
    assert len(notes) == 1 and newest.name in notes[0]
    assert any(event["event"] == "step" for event in seen)
    assert left_by(tmp_path / "run") == wanted


@pytest.mark.parametrize("more", [{}, {"ema": 0.5}])
def test_the_best_weights_travel_with_every_checkpoint(tmp_path, more):
    """The best step has no checkpoint any more, and the newest one is damaged: the same weights are exported."""
    said = recipe(tmp_path, evaluation__every=2, checkpoint__every=1, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clearhead.train.engine.evaluation.Evaluation.metrics", lambda *_: {"loss": next(scripted)})
        scripted = iter([5.0, 1.0, 2.0, 3.0, 9.0])  # the first is a try, before there is anything to measure
        train(said)
        best = everything_in(tmp_path / "run/model")
        assert Checkpoints(tmp_path / "run/checkpoints", 2).steps() == [5, 6]
        spoil_weights(tmp_path / "run/checkpoints/step-000000006")
        scripted = iter([5.0, 3.0, 9.0])
        train(said)
    assert everything_in(tmp_path / "run/model") == best
    assert json.loads((tmp_path / "run/result.json").read_text())["best_step"] == 2


@pytest.mark.parametrize("change", ["optimizer.lr=0.5", "model.config.n_layer=1", "objective.cross_documents=true"])
def test_another_recipe_is_refused_and_nothing_changes(tmp_path, change):
    said = recipe(tmp_path)
    train(said)
    before = everything_in(tmp_path)
    with pytest.raises(CheckpointError, match=f"another recipe .*{change.partition('=')[0]}.*out="):
        train(said, [change])
    assert everything_in(tmp_path) == before


def test_what_may_change_between_two_sittings(tmp_path):
    said = recipe(tmp_path)
    train(said, ["batch.gradient_accumulation_steps=1"])
    shutil.copy(tmp_path / "text.txt", tmp_path / "moved.txt")
    more = ["batch.gradient_accumulation_steps=2", "checkpoint.keep=1", "log_every=2", "device=cpu"]
    assert train(said, [*more, f"data.train={tmp_path / 'moved.txt'}"]).finished
    (tmp_path / "moved.txt").write_text("another line of text\n" * 400)
    with pytest.raises(CheckpointError, match=r"The train data \(.*\) has changed"):
        train(said, [*more, f"data.train={tmp_path / 'moved.txt'}"])


@pytest.mark.parametrize("name", ["log.jsonl", "result.json", "data", "tokenizer"])
def test_what_is_no_runs_is_not_written_over(tmp_path, name):
    said = recipe(tmp_path)
    (tmp_path / "run").mkdir()
    if "." in name:
        (tmp_path / "run" / name).write_text("mine")
    else:
        (tmp_path / "run" / name).mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError, match=f"holds {name}, but no recipe.yaml"):
        train(said)
    assert sorted(tmp_path.rglob("*")) == before  # no lock either


def test_a_run_that_cannot_begin_leaves_nothing(tmp_path):
    said = recipe(tmp_path, out=str(tmp_path / "deep/run"))
    text = (tmp_path / "text.txt").read_text()
    (tmp_path / "text.txt").write_text("hi there")
    with pytest.raises(InputError, match=r"The train data has \d+ tokens, which do not fill one block"):
        train(said, ["data.validation_fraction=0"])
    assert (tmp_path / "deep/run/data").is_dir()  # what was prepared is kept: it may have taken long
    (tmp_path / "text.txt").write_text(text)
    assert train(said, ["data.validation_fraction=0"]).finished  # with a tokenizer for the text that is there now
    fresh = train(said, ["data.validation_fraction=0", f"out={tmp_path / 'fresh'}"])
    one, two = ((folder / "tokenizer/tokenizer.json").read_bytes() for folder in (tmp_path / "deep/run", fresh.folder))
    assert one == two
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"text": "a cat", "label": "x"}\n' * 9 + '{"text": "a dog", "label": ""}\n')
    with pytest.raises(
        ClearheadError, match=r"labels\.jsonl:10"
    ):  # found when the labels are read, after the tokenizer
        train(said, [f"out={tmp_path / 'a/b'}", "objective=classification", f"data.train={labels}"])
    assert not (tmp_path / "a").exists()


def test_checkpoints_of_another_model_are_refused(tmp_path):
    train(recipe(tmp_path, out=str(tmp_path / "other"), model__config={"n_embd": 8, "n_layer": 1, "n_head": 1}))
    said = recipe(tmp_path)
    shutil.copytree(tmp_path / "other/checkpoints", tmp_path / "run/checkpoints")
    before = everything_in(tmp_path)
    with pytest.raises(CheckpointError, match=r"no recipe.yaml.*out="):
        train(said)
    assert everything_in(tmp_path) == before
    shutil.rmtree(tmp_path / "run")
    train(said)
    shutil.rmtree(tmp_path / "run/checkpoints")
    shutil.copytree(tmp_path / "other/checkpoints", tmp_path / "run/checkpoints")
    before = everything_in(tmp_path)
    with pytest.raises(CheckpointError, match="belongs to another model"):
        train(said)
    assert everything_in(tmp_path) == before


def test_other_data_is_refused(tmp_path):
    said = recipe(tmp_path)
    train(said)
    write_text(tmp_path / "text.txt", seed=9)
    with pytest.raises(CheckpointError, match=r"data \(.*\) has changed"):
        train(said)


def test_other_held_out_data_is_refused(tmp_path):
    """The best step was chosen by it."""
    said = recipe(tmp_path)
    write_text(tmp_path / "valid.txt", seed=3)
    said["data"] = {"train": str(tmp_path / "text.txt"), "valid": str(tmp_path / "valid.txt")}
    train(said)
    write_text(tmp_path / "valid.txt", seed=4)
    with pytest.raises(CheckpointError, match=r"data \(.*\) has changed"):
        train(said)


def test_two_processes_in_one_folder(tmp_path):
    said = recipe(tmp_path)
    (tmp_path / "run").mkdir()
    with (tmp_path / "run/.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="Another process is training into"):
            train(said)
    assert not (tmp_path / "run/recipe.yaml").exists()
    assert train(said).finished


def test_a_folder_that_cannot_be_one(tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file/inside", Path("/proc/nowhere/run")):
        with pytest.raises(CheckpointError, match=r"Cannot write to .*Choose another out="):
            train(recipe(tmp_path, out=str(out)))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_read_only_folder(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    try:
        (folder / "try").touch()
        pytest.skip("this user may write anywhere")
    except PermissionError:
        pass
    with pytest.raises(CheckpointError, match="Permission denied"):
        train(recipe(tmp_path, out=str(folder / "run")))
