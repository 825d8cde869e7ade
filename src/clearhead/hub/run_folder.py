"""The folder of a training run, as whoever uses its model sees it: which run a model comes from, which model to take.

The runs themselves are the business of train/run/folder.py, which says what else is in there.
"""

from __future__ import annotations

import logging
from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from clearhead.errors import CheckpointError
from clearhead.hub.assign import assign, published_tensors
from clearhead.hub.config import CONFIG, read_config
from clearhead.hub.weights import Weights

log = logging.getLogger("clearhead")

RECIPE = "recipe.yaml"
HEADER = "# All settings of the run in this folder, as they were used.\n"  # what recipe.yaml of a run begins with


def is_run(folder: Path) -> bool:
    """Whether a training run has left its recipe here."""
    try:
        with (folder / RECIPE).open(encoding="utf-8", errors="replace") as file:
            return file.read(len(HEADER)) == HEADER
    except OSError:
        return False


def run_of(folder: Path) -> Path | None:
    """The run that a folder is, or is a part of (its model, its adapter, a checkpoint); None: of none."""
    resolved = folder.resolve()
    above = {"model": resolved.parent, "adapter": resolved.parent}.get(resolved.name, resolved.parent.parent)
    return next((run for run in (folder, above) if is_run(run)), None)


def model_of_run(run: Path) -> Path:
    """The model of a run: the one it ended with; of one that has not ended, its newest checkpoint."""
    final = run / "model"
    if (final / CONFIG).is_file():
        log.info("%s is a training run: taking the model it ended with, %s.", run, final)
        return final
    newest = max((run / "checkpoints").glob("step-*"), default=None)
    if newest is None:
        raise CheckpointError(
            f"{run} is a training run that has no checkpoint yet, so there is no model in it. Run the same command "
            "again: it goes on."
        )
    log.warning("%s is a training run that has not ended: taking its newest checkpoint, %s.", run, newest.name)
    return newest


def is_checkpoint(folder: Path) -> bool:
    """Whether this is a checkpoint that a run goes on from (train/engine/checkpoints.py)."""
    return (folder / "state.json").is_file() and run_of(folder) is not None


def open_checkpoint(folder: Path) -> Weights | None:
    """The weights of a run's checkpoint under their published names, the best so far; None: the folder is no such.

    A checkpoint holds them under our own names, as what was trained calls them: the model, or a module around it.
    """
    if not is_checkpoint(folder):
        return None
    path, averages = folder / "weights.safetensors", folder / "ema.safetensors"
    if not path.is_file():
        raise _not_yet(folder, "is spread over several processes")
    if (folder / "best.safetensors").is_file():
        tensors = load_file(folder / "best.safetensors")
    else:
        tensors = load_file(path) | (load_file(averages) if averages.is_file() else {})
    if any(name.endswith(".lora_a") for name in tensors):
        raise _not_yet(folder, "has its LoRA adapter apart")
    family, config, raw = read_config(folder)
    model = family.make(config, family.task_of(raw["architectures"][0]), device="meta")
    names: dict[int, list[str]] = {}  # of each parameter; shared ones have several, and stand in the file once
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    inside = {name.removeprefix("model."): tensor for name, tensor in tensors.items()} | tensors
    for group in names.values():
        stored = next((inside[name] for name in group if name in inside), None)
        if stored is None:
            raise _not_yet(folder, f"has no {group[0]}")
        shared = nn.Parameter(stored, requires_grad=False)
        for name in group:
            assign(model, name, shared)
    published = dict(published_tensors(model))
    return Weights({path: list(published)}, opened={path: published})


def _not_yet(folder: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{folder} {why}, so it cannot be used as a model yet: run the same training command again, and it becomes one "
        "when the run ends."
    )
