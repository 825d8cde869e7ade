"""The folder of a run: one process at a time writes to it, and its recipe decides what may go on in it.

out/recipe.yaml    what was asked
out/tokenizer/     trained for it, where it was
out/sources.json   which data it was made of (train/run/kept_sources.py)
out/data/          the data as numbers (train/data)
out/checkpoints/   to go on from (train/engine/checkpoints.py)
out/log.jsonl      what happened (train/engine/log.py)
out/model/         the model, as every other checkpoint: ch.load("out/model")
out/result.json    the metrics at the end
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from clearhead.errors import CheckpointError, ClearheadError
from clearhead.files import atomic_write, lock
from clearhead.hub.run_folder import HEADER, RECIPE, is_run
from clearhead.train.engine.world import World
from clearhead.train.objectives import Objective
from clearhead.train.recipe import Recipe
from clearhead.train.recipe_files import read_recipe, write_recipe


def has_begun(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("checkpoints", "model"))


@contextmanager
def locked(folder: Path, world: World) -> Iterator[None]:
    """Two runs must not write to one folder."""
    if not world.is_main:
        yield
        return
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("w")
    except OSError as error:
        raise CheckpointError(f"Cannot write to {folder}: {error.strerror or error}. Choose another out=.") from None
    with handle:
        if not lock(handle):
            raise CheckpointError(f"Another process is training into {folder}. Wait for it, or set out=.")
        try:
            yield
        except ClearheadError:
            _remove_new(new)
            raise


def _remove_new(new: list[Path]) -> None:
    """Nothing is left of a run that could not begin, unless there is work in it: data that is prepared, or a log.

    new   the folders that it made, the run's own first
    """
    if not new or any((new[0] / "data").glob("*/manifest.json")) or (new[0] / "log.jsonl").exists():
        return
    shutil.rmtree(new[0], ignore_errors=True)
    with suppress(OSError):  # somebody else has put something there
        for parent in new[1:]:
            parent.rmdir()


FILES = (
    "checkpoints",
    "model",
    "tokenizer",
    "adapter",
    "data",
    "tensorboard",
    "log.jsonl",
    "result.json",
    "sources.json",
)


def check_same_recipe(recipe: Recipe, folder: Path, kind: type[Objective]) -> list[str]:
    """In what the recipe differs from that of a run that did not come as far as training; any other is an error."""
    path = folder / RECIPE
    existing = [name for name in ("checkpoints", "model") if (folder / name).exists()]
    if path.exists() and not existing and not is_run(folder):
        raise CheckpointError(
            f"A run into {folder} would write over {path}, which is no run's. Set out= to a new folder."
        )
    before = read_recipe(path) if path.exists() else recipe
    as_long = replace(before, steps=recipe.steps, epochs=recipe.epochs) if recipe.extends(before) else before
    changed = recipe.differences(as_long, kind.compares_rows)
    if existing and changed:
        raise CheckpointError(
            f"{folder} holds a run of another recipe ({'; '.join(changed[:5])}).{_how_long(before, changed)} "
            "Set out= to a new folder, or delete this one to begin anew."
        )
    orphaned = [name for name in FILES if (folder / name).exists()] if not path.exists() else []
    if orphaned:
        raise CheckpointError(
            f"{folder} holds {' and '.join(orphaned)}, but no recipe.yaml: no run to go on with. Set out= to a new one."
        )
    return changed


def remember_recipe(recipe: Recipe, folder: Path, kind: type[Objective], world: World) -> None:
    """The recipe stands in the folder; one that would train differently is not mixed with what is there."""
    path = folder / RECIPE
    changed = check_same_recipe(recipe, folder, kind)
    world.barrier()
    if world.is_main and (changed or not path.exists()):
        shutil.rmtree(folder / "tokenizer", ignore_errors=True)  # of a recipe that did not come as far as training
    if world.is_main and (changed or not path.exists() or recipe.extends(read_recipe(path))):
        atomic_write(path, (HEADER + write_recipe(recipe)).encode(), CheckpointError)
    world.barrier()


def _how_long(before: Recipe, changed: list[str]) -> str:
    """How to train longer, for whoever seems to have tried."""
    if not any(key.startswith(("steps:", "epochs:")) for key in changed):
        return ""
    length = f"steps={before.steps}" if before.steps is not None else f"epochs={before.epochs:g}"
    return f" It has {length}, which can be raised to train longer, and not lowered."
