"""Tiny runs for the tests of the engine: data, a recipe that has everything on, and what a run has left on disk."""

import json
import random
import shlex
from pathlib import Path

from safetensors.torch import load_file
from typer.testing import CliRunner

from clearhead.cli import app
from clearhead.cli.next_command import next_command
from clearhead.train import Recipe
from clearhead.train.engine.log import read_log

WORDS = "the a cat dog bird sat ran sang on under near mat house tree old red small and then but .".split()
TIMES = ("seconds", "units_per_second", "eta", "mfu")


def write_text(path: Path, lines: int = 120, seed: int = 0) -> Path:
    draw = random.Random(seed)
    path.write_text("".join(" ".join(draw.choices(WORDS, k=12)) + "\n" for _ in range(lines)))
    return path


def recipe(folder: Path, **changes) -> dict:
    """A causal model of two narrow layers on a few sentences; `a__b=c` sets the key a.b."""
    text = folder / "text.txt"
    if not text.exists():
        write_text(text)
    said = {
        "objective": "causal-lm",
        "out": str(folder / "run"),
        "data": {"train": str(text), "documents": "lines", "validation_fraction": 0.1},
        "tokenizer": {"kind": "bpe", "vocab_size": 290},
        "model": {
            "family": "gpt2",
            "config": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24},
        },
        "batch": {"size": 4, "length": 16},
        "optimizer": {"lr": 0.01},
        "steps": 6,
        "log_every": 1,
    }
    for key, value in changes.items():
        *path, last = key.split("__")
        table = said
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return said


def everything(folder: Path, **changes) -> dict:
    """Dropout, EMA, Muon, accumulation, gradual unfreezing, early stopping, evaluation and sampling."""
    asked = {
        "model__config": {
            "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24, "attn_pdrop": 0.1, "resid_pdrop": 0.2,
        },
        "optimizer": {"name": "muon", "lr": 0.02, "unfreeze_every": 4, "layer_decay": 0.8},
        "schedule": {"name": "linear", "warmup": 3},
        "batch": {"size": 8, "length": 16, "gradient_accumulation_steps": 2},
        "ema": 0.8,
        "evaluation": {"every": 2, "patience": 3, "sample": "the cat", "metric": "loss", "batches": 2},
        "checkpoint": {"every": 3, "keep": 1},
        "steps": 12,
    }  # fmt: skip
    return recipe(folder, **asked | changes)


def left_by(run: Path) -> dict:
    """What two runs that are the same have the same: every weight to the bit, and what was logged but for times."""
    newest = max(run.glob("checkpoints/step-*"))  # a stop on the way has left others beside it
    files = [*run.glob("model/*.safetensors"), *newest.glob("*.safetensors")]
    found = {str(path.relative_to(run)): path.read_bytes() for path in files}
    assert any("model/" in name for name in found) and any("weights" in name for name in found)
    events = [e for e in read_log(run / "log.jsonl") if e["event"] in ("step", "evaluation", "sample")]
    found["log"] = [{k: v for k, v in e.items() if k not in TIMES} for e in events]
    result = json.loads((run / "result.json").read_text())
    found["result"] = {k: v for k, v in result.items() if k != "seconds"}
    return found


def weights(run: Path, step: int | None = None) -> dict:
    """Of a checkpoint; by default of the exported model."""
    path = "model/model.safetensors" if step is None else f"checkpoints/step-{step:09d}/weights.safetensors"
    return load_file(run / path)


def check_command(asked: Recipe, model: Path) -> None:
    """The line that is told at the end of a run does something, in the words of this model."""
    command = next_command(asked, model)
    assert str(model) in command and "\n" not in command
    words = shlex.split(command)[1:]
    result = CliRunner().invoke(app, [*words, "-n", "2"] if words[0] in ("generate", "translate") else words)
    assert result.exit_code == 0, result.exception
    assert result.stdout
