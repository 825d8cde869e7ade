"""The training loop: read a batch, move the weights, look at held-out data now and then, keep what is needed to go on.

A step depends on the weights, the optimiser's state and the step's number, and on nothing else: batches, noise and
dropout are drawn from (seed, step). That is why a run that was killed ends with the same bits as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import TrainingStopped
from clearhead.train.data.types import Batch
from clearhead.train.engine.checkpoints import Checkpoints, Progress
from clearhead.train.engine.divergence import check_losses, finite, training_stopped
from clearhead.train.engine.ema import EMA
from clearhead.train.engine.interrupts import StopRequest
from clearhead.train.engine.log import Event, Watcher
from clearhead.train.engine.world import World
from clearhead.train.objectives.base import Objective

CHECKPOINT_FRACTION = 0.02  # of the time may go into checkpoints, where nobody says how often they are written,
MIN_SECONDS, MAX_SECONDS = 60.0, 600.0  # but none sooner than this after another, and one after this at the latest


class Batches(Protocol):
    """What the loop reads (train/data/loader.py)."""

    def at(self, step: int) -> list[Batch]: ...


class LoopOptimizer(Protocol):
    """What the loop asks of an optimiser (train/engine/optim.py)."""

    def step(self) -> None: ...
    def zero_grad(self) -> None: ...
    def state_tensors(self) -> dict[str, Tensor]: ...
    def state_numbers(self) -> dict[str, Any]: ...
    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None: ...


@dataclass
class LoopOptions:
    """The numbers of a run."""

    steps: int
    seed: int = 1
    max_grad_norm: float | None = 1.0
    dtype: torch.dtype | None = None  # of autocast; None: the weights' own
    evaluate_every: int | None = None
    metric: str | None = None
    patience: int | None = None  # early stopping: so many evaluations without a better one
    checkpoint_every: int | None = None
    checkpoint_minutes: float | None = None
    log_every: int = 10
    flops_per_unit: float = 0.0
    peak_flops: float = 0.0  # of all devices together, per second


@dataclass
class Loop:
    """
    module      what is trained (objective.training_module(model)), wrapped for several devices where there are any
    prepare     called with the step before the weights move: sets learning rates, freezes and unfreezes
    checkpoints None: nothing is kept
    evaluate    measures held-out data; None: there is none
    sample      what the model makes of a prompt, to be read, in the main process; None: none is wanted
    """

    has_gradients: ClassVar[bool] = True

    module: nn.Module
    objective: Objective
    batches: Batches
    optimizer: LoopOptimizer
    options: LoopOptions
    checkpoints: Checkpoints | None
    world: World
    prepare: Callable[[int], float]
    evaluate: Callable[[], dict[str, float]] | None = None
    sample: Callable[[], str | None] | None = None
    ema: EMA | None = None
    watchers: list[Watcher] = field(default_factory=list)
    log_bytes: Callable[[], int] = lambda: 0
    progress: Progress = field(default_factory=Progress)
    best: dict[str, Tensor] | None = None  # the weights that were best on held-out data, as they were measured

    def __post_init__(self) -> None:
        self._pending: list[Tensor] = []  # losses and gradient norm of steps not looked at yet, on the device
        self._lr = 0.0
        self._stop = StopRequest()
        self._start_clock()
        self._saved_at = time.perf_counter()
        self._saved_step = -1
        self._save_seconds = 0.0  # how long the last checkpoint took

    # ---- going on

    def restore(self, progress: Progress, tensors: dict[str, dict[str, Tensor]]) -> None:
        """Put the weights and all else back as a checkpoint has them."""
        self.world.load_weights(self.module, tensors["weights"])
        self.optimizer.load_state(tensors["optimizer"], progress.optimizer)
        if self.ema is not None:
            self.ema.load_state(tensors["ema"], progress.optimizer.get("ema", {}))
        self.objective.load_state(tensors.get("carried", {}))
        self.best = tensors.get("best", tensors["weights"] if progress.best_step is not None else None)
        self.progress = progress
        self._saved_step = progress.step

    def load_best(self) -> None:
        """The weights of the best evaluation; where there was none, the last ones, or their average."""
        if self.best is not None:
            self.world.load_weights(self.module, self.best)
        elif self.ema is not None:
            self.ema.apply()

    def _start_clock(self) -> None:
        self._mark = (time.perf_counter(), self.progress.units, self.progress.step)

    def run(self) -> bool:
        """Train until all steps are done, patience is at its end, or somebody asks to stop; True if it is finished."""
        options = self.options
        if options.patience is not None and self.progress.evaluations_since_best >= options.patience:
            return True
        self._start_clock()
        with self._stop.listening():
            while self.progress.step < options.steps:
                self._step(self.progress.step)
                self.progress.step += 1
                done = self.progress.step
                last = done == options.steps
                if done % options.log_every == 0 or last or done == 1:
                    self._log_steps()
                out_of_patience = False
                every = options.evaluate_every
                if self.evaluate is not None and (last or (every and done % every == 0)):
                    self._log_steps()
                    out_of_patience = self._evaluate()
                stop = self.world.any(self._stop.requested)
                if (last or out_of_patience or stop or self._checkpoint_is_due()) and self._saved_step != done:
                    self.save()
                if out_of_patience:
                    return True
                if stop and not last:
                    return False
        return True

    def save(self) -> None:
        """Write a checkpoint. The best weights travel in it, unless they are its own."""
        self._log_steps()  # what is not a number is never written down
        start = time.perf_counter()
        tensors = {"weights": self.world.weights(self.module), "optimizer": self.optimizer.state_tensors()}
        if self.world.any(not finite(tensors["weights"])):
            raise training_stopped(self.progress.step, "the weights are not numbers any more", self.checkpoints)
        if self.checkpoints is None:
            return
        self.progress.optimizer = self.optimizer.state_numbers()
        if self.ema is not None:
            tensors["ema"] = self.ema.state_tensors()
            self.progress.optimizer["ema"] = self.ema.state_numbers()
        if self.best is not None and (self.progress.best_step != self.progress.step or self.ema is not None):
            tensors["best"] = self.best
        if carried := self.objective.state_tensors():
            tensors["carried"] = self.world.merged_rows(carried, self.objective.own_rows())
        self.progress.log_bytes, self.progress.steps = self.log_bytes(), self.options.steps
        self.checkpoints.save(self.progress, tensors)
        self._saved_at, self._saved_step = time.perf_counter(), self.progress.step
        self._save_seconds = self._saved_at - start

    def _checkpoint_is_due(self) -> bool:
        every, minutes = self.options.checkpoint_every, self.options.checkpoint_minutes
        if self.progress.exploded_steps:  # an exploding loss must not push the good ones out
            return False
        by_count = every is not None and self.progress.step % every == 0
        seconds = math.inf if minutes is None else 60 * minutes
        if every is None and minutes is None:
            seconds = min(max(self._save_seconds / CHECKPOINT_FRACTION, MIN_SECONDS), MAX_SECONDS)
        return by_count or self.world.any(time.perf_counter() - self._saved_at > seconds)

    # ---- one step

    def _step(self, step: int) -> None:
        self.module.train()
        torch.manual_seed(seed_of(self.options.seed, step, self.world.rank))
        micro_batches = self.batches.at(step)
        self._lr = self.prepare(step)
        micro_batches = [batch.to(self.world.device) for batch in micro_batches]
        with self.world.autocast(self.options.dtype):
            self.objective.look_ahead(self.world.inner(self.module), micro_batches, self.world.gather_rows)
        weights = self.objective.loss_weights
        counts = self.world.sum({name: sum(b.counts.get(name, 0) for b in micro_batches) for name in weights})
        sums: dict[str, Tensor] = {}  # of each term over the micro-batches, for the log
        for n, batch in enumerate(micro_batches):
            is_last = n == len(micro_batches) - 1  # gradients are exchanged after the last only
            with nullcontext() if is_last else self.world.no_sync(self.module):
                with self.world.autocast(self.options.dtype):
                    losses = self.world.losses(self.module, self.objective, batch)
                total: Tensor | None = None
                for name, loss in losses.items():
                    scaled = loss * (batch.counts[name] / max(counts[name], 1))
                    # a mean of none is no number
                    logged = scaled.detach() if batch.counts[name] else torch.zeros_like(scaled)
                    sums[name] = sums.get(name, 0) + logged
                    weighted = scaled * weights[name]
                    total = weighted if total is None else total + weighted
                assert total is not None
                self.world.backward(total)
        max_norm = self.options.max_grad_norm
        norm = self.world.clip_grad_norm(self.module, math.inf if max_norm is None else max_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update()
        self._pending.append(torch.stack([*(sums[name].float() for name in weights), norm.float()]))
        self.progress.units += int(self.world.sum({"units": sum(b.units for b in micro_batches)})["units"])

    # ---- what is logged

    def _log_steps(self) -> None:
        """Look at the steps since the last look: the one place where the loop waits for the device."""
        if not self._pending:
            return
        weights = self.objective.loss_weights
        table = torch.stack(self._pending).double().cpu().numpy()  # (steps, terms and the gradient norm)
        self._pending = []
        losses, norms = table[:, :-1], table[:, -1]
        summed = self.world.sum({str(n): value for n, value in enumerate(losses.flatten().tolist())})
        terms = np.array(list(summed.values())).reshape(losses.shape)
        totals = terms @ np.array(list(weights.values()))
        check_losses(totals.tolist(), norms.tolist(), self.progress, self.checkpoints)
        now = time.perf_counter()
        last_time, units, step = self._mark
        elapsed = max(now - last_time, 1e-9)
        self.progress.seconds += elapsed
        speed = (self.progress.units - units) / elapsed
        self._mark = (now, self.progress.units, self.progress.step)
        event: Event = {
            "event": "step",
            "step": self.progress.step,
            "steps": self.options.steps,
            "loss": float(totals.mean()),
            "lr": self._lr,
            **({"grad_norm": float(norms.mean())} if self.has_gradients else {}),
            "units": self.progress.units,
            "units_per_second": speed,
            "seconds": self.progress.seconds,
            "eta": (self.options.steps - self.progress.step) * elapsed / max(self.progress.step - step, 1),
        }
        if len(weights) > 1:
            event["terms"] = {name: float(v) for name, v in zip(weights, terms.mean(0), strict=True)}
        if self.options.peak_flops:
            event["mfu"] = speed * self.options.flops_per_unit / self.options.peak_flops
        self._emit(event)

    def _evaluate(self) -> bool:
        """Measure, remember the best; True where patience is at its end."""
        assert self.evaluate is not None
        start, progress, patience = time.perf_counter(), self.progress, self.options.patience
        self.module.eval()
        torch.manual_seed(seed_of(self.options.seed, progress.step, self.world.rank))
        averaged = self.ema.swap() if self.ema is not None else nullcontext()
        with torch.no_grad(), averaged, self.world.autocast(self.options.dtype):
            metrics = self.evaluate()
            text = self.sample() if self.sample is not None else None
            better = self._is_better(metrics)
            if better:
                self.best = {name: snapshot(tensor) for name, tensor in self.world.weights(self.module).items()}
        progress.evaluations_since_best = 0 if better else progress.evaluations_since_best + 1
        self._emit({"event": "evaluation", "step": progress.step, "metrics": metrics, "best": better})
        if text is not None:
            self._emit({"event": "sample", "step": progress.step, "text": text})
        last_time, units, step = self._mark  # the clock of training stood still
        self._mark = (last_time + time.perf_counter() - start, units, step)
        return patience is not None and progress.evaluations_since_best >= patience

    def _is_better(self, metrics: dict[str, float]) -> bool:
        """Whether this is the best evaluation so far, which is then remembered."""
        metric = self.options.metric or next(iter(metrics))
        if metric not in metrics:
            raise TrainingStopped(
                f"There is no measure {metric!r} here; evaluation.metric can be {', '.join(metrics)}."
            )
        value, best = metrics[metric], self.progress.best
        higher = metric in self.objective.higher_is_better
        if self.ema is not None:
            self.ema.observe(value, higher)
        better = not math.isnan(value) and (best is None or (value > best if higher else value < best))
        if better:
            self.progress.best, self.progress.best_step = value, self.progress.step
        return better

    def _emit(self, event: Event) -> None:
        for watch in self.watchers:
            watch(event)


def snapshot(tensor: Tensor) -> Tensor:
    """A copy that training does not change: in ordinary memory, or where the shards are if it is sharded."""
    return tensor.detach().clone() if hasattr(tensor, "to_local") else tensor.detach().to("cpu", copy=True)


def seed_of(*parts: int) -> int:
    """One number from several: the draws of a step are its own."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)
