"""One training run: the parts are made in order, the loop runs, and the best weights are exported."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from clearhead import hub
from clearhead.errors import CheckpointError, TrainingStopped
from clearhead.hub.adapter import unnamed_matrix
from clearhead.nn.fast import cpu_kernels
from clearhead.train.data import Source
from clearhead.train.engine.checkpoints import Progress
from clearhead.train.engine.log import Log, Watcher, tensorboard
from clearhead.train.engine.loop import Loop
from clearhead.train.engine.memory_saving import explain_out_of_memory
from clearhead.train.engine.world import World, is_distributed, join_world
from clearhead.train.objectives import Objective, objective_class, typed_options
from clearhead.train.recipe import Recipe
from clearhead.train.recipe_files import read_recipe
from clearhead.train.run.assembly import RunParts, assemble
from clearhead.train.run.checks import check_distribution, check_run, shared_files
from clearhead.train.run.data import prepare_data
from clearhead.train.run.embeddings import start_from
from clearhead.train.run.export import finish
from clearhead.train.run.folder import check_same_recipe, has_begun, locked, remember_recipe
from clearhead.train.run.inputs import open_inputs
from clearhead.train.run.kept_sources import GoneSource, check_unchanged, keep_sources, kept_labels, notes_on_gone
from clearhead.train.run.model import make_model
from clearhead.train.run.tokenizer import objective_for, stand_in, train_or_load


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended."""

    folder: Path
    finished: bool  # False: somebody asked it to stop, and the same command goes on
    step: int
    metrics: dict[str, float]  # of held-out data, at the best step
    test: dict[str, float]  # of the test data, where there is any

    @property
    def model(self) -> Path:
        return self.folder / "model"


def train(
    recipe: Recipe | str | os.PathLike[str] | Mapping[str, Any],
    overrides: Iterable[str] = (),
    watchers: Iterable[Watcher] = (),
) -> TrainingResult:
    """Train as a recipe says. A run that was stopped goes on where it was.

    watchers   hear every event of the run (train/engine/log.py)
    """
    source = asdict(recipe) if isinstance(recipe, Recipe) else recipe
    recipe = read_recipe(source if isinstance(source, Mapping) else Path(source), overrides)
    folder = hub.user_path(recipe.out)
    if is_distributed():
        check_distribution(recipe)
    device = "cpu" if objective_class(recipe.objective["name"]).moves_weights else recipe.device
    bf16 = None if recipe.precision is None else recipe.precision == "bf16"
    with join_world(device, sharded=recipe.distribute == "fsdp", bf16=bf16) as world:
        return _train(recipe, folder, world, list(watchers))


