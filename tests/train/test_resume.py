"""Kill a run at any moment, run the same command again: the weights are those of a run that was never killed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clearhead.train import train
from clearhead.train.engine.log import read_log
from tests.train.runs import everything, left_by, recipe, weights

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def zygote():
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with subprocess.Popen(
        [sys.executable, str(HERE / "zygote.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:

        def ask(said: dict, kill_at: int | None = None) -> dict:
            process.stdin.write(json.dumps({"recipe": said, "kill_at": kill_at}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


@pytest.fixture(scope="module")
def whole(zygote, tmp_path_factory):
    """A run that nobody disturbs: (recipe, what it leaves, its ticks)."""
    folder = tmp_path_factory.mktemp("whole")
    said = everything(folder)
    told = zygote(said)
    assert told["status"] == 0 and told["finished"]
    return said, left_by(folder / "run"), told["ticks"]


def killed_again_and_again(zygote, said: dict, kills: list[int]) -> int:
    """Run until it is finished; how many times it was killed."""
    for count, tick in enumerate([*kills, None]):
        told = zygote(said, tick)
        if told["status"] == 0:
            return count
        assert told["status"] == -signal.SIGKILL, told
    raise AssertionError("it never finished")


def elsewhere(said: dict, folder: Path) -> dict:
    return {**said, "out": str(folder / "run")}


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_points(zygote, whole, tmp_path, seed):
    said, wanted, ticks = whole
    draw = random.Random(seed)
    kills = [draw.randrange(1, ticks // 2) for _ in range(5)]
    said = elsewhere(said, tmp_path)
    assert killed_again_and_again(zygote, said, kills) >= 2
    assert left_by(tmp_path / "run") == wanted


@pytest.mark.slow
def test_killed_at_every_point(zygote, whole, tmp_path):
    said, wanted, ticks = whole
    for tick in range(1, ticks + 1):
        folder = tmp_path / str(tick)
        told = zygote(elsewhere(said, folder), tick)
        assert told["status"] == -signal.SIGKILL
        assert zygote(elsewhere(said, folder))["status"] == 0
        assert left_by(folder / "run") == wanted, tick
        shutil.rmtree(folder)


@pytest.mark.slow
def test_killed_at_random_times(whole, tmp_path):
    """By somebody else, whatever it is doing: no point of the work is chosen beforehand."""
    said, wanted, _ = whole
    said = {**elsewhere(said, tmp_path), "checkpoint": {"every": 1, "keep": 2}}
    (tmp_path / "recipe.json").write_text(json.dumps(said))
    code = (
        "import json, sys, torch; torch.set_num_threads(1); from clearhead.train import train;"
        f"print('ready', flush=True); train(json.load(open({str(tmp_path / 'recipe.json')!r})))"
    )
    draw = random.Random(1)
    for n in range(40):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            try:
                process.wait(draw.uniform(0.5, 5.0) * 1.1**n)  # a busy machine needs longer to come anywhere
                assert process.returncode == 0
                break
            except subprocess.TimeoutExpired:
                process.kill()
    else:
        raise AssertionError("it never finished")
    found = left_by(tmp_path / "run")
    assert found["model/model.safetensors"] == wanted["model/model.safetensors"]
    assert found["log"] == wanted["log"]


def test_everything_was_on(whole):
    """The run that is compared has evaluations, samples, a best step before the last, and early stopping nearby."""
    _, wanted, ticks = whole
    kinds = [event["event"] for event in wanted["log"]]
    assert kinds.count("evaluation") >= 3 and kinds.count("sample") == kinds.count("evaluation")
    assert [e["step"] for e in wanted["log"] if e["event"] == "step"] == list(range(1, 13))
    assert any("ema" in name for name in wanted) and any("optimizer" in name for name in wanted)
    assert ticks > 100


def interrupting(at: int, number: int, times: int = 1):
    def watch(event):
        if event["event"] == "step" and event["step"] == at:
            for _ in range(times):
                signal.raise_signal(number)

    return watch


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop_it_ends_the_step_and_goes_on_later(tmp_path, number):
    said = recipe(tmp_path, checkpoint__every=100, evaluation__every=100)
    before = signal.getsignal(number)
    result = train(said, watchers=[interrupting(3, number)])
    assert not result.finished and result.step == 3 and not result.model.exists()
    assert signal.getsignal(number) is before
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-000000003"]
    result = train(said)
    assert result.finished and result.step == 6
    straight = recipe(tmp_path, out=str(tmp_path / "straight"), checkpoint__every=100, evaluation__every=100)
    train(straight)
    assert left_by(tmp_path / "run") == left_by(tmp_path / "straight")


def test_a_signal_that_is_ignored_stays_so(tmp_path):
    """Under nohup a closed terminal does not stop a run."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert train(recipe(tmp_path), watchers=[interrupting(3, signal.SIGHUP)]).finished
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_asked_twice_it_stops_at_once(tmp_path):
    said = recipe(tmp_path, checkpoint__every=100, evaluation__every=100)
    with pytest.raises(KeyboardInterrupt):
        train(said, watchers=[interrupting(3, signal.SIGINT, times=2)])
    assert not (tmp_path / "run/checkpoints").exists()
    assert train(said).finished


