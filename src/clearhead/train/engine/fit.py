"""Train any model on records in memory, in one call: no recipe, no folder, and no text unless the objective's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from clearhead.models import Model
from clearhead.train.data import Blocks, Loader, Order, RecordSource, StreamOrder, Streams, Table, prepare, rows_for
from clearhead.train.engine.evaluation import Evaluation
from clearhead.train.engine.log import Watcher
from clearhead.train.engine.loop import Loop, LoopOptions
from clearhead.train.engine.optim import optimizer as make_optimizer
from clearhead.train.engine.schedules import schedule as make_schedule
from clearhead.train.engine.world import World
from clearhead.train.objectives.base import Objective


@dataclass(frozen=True)
class FitResult:
    """How it went; the model itself has learnt in place."""

    losses: list[float]  # of every step
    metrics: dict[str, float]  # of the held-out records, at the end


def fit(
    model: Model,
    objective: Objective,
    records: Iterable[Mapping[str, Any]],
    *,
    steps: int,
    valid: Iterable[Mapping[str, Any]] = (),
    batch_size: int = 8,
    optimizer: str = "adamw",
    lr: float = 1e-3,
    weight_decay: float = 0.01,
    max_grad_norm: float | None = 1.0,
    schedule: str = "constant",
    warmup: float = 0,
    seed: int = 1,
    watchers: Iterable[Watcher] = (),
) -> FitResult:
    """So many steps on these records, where the model is. The rest is as in a run: same steps, same draws.

    valid      records to measure on when it is done
    watchers   hear every event (train/engine/log.py)
    """
    parts = {"train": RecordSource(records), "valid": RecordSource(valid)}
    if not parts["valid"].list:
        del parts["valid"]
    if objective.learns_labels:
        objective.learn_labels(parts["train"].records())
    module = objective.training_module(model)
    world = World(model.device)
    opt = make_optimizer(module, optimizer, lr=lr, weight_decay=weight_decay)
    lr_factor = make_schedule(schedule, steps, warmup)
    losses: list[float] = []

    def before(step: int) -> float:
        factor = lr_factor(step) * orders["train"].rate(step)
        opt.scale_lr(factor)
        return lr * factor

    def remember(event: dict[str, Any]) -> None:
        if event["event"] == "step":
            losses.append(event["loss"])

    with TemporaryDirectory() as folder:
        tables = {part: prepare(source, objective, folder) for part, source in parts.items()}
        objective.training_data = tables["train"]
        examples = {part: _examples(table, objective, part, batch_size, seed) for part, table in tables.items()}
        orders = {part: _order(some, part, batch_size, seed) for part, some in examples.items()}
        options = LoopOptions(steps, seed, max_grad_norm, log_every=1)
        with Loader(examples["train"], objective, orders["train"], seed=seed, device=world.device) as loader:
            loop = Loop(module, objective, loader, opt, options, None, world, before)
            loop.watchers = [remember, *watchers]
            loop.run()
        module.eval()
        evaluation = Evaluation(module, objective, examples, orders, world, seed)
        metrics = evaluation.metrics("valid") if "valid" in parts else {}
    return FitResult(losses, metrics)


def _examples(table: Table, objective: Objective, part: str, batch_size: int, seed: int) -> Table | Blocks | Streams:
    if objective.streams:
        if part != "train":
            return Streams(table, rows_for(table, batch_size, objective.length), objective.length)
        return Streams(table, batch_size, objective.length, seed=seed, jitter=objective.jitter)
    if not objective.blocks:
        return table
    return Blocks(table, objective.block_length, keep_last=part != "train")


def _order(examples: Table | Blocks | Streams, part: str, batch_size: int, seed: int) -> Order:
    if isinstance(examples, Streams):
        return StreamOrder(examples)
    return Order(len(examples), batch_size=batch_size, seed=seed, shuffle=part == "train")