def _train(original: Recipe, folder: Path, world: World, watchers: list[Watcher]) -> TrainingResult:
    # What is wrong is found first, before anything is written, a lock included.
    name, options = original.objective["name"], {k: v for k, v in original.objective.items() if k != "name"}
    kind = objective_class(name)
    recipe = replace(original, objective={"name": name} | typed_options(kind, options))
    inputs = open_inputs(recipe, folder)
    check_run(recipe, kind, inputs)
    tokenizer = inputs.tokenizer or stand_in(recipe.tokenizer, kind)
    objective = objective_for(recipe, inputs, tokenizer)  # options that cannot be are found now
    check_same_recipe(original, folder, kind)
    if has_begun(folder):
        check_unchanged(folder, inputs.sources)

    with locked(folder, world), explain_out_of_memory():
        remember_recipe(original, folder, kind, world)
        if recipe.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        if world.device.type == "cpu":
            cpu_kernels.load()  # now, and not when a sample is written: frozen layers round otherwise after it
        if inputs.tokenizer is None:
            tokenizer = train_or_load(recipe.tokenizer, kind, inputs.sources["train"], folder, world)
        elif recipe.tokenizer.add_words:
            tokenizer = train_or_load(recipe.tokenizer, kind, inputs.sources["train"], folder, world, inputs.tokenizer)
        if tokenizer is not inputs.tokenizer:
            objective = objective_for(recipe, inputs, tokenizer)
        if objective.learns_labels:
            _learn_labels(objective, inputs.sources["train"], folder)
        if recipe.batch.size is not None:
            objective.check_rows(recipe.batch.size // (recipe.batch.gradient_accumulation_steps * world.size))
        data = prepare_data(recipe, inputs.sources, objective, folder, world)
        if world.is_main:
            keep_sources(folder, inputs.sources, objective)
        torch.manual_seed(recipe.seed)
        model = make_model(recipe.model, objective, inputs.start, len(tokenizer.target), world.init_device)
        begins = [] if inputs.embeddings is None else [start_from(model, inputs.embeddings, tokenizer)]
        parts = assemble(recipe, folder, world, objective, data, model)
        notes = (
            begins
            + notes_on_gone(inputs.sources)
            + shared_files(inputs.sources)
            + objective.data_notes(data.tables["train"])
            + _notes(parts)
        )
        notes += _restore(parts)
        parts.check_evaluation()
        return _run(parts, inputs.sources, notes, watchers if world.is_main else [])


def _learn_labels(objective: Objective, source: Source, folder: Path) -> None:
    if isinstance(source, GoneSource):
        objective.learned_labels = kept_labels(folder)
    else:
        objective.learn_labels(source.records())


def _notes(parts: RunParts) -> list[str]:
    """What a person should know before the first step."""
    notes, warmup = [], parts.recipe.schedule.warmup or 0
    if warmup >= parts.steps > 1:
        notes.append(f"The rate rises to the end: schedule.warmup is {warmup:g}, the run {parts.steps} steps long.")
    if parts.recipe.lora is not None and (matrix := unnamed_matrix(parts.model)) is not None:
        notes.append(f"There will be a whole model and no adapter/: PEFT's format has no name for {matrix}.")
    return notes


def _restore(parts: RunParts) -> list[str]:
    """Go on from the newest checkpoint, where there is one; what was wrong with newer ones."""
    loop, checkpoints = parts.loop, parts.loop.checkpoints
    assert checkpoints is not None
    loop.progress.data = parts.data.fingerprint()
    newest = checkpoints.newest()
    if newest is None:
        return []
    progress, tensors, problems = newest
    if progress.data != loop.progress.data:
        raise CheckpointError(
            f"The data has changed since the run in {parts.folder} began. Begin anew with another out=."
        )
    loop.restore(progress, tensors)
    return problems + _notes_on_length(parts, progress)


def _notes_on_length(parts: RunParts, progress: Progress) -> list[str]:
    """Of a run that is to take more steps than when it was stopped, or ended."""
    if parts.steps == progress.steps:
        return []
    schedule = parts.recipe.schedule.name
    note = f"The run goes on from step {progress.step:,} to step {parts.steps:,}; it was to end at {progress.steps:,}."
    if schedule != "constant":
        note += f" The learning rate is that of a {schedule} schedule over all {parts.steps:,} steps from here on."
    return [note]


def _run(parts: RunParts, sources: Mapping[str, Source], notes: list[str], watchers: list[Watcher]) -> TrainingResult:
    """The loop, and what comes after it; all of it is told to the watchers."""
    loop, folder = parts.loop, parts.folder

    with ExitStack() as stack:
        if parts.world.is_main:
            watchers = watchers + _own_watchers(loop, folder, stack)
        loop.watchers = watchers

        def emit(kind: str, **facts: Any) -> None:
            for watch in watchers:
                watch({"event": kind, "step": loop.progress.step, **facts})

        emit("begin", **parts.facts())
        for note in notes:
            emit("note", text=note)
        try:
            with parts.loader:
                finished = loop.run()
        except TrainingStopped as error:
            emit("end", finished=False, text=str(error))
            raise
        if finished and loop.progress.step < parts.steps:
            patience = f"evaluation.patience={parts.recipe.evaluation.patience}"
            best = f"no evaluation was better than that of step {loop.progress.best_step}"
            emit("note", text=f"Stopped early: {best} ({patience}). A greater one goes on.")
        metrics, test = finish(parts, sources) if finished else ({}, {})
        emit("end", finished=finished, metrics=metrics, test=test)
    return TrainingResult(folder, finished, loop.progress.step, metrics, test)


def _own_watchers(loop: Loop, folder: Path, stack: ExitStack) -> list[Watcher]:
    """The log of the run, from where its checkpoint was written; and TensorBoard, where it is installed."""
    log = Log(folder / "log.jsonl", loop.progress.log_bytes)
    stack.callback(log.close)
    loop.log_bytes = lambda: log.bytes
    board = tensorboard(folder / "tensorboard", loop.progress.step)
    return [log] + ([board] if board is not None else [])