def test_early_stopping_remembers_how_long_it_has_waited(tmp_path):
    """Patience of 2, never better after the first: it stops after the third evaluation, also across stops."""
    hopeless = {"lr": 1e-12}
    asked = {"evaluation": {"every": 2, "patience": 2}, "optimizer": hopeless, "steps": 40, "ema": 0.999}
    straight = train(recipe(tmp_path, **asked, out=str(tmp_path / "straight")))
    assert straight.finished and straight.step < 40
    said = recipe(tmp_path, **asked)
    for at in range(1, straight.step, 2):
        assert not train(said, watchers=[interrupting(at, signal.SIGINT)]).finished
    result = train(said)
    assert result.finished and result.step == straight.step
    assert train(said).step == straight.step  # and again: nothing is trained any more
    assert left_by(tmp_path / "run") == left_by(tmp_path / "straight")


def test_a_finished_run_is_not_trained_again(tmp_path):
    said = recipe(tmp_path)
    train(said)
    wanted = left_by(tmp_path / "run")
    seen = []
    assert train(said, watchers=[seen.append]).finished
    assert not any(event["event"] == "step" for event in seen)
    assert left_by(tmp_path / "run") == wanted


def test_the_log_has_every_step_once(tmp_path):
    said = recipe(tmp_path, checkpoint__every=2, evaluation__every=3)
    for at in (3, 5):
        assert not train(said, watchers=[interrupting(at, signal.SIGTERM)]).finished
    train(said)
    events = read_log(tmp_path / "run/log.jsonl")
    assert [e["step"] for e in events if e["event"] == "step"] == [1, 2, 3, 4, 5, 6]
    assert [e["step"] for e in events if e["event"] == "evaluation"] == [3, 6]
    assert events[-1]["event"] == "end" and events[-1]["finished"]


def test_stops_do_not_change_what_is_exported_with_lora_and_freezing(tmp_path):
    train(recipe(tmp_path, out=str(tmp_path / "base")))
    start = {"start": str(tmp_path / "base/model")}
    for name, more in {
        "lora": {"lora": {"rank": 2, "dropout": 0.1}},
        "frozen": {"optimizer__freeze": "embeddings"},
    }.items():
        outs = [tmp_path / name / part for part in ("stopped", "straight")]
        for out in outs:
            said = recipe(tmp_path, model=start, tokenizer={}, out=str(out), **more)
            if out.name == "stopped":
                assert not train(said, watchers=[interrupting(2, signal.SIGINT)]).finished
            train(said)
        assert left_by(outs[0]) == left_by(outs[1])
    before, after = weights(tmp_path / "base"), weights(tmp_path / "frozen/straight")
    assert (before["transformer.wte.weight"] == after["transformer.wte.weight"]).all()
    assert (before["transformer.h.0.attn.c_attn.weight"] != after["transformer.h.0.attn.c_attn.weight"]).any()


def test_time_left_and_speed(tmp_path):
    seen = []
    began = time.perf_counter()
    train(recipe(tmp_path), watchers=[seen.append])
    spent = time.perf_counter() - began
    steps = [event for event in seen if event["event"] == "step"]
    assert [event["units"] for event in steps] == [64 * n for n in range(1, 7)]
    assert all(0 < event["seconds"] <= spent and event["units_per_second"] > 0 for event in steps)
    assert steps[-1]["eta"] == 0 and all(event["eta"] > 0 for event in steps[:-1])
