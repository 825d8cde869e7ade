"""A saved model on new test data: the metrics of the recipe it was trained by, as at the end of its training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from clearhead import hub, zoo
from clearhead.errors import InputError
from clearhead.hub.run_folder import RECIPE, run_of
from clearhead.models import Model
from clearhead.models.recurrent import RecurrentModel
from clearhead.pipeline import Pipeline, TextPipeline, load
from clearhead.train.data import FileSource, RecordSource, Source
from clearhead.train.engine.evaluation import Evaluation
from clearhead.train.engine.world import World
from clearhead.train.objectives import Objective, make_objective, objective_class, options_of, typed_options
from clearhead.train.recipe import DataRecipe, Recipe
from clearhead.train.recipe_files import read_recipe
from clearhead.train.run.checks import check_test
from clearhead.train.run.data import prepare_data
from clearhead.train.run.inputs import open_test
from clearhead.zoo.recipes import find_recipe

# What a model without a recipe is measured by: its head says what it was made for.
OBJECTIVE_OF = {
    "causal-lm": "causal-lm",
    "masked-lm": "masked-lm",
    "bidirectional-lm": "bidirectional-lm",
    "pretraining": "masked-lm",
    "permutation-lm": "permutation-lm",
    "seq2seq-lm": "seq2seq",
    "sequence-classification": "classification",
    "token-classification": "tagging",
    "question-answering": "question-answering",
    "multiple-choice": "multiple-choice",
}
# what it learnt from is of no interest any more, and may be gone
UNREAD = ("data.train=-", "data.valid=-", "data.validation_fraction=0")
LENGTH, BATCH_SIZE = 512, 16  # where no recipe says them
Watch = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is


@dataclass(frozen=True)
class EvaluationResult:
    """What was measured, of which model, and on how much."""

    model: str
    objective: str
    examples: int
    metrics: dict[str, float]


def evaluate(
    model: str | os.PathLike[str] | Pipeline,
    test: Any,
    *,
    recipe: Recipe | str | os.PathLike[str] | None = None,
    overrides: Iterable[str] = (),
    device: str | None = None,
    watch: Watch | None = None,
) -> EvaluationResult:
    """Measure a model on test data, by the numbers that training would have told at its end.

    model       a run's folder, any other model by its name, or one that is loaded
    test        as `data.test` in a recipe: a path, a list of paths, a table; or a list of records
    recipe      how it is read and measured (objective, columns, length, batches). By default that of the run or of the
                shipped model; without one, what its head is made for
    overrides   `key=value` on top of the recipe, such as data.columns.label=category
    watch       hears how far it is
    """
    settings = list(overrides)
    pipe: Any = model if isinstance(model, Pipeline) else load(model, device=device)
    if recipe is None:
        recipe = _own_recipe(pipe.name)
    if recipe is None:
        resolved = read_recipe(_plain_recipe(pipe), settings)
    else:
        source_recipe = asdict(recipe) if isinstance(recipe, Recipe) else find_recipe(os.fspath(recipe))
        resolved = read_recipe(source_recipe, [*UNREAD, *settings])
    name, options = resolved.objective["name"], {k: v for k, v in resolved.objective.items() if k != "name"}
    kind = objective_class(name)
    check_test(resolved, kind, has_test=True)
    pipe = _with_head(pipe, kind)
    objective = make_objective(name, pipe.codec, _length(resolved, pipe.model), **_options(kind, options, pipe.model))
    source = _source(test, resolved, objective, columns_given=any(s.startswith("data.columns") for s in settings))
    objective.learn_labels(source.records())  # the model's own are given already; others look which columns there are
    objective.check_labels(source.records(), source.name)
    with TemporaryDirectory() as folder:
        return _measured(resolved, pipe, objective, source, Path(folder), watch or (lambda *_: None))


def _own_recipe(name: str) -> Path | None:
    """The recipe that a model was trained by, where it is known: its run's, or the shipped model's own."""
    card = zoo.cards().get(name)
    if card is not None and card.folder is not None:
        return card.folder / RECIPE
    run = run_of(hub.user_path(name)) if name else None
    return run / RECIPE if run is not None else None


def _plain_recipe(pipe: Pipeline) -> dict[str, Any]:
    task = pipe.model.task
    if task not in OBJECTIVE_OF:
        raise InputError(
            f"{pipe.title} is made for {task}, and there are several ways to measure that. Name a recipe, such as "
            "--recipe sentence-embeddings."
        )
    streams = isinstance(pipe.model, RecurrentModel) and task == "causal-lm"  # read on from window to window
    # only the objective, the data and the batches of it will be read
    return {
        "objective": "recurrent-lm" if streams else OBJECTIVE_OF[task],
        "out": "-",
        "data": {"train": "-"},
        "model": {"start": "-"},
        "batch": {"size": BATCH_SIZE, "length": min(LENGTH, pipe.model.max_length or LENGTH)},
        "steps": 1,
    }


def _with_head(pipe: Any, kind: type[Objective]) -> Any:
    """The model with the head that the objective measures, which it must have learnt."""
    task = pipe.model.task
    if kind.not_saved:
        raise InputError(
            f"{kind.name} is measured together with {kind.not_saved}, which a saved model does not have any more. Name "
            "a recipe for what the model is used for."
        )
    if task == kind.task:
        return pipe
    if (task, kind.task) == ("pretraining", "masked-lm") and pipe.name:
        return load(pipe.name, task=kind.task, device=pipe.model.device)
    own = OBJECTIVE_OF.get(task)
    raise InputError(
        f"{pipe.title} is made for {task}, and {kind.name} measures {kind.task}."
        + (f" Its own objective is {own}." if own else "")
    )


def _length(recipe: Recipe, model: Model) -> int:
    return min(recipe.batch.length, model.max_length or recipe.batch.length)


def _options(kind: type[Objective], options: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """Those of the recipe, with what the model itself has the last word on: its labels, its tokenizers."""
    known, config = options_of(kind), model.config
    options = {key: value for key, value in options.items() if key != "source_tokenizer"}
    if "problem_type" in known and "problem_type" not in options and getattr(config, "problem_type", None):
        options["problem_type"] = config.problem_type
    if "labels" in known and options.get("problem_type") != "regression":
        options["labels"] = list(config.id2label.values())
    return typed_options(kind, options)


def _source(test: Any, recipe: Recipe, objective: Objective, columns_given: bool) -> Source:
    """columns_given: somebody said of this data which columns are meant"""
    if isinstance(test, list | tuple) and test and all(isinstance(record, Mapping) for record in test):
        return RecordSource(test)
    data = replace(recipe.data, test=test)
    if data.columns and not columns_given and _has_its_own_names(data, objective):
        data = replace(data, columns={})
    return open_test(data)


def _has_its_own_names(data: DataRecipe, objective: Objective) -> bool:
    """Whether new data calls its columns as the objective does, where the recipe's columns (those of the data that it
    was trained on) are positions or are not there."""
    plain = open_test(replace(data, columns={}))
    if not isinstance(plain, FileSource) or plain.format in ("text", "conll"):
        return False
    _, first = next(plain.rows(lambda _: None), ("", []))
    if not isinstance(first, dict) or not set(objective.columns) <= set(first):
        return False
    return any(isinstance(theirs, int) or theirs not in first for theirs in data.columns.values())


def _measured(
    recipe: Recipe, pipe: TextPipeline, objective: Objective, source: Source, folder: Path, watch: Watch
) -> EvaluationResult:
    recipe = replace(recipe, data=replace(recipe.data, cache=None))
    world, head = World(pipe.model.device), pipe.model.language_head
    data = prepare_data(recipe, {"test": source}, objective, folder, world)
    objective.training_data = data.tables["test"]
    objective.watch = lambda done, total: watch("Answering", done, total)
    smoothing = head.smoothing if head is not None else 0.0
    learning = [p for p in pipe.model.parameters() if p.requires_grad]
    module = objective.training_module(pipe.model)
    was_training = pipe.model.training
    try:
        precision = recipe.precision or ("bf16" if world.device.type == "cuda" else "fp32")
        evaluation = Evaluation(
            module.eval(), objective, data.examples, data.orders, world, recipe.seed,
            dtype=torch.bfloat16 if precision == "bf16" else None,
        )  # fmt: skip
        metrics = evaluation.metrics("test", watch=lambda done, total: watch("Measuring", done, total))
        metrics |= objective.evaluate_test(pipe, source.records(), **recipe.evaluation.test_options)
    finally:  # the model is the caller's
        pipe.model.train(was_training)
        for p in learning:
            p.requires_grad_(True)
        if head is not None:
            head.smoothing = smoothing
    return EvaluationResult(pipe.name, objective.name, len(data.examples["test"]), metrics)
