"""clearhead train as a user types it: the end of a run, a stop, mistakes, and what it says on the way."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest
import yaml
from typer.testing import CliRunner

import clearhead as ch
from clearhead.cli import app
from clearhead.errors import ClearheadError
from clearhead.train.engine.log import read_log
from clearhead.zoo.recipes import recipes
from tests.fork_server import run_python

TEXT = "The cat sees the dog. The dog likes the girl. A girl finds the house near the river.\n"
SMALL = [
    "model.config={hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2, max_position_embeddings: 32}",
    "tokenizer.vocab_size=300", "batch.length=32", "batch.size=4", "data.validation_fraction=0.2", "device=cpu",
    "evaluation.every=3", "schedule.warmup=1",
]  # fmt: skip


def inside(*words, **env):
    """In this process. What a user can do wrong comes out as the error that the command line prints."""
    result = CliRunner().invoke(app, ["train", *words], env={"COLUMNS": "100", **env})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT * 60)
    return path


def asked(text, out, *more):
    return ["language-model", f"data.train={text}", f"out={out}", *SMALL, *more]


def test_help_and_list():
    shown = inside("--help").stdout
    for word in ("key=value", "Ctrl-C", "same command goes on", "torchrun", "--dry-run", "--watch", "runs/mine"):
        assert word in shown, word
    listed = inside("--list").stdout.splitlines()
    assert [line.split()[0] for line in listed if line.strip()][:3] == [
        "language-model",
        "finetune-gpt2",
        "translation",
    ]
    assert len([line for line in listed if line.strip()]) == len(recipes())  # a line each


def test_show(text):
    plain = inside("language-model", "--show").stdout
    assert plain.startswith("# GPT-2's architecture from scratch")
    assert "# a text file" in plain  # with its comments, to be copied and changed
    resolved = yaml.safe_load(inside("language-model", f"data.train={text}", "optimizer.lr=1e-4", "--show").stdout)
    assert resolved["optimizer"]["lr"] == 1e-4
    assert resolved["data"]["train"] == str(text)
    assert resolved["checkpoint"]["keep"] == 2  # what the recipe does not say stands there too


def test_own_held_out_data_takes_the_place_of_a_share(text):
    words = ["language-model", f"data.train={text}", "--show"]
    assert yaml.safe_load(inside(*words, "steps=9").stdout)["data"]["validation_fraction"] == 0.02
    assert yaml.safe_load(inside(*words, f"data.valid={text}").stdout)["data"]["validation_fraction"] == 0
    assert yaml.safe_load(inside(*words, "data.valid.path=x").stdout)["data"]["validation_fraction"] == 0
    assert yaml.safe_load(inside(*words, "data.valid=null").stdout)["data"]["validation_fraction"] == 0.02


def test_from_text_to_a_model_that_writes(text, tmp_path):
    result = inside(*asked(text, tmp_path / "run", "steps=6"))
    assert "GPT-2" in result.stderr and "step 6 of 6" in result.stderr
    assert result.stderr.count("held out: loss") == 2
    assert "the model writes: Once upon a time" in result.stderr
    model = tmp_path / "run" / "model"
    assert f'clearhead generate "Once upon a time" --top-k 40 -m {model}' in result.stdout
    assert "held out" in result.stdout and "perplexity" in result.stdout
    assert ch.load(model).generate("The cat", max_new_tokens=3).startswith("The cat")
    again = inside(*asked(text, tmp_path / "run", "steps=6"), "--json")  # nothing is left to do
    told = json.loads(again.stdout)
    assert told["finished"] and told["step"] == 6 and told["model"] == str(model)
    assert told["metrics"] == read_log(tmp_path / "run" / "log.jsonl")[-1]["metrics"]


def test_a_run_is_evaluated_on_new_text(text, tmp_path):
    trained = json.loads(inside(*asked(text, tmp_path / "run", "steps=3", f"data.test={text}"), "--json").stdout)
    words = ["evaluate", str(tmp_path / "run"), "--test", str(text)]
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert told["metrics"] == pytest.approx(trained["test"], rel=1e-6)
    assert told["objective"] == "causal-lm" and told["model"] == str(tmp_path / "run" / "model")
    shown = CliRunner().invoke(app, words).stdout
    assert f"perplexity     {told['metrics']['perplexity']:.1f}" in shown
    with pytest.raises(ClearheadError, match=r"--test new\.csv"):
        raise CliRunner().invoke(app, words[:2]).exception


def test_a_dry_run_keeps_nothing(text, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    told = inside(*asked(text, tmp_path / "run", "steps=600", f"data.cache={tmp_path / 'cache'}"), "--dry-run").stdout
    for word in ("parameters", "600 steps", "tokens/s", "GiB", "first loss", "examples"):
        assert word in told, word
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(ClearheadError, match="torchrun"):
        inside(*asked(text, tmp_path / "run", "steps=600"), "--dry-run", RANK="0")
    facts = json.loads(inside(*asked(text, tmp_path / "run", "steps=600"), "--dry-run", "--json").stdout)
    assert facts["steps"] == 600 and facts["first_loss"] > 0 and "out" not in facts


def test_watching_a_run(text, tmp_path):
    inside(*asked(text, tmp_path / "run", "steps=3"))
    shown = inside("--watch", str(tmp_path / "run")).stdout
    for word in ("training", "held out", "step 3 of 3", "finished", "The model writes"):
        assert word in shown, word
    with pytest.raises(ClearheadError, match="no log of a run"):
        inside("--watch", str(tmp_path))


def test_mistakes_are_told_in_one_message(text, tmp_path):
    for words, message in [
        ([], "Say which recipe"),
        (["langage-model"], "Did you mean language-model"),
        (["language-model"], r"data\.train is missing"),
        (["language-model", f"data.train={text}", "optimizer.lrr=1"], r"unknown key 'optimizer\.lrr'. Did you mean lr"),
        (["language-model", f"data.train={text}", "steps"], "is no setting"),
        (asked(tmp_path / "none.txt", tmp_path / "run"), "does not exist"),
    ]:
        with pytest.raises(ClearheadError, match=message):
            inside(*words)
    done = run_python(["-m", "clearhead", "train", "language-model"])
    assert done.returncode == 1 and done.stderr.startswith("Error:") and "Traceback" not in done.stderr
    silent = inside("language-model", RANK="1")  # under torchrun one process complains, the others end quietly
    assert silent.exit_code == 1 and silent.output == ""


def read_until(terminal, wanted, seen=b"", seconds=60.0):
    """What a terminal shows, until it has shown this."""
    end = time.monotonic() + seconds
    while wanted not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:  # it was closed
                break
    return seen


def test_ctrl_c_in_a_terminal(text, tmp_path):
    """The live view says that it stops, leaves the terminal as it was, and the same command goes on."""
    words = asked(text, tmp_path / "run", "steps=100000", "log_every=1", "evaluation.every=50000")
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="90", LINES="40")
        os.execv(sys.executable, [sys.executable, "-m", "clearhead", "train", *words])
    seen = read_until(terminal, b"tokens read")
    os.kill(pid, signal.SIGINT)
    seen = read_until(terminal, b"Stopped after step", seen)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    shown = seen.decode(errors="replace")
    assert code == 130, shown[-500:]
    assert "training" in shown and "Stopped after step" in shown and "Traceback" not in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is back
    stopped = read_log(tmp_path / "run" / "log.jsonl")[-1]
    assert stopped["event"] == "end" and not stopped["finished"] and stopped["step"] > 0
    assert list((tmp_path / "run" / "checkpoints").iterdir())


def test_ctrl_c_without_a_terminal(text, tmp_path):
    words = asked(text, tmp_path / "run", "steps=100000", "log_every=1", "evaluation.every=50000")
    run = subprocess.Popen(
        [sys.executable, "-m", "clearhead", "train", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (line := run.stderr.readline()).startswith("step 1 of"):
        assert line and not line.startswith("step")  # the first step is told at once
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130 and out == ""
    assert "Finishing this step" in err and "The same command goes on" in err and "Traceback" not in err
