"""Recipes of several stages: runs one after the other, each going on from the model of the one before (ULMFiT).

    out: runs/mine                     # a folder for each stage in it
    start: awd-lstm                    # what the first stage that runs begins with
    data: {train: reviews.csv}         # whatever stands here holds for every stage that does not say otherwise
    stages:
      language-model: {objective: recurrent-lm, model: {start: previous}, …}
      classifier: {objective: classification, model: {start: previous}, …}

A stage without data is left out. `key=value` is for all stages, `classifier.key=value` for one. A folder in which some
stages are done goes on with the first that is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import hub
from clearhead.errors import ConfigError, did_you_mean
from clearhead.hub.run_folder import RECIPE
from clearhead.train.data.types import check_columns
from clearhead.train.engine.log import Watcher
from clearhead.train.objectives import objective_class
from clearhead.train.recipe import Recipe
from clearhead.train.recipe_files import read_recipe, read_table, set_value
from clearhead.train.run.inputs import open_sources
from clearhead.train.run.kept_sources import GoneSource, kept_sources
from clearhead.train.run.train import TrainingResult, train

PREVIOUS = "previous"  # as model.start: the model of the stage before


@dataclass(frozen=True)
class TrainingStage:
    """One of the runs: its name, and a recipe like any other."""

    name: str
    recipe: Recipe

    def is_finished(self) -> bool:
        """Whether its folder holds all that this recipe asks for."""
        folder = hub.user_path(self.recipe.out)
        if not (folder / "result.json").is_file() or not (folder / RECIPE).is_file():
            return False
        before = read_recipe(folder / RECIPE)
        return not self.recipe.extends(before) and not self.recipe.differences(before)


def has_stages(path: Path) -> bool:
    return "stages" in read_table(path)


def read_stages(
    source: str | os.PathLike[str] | Mapping[str, Any], overrides: Iterable[str] = ()
) -> list[TrainingStage]:
    """The stages that will run, in order."""
    name = "the recipe" if isinstance(source, Mapping) else os.fspath(source)
    table = read_table(source if isinstance(source, Mapping) else Path(source))
    stages = table.pop("stages", None)
    if not isinstance(stages, dict) or not stages or not all(isinstance(stage, dict) for stage in stages.values()):
        raise ConfigError(f"{name}: stages must be a table of recipes, one for each stage.")
    for setting in overrides:
        _override(table, stages, setting)
    out, start = table.pop("out", ""), table.pop("start", None)
    if not out:
        raise ConfigError(f"{name}: out is missing. Say which folder the runs go to: out=runs/mine.")
    merged = {stage: _merged(table, own) | {"out": str(Path(out) / stage)} for stage, own in stages.items()}
    last = list(merged)[-1]
    runs = {stage: one for stage, one in merged.items() if stage == last or _data_of(one) is not None}
    found, before = [], start
    for stage, one in runs.items():
        model = one.setdefault("model", {})
        if isinstance(model, dict) and model.get("start") == PREVIOUS:
            if before is None:
                raise ConfigError(f"{name}: {stage} goes on from a model, and there is none before it: set start=….")
            model["start"] = before
        found.append(TrainingStage(stage, read_recipe(one)))
        before = str(Path(one["out"]) / "model")
    return found


def train_stages(
    stages: Iterable[TrainingStage],
    run: Callable[[TrainingStage], TrainingResult] | None = None,
    watchers: Iterable[Watcher] = (),
    on_skip: Callable[[TrainingStage], object] = lambda stage: None,
) -> TrainingResult | None:
    """Run those that are not finished; the result of the last that ran, which may have been stopped. None: all were.

    run       runs one of them; by default `train` with these watchers
    on_skip   hears of those that are finished
    """
    stages, result = list(stages), None
    for stage in stages:
        _check_data(stage)  # a column that is missing in the last stage is found before the first
    for stage in stages:
        if stage.is_finished():
            on_skip(stage)
            continue
        result = train(stage.recipe, watchers=watchers) if run is None else run(stage)
        if not result.finished:
            break
    return result


def _check_data(stage: TrainingStage) -> None:
    recipe = stage.recipe
    kind = objective_class(recipe.objective["name"])
    for source in open_sources(recipe.data, kept_sources(hub.user_path(recipe.out))).values():
        if not isinstance(source, GoneSource):
            check_columns(kind.columns, next(iter(source.records())))


def _override(common: dict[str, Any], stages: dict[str, Any], setting: str) -> None:
    """`key=value` for all stages, or, with a stage's name before the key, for that one."""
    key = setting.partition("=")[0].strip()
    first, _, rest = key.partition(".")
    if first in stages and rest:
        set_value(stages[first], setting.strip().removeprefix(f"{first}."))
        return
    owners = [stage for stage, own in stages.items() if _says(own, key.split("."))]
    if owners:
        raise ConfigError(
            f"{setting}: every stage has its own {key}. Say which: {', '.join(f'{stage}.{key}=…' for stage in owners)}."
        )
    if key == "start":
        value = setting.partition("=")[2].strip()
        common["start"] = None if value in ("", "null", "~") else value
        return
    try:
        set_value(common, setting)
    except ConfigError as error:
        hint = did_you_mean(first, stages)
        raise ConfigError(f"{error}{hint}" if hint else str(error)) from None


def _says(table: Any, path: list[str]) -> bool:
    """Whether a table sets this key."""
    for part in path:
        if not isinstance(table, dict) or table.get(part) is None:
            return False
        table = table[part]
    return True


def _merged(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables; where they differ, the stage's own word counts."""
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in common.items()}
    for key, value in own.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _data_of(table: Mapping[str, Any]) -> Any:
    data = table.get("data")
    return data.get("train") if isinstance(data, Mapping) else None
