"""The training loop: read a batch, move the weights, look at held-out data now and then, keep what is needed to go on.

A step depends on the weights, the optimiser's state and the step's number, and on nothing else: batches, noise and
dropout are drawn from (seed, step). That is why a run that was killed ends with the same bits as one that was not.
"""

from __future__ import annotations

import math
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import ClearheadError
from clearhead.train.engine.ema import EMA
from clearhead.train.engine.log import Event, Watcher
from clearhead.train.engine.state import Checkpoints, Progress
from clearhead.train.engine.world import World
from clearhead.train.objectives.base import Batch, Objective

EXPLODED = 4.0  # so many times the first loss is too much,
FOR_STEPS = 5  # if it stays there for so many steps: a single batch may be odd
WRITING = 0.02  # of the time may go into checkpoints, where nobody says how often they are written,
SELDOM, OFTEN = 600.0, 60.0  # but there is one after so many seconds at the latest, and none sooner


class TrainingStopped(ClearheadError, RuntimeError):
    """Training cannot go on as it is. The message says what to change; the last good checkpoint is kept."""


class Batches(Protocol):
    """What the loop reads (train/data/loader.py)."""

    def at(self, step: int) -> list[Batch]: ...


class Optimizer(Protocol):
    def step(self) -> None: ...
    def zero_grad(self) -> None: ...
    def state_tensors(self) -> dict[str, Tensor]: ...
    def state_numbers(self) -> dict[str, Any]: ...
    def load_state(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None: ...


@dataclass
class Plan:
    """The numbers of a run."""

    steps: int
    seed: int = 1
    clip: float | None = 1.0
    dtype: torch.dtype | None = None  # of autocast; None: the weights' own
    evaluate_every: int | None = None
    metric: str | None = None
    patience: int | None = None
    checkpoint_every: int | None = None
    checkpoint_minutes: float | None = None
    log_every: int = 10
    flops_per_token: float = 0.0
    peak_flops: float = 0.0  # of all devices together


# Measures where more is better; of all others less is.
RISING = ("accuracy", "f1", "bleu", "exact", "pearson", "spearman", "precision", "recall")


def rises(metric: str) -> bool:
    return any(word in metric for word in RISING)


@dataclass
class Loop:
    """
    module      what is trained (objective.trained(model)), wrapped for several devices where there are any
    prepare     called with the step before the weights move: sets learning rates, freezes and unfreezes
    evaluate    measures held-out data; None: there is none
    sample      text that the model writes, to be read, in the process that leads; None: none is asked for
    """

    module: nn.Module
    objective: Objective
    batches: Batches
    optimizer: Optimizer
    plan: Plan
    checkpoints: Checkpoints
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
        self._pending: list[Tensor] = []  # losses and gradient of steps that were not looked at yet, on the device
        self._rate = 0.0
        self._asked_to_stop = False
        self._start_clock()
        self._saved = time.perf_counter()
        self._saved_step = -1
        self._writing = 0.0  # how long the last checkpoint took

    # ---- going on

    def restore(self, progress: Progress, tensors: dict[str, dict[str, Tensor]]) -> None:
        """Put the weights and all else back as a checkpoint has them."""
        self.world.load_weights(self.module, tensors["weights"])
        self.optimizer.load_state(tensors["optimizer"], progress.numbers)
        if self.ema is not None:
            self.ema.load_state(tensors["ema"], progress.numbers.get("ema", {}))
        self.best = tensors.get("best", tensors["weights"] if progress.best_step is not None else None)
        self.progress = progress
        self._saved_step = progress.step

    def take_best(self) -> None:
        """The weights of the best evaluation; where there was none, the last ones, or their average."""
        if self.best is not None:
            self.world.load_weights(self.module, self.best)
        elif self.ema is not None:
            self.ema.apply()

    def _start_clock(self) -> None:
        self._mark = (time.perf_counter(), self.progress.tokens, self.progress.step)

    def run(self) -> bool:
        """Train until the plan is done, patience is at its end, or somebody asks to stop; True if it is finished."""
        plan = self.plan
        if plan.patience is not None and self.progress.waited >= plan.patience:
            return True
        self._start_clock()
        with self._listening():
            while self.progress.step < plan.steps:
                self._step(self.progress.step)
                self.progress.step += 1
                done = self.progress.step
                last = done == plan.steps
                if done % plan.log_every == 0 or last or done == 1:
                    self._tell()
                stop = False
                if self.evaluate is not None and (last or (plan.evaluate_every and done % plan.evaluate_every == 0)):
                    self._tell()
                    stop = self._evaluated()
                asked = self.world.any(self._asked_to_stop)
                if (last or stop or asked or self._is_due()) and self._saved_step != done:
                    self.save()
                if stop:
                    return True
                if asked and not last:
                    return False
        return True

    def save(self) -> None:
        """Write a checkpoint. The best weights travel in it, unless they are its own."""
        self._tell()  # what is not a number is never written down
        began = time.perf_counter()
        tensors = {"weights": self.world.weights(self.module), "optimizer": self.optimizer.state_tensors()}
        self._check_weights(tensors["weights"])
        self.progress.numbers = self.optimizer.state_numbers()
        if self.ema is not None:
            tensors["ema"] = self.ema.state_tensors()
            self.progress.numbers["ema"] = self.ema.state_numbers()
        if self.best is not None and (self.progress.best_step != self.progress.step or self.ema is not None):
            tensors["best"] = self.best
        self.progress.log_bytes = self.log_bytes()
        self.checkpoints.save(self.progress, tensors)
        self._saved, self._saved_step = time.perf_counter(), self.progress.step
        self._writing = self._saved - began

    # ---- one step

    def _step(self, step: int) -> None:
        self.module.train()
        torch.manual_seed(seed_of(self.plan.seed, step, self.world.rank))
        parts = self.batches.at(step)
        self._rate = self.prepare(step)
        counts = self.world.sum({name: sum(b.counts.get(name, 0) for b in parts) for name in self.objective.factors})
        seen: dict[str, Tensor] = {}
        for n, batch in enumerate(parts):
            with self.world.joining(self.module, last=n == len(parts) - 1):
                with self._precision():
                    losses = self.world.losses(self.module, self.objective, batch.to(self.world.device))
                total: Tensor | None = None
                for name, loss in losses.items():
                    share = loss * (batch.counts[name] / max(counts[name], 1))
                    told = (
                        share.detach() if batch.counts[name] else torch.zeros_like(share)
                    )  # a mean of none is no number
                    seen[name] = seen.get(name, 0) + told
                    part = share * self.objective.factors[name]
                    total = part if total is None else total + part
                assert total is not None
                self.world.backward(total)
        clip = math.inf if self.plan.clip is None else self.plan.clip
        norm = self.world.clip(self.module, clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update()
        self._pending.append(torch.stack([*(seen[name].float() for name in self.objective.factors), norm.float()]))
        self.progress.tokens += int(self.world.sum({"tokens": sum(b.tokens for b in parts)})["tokens"])

    def _precision(self) -> AbstractContextManager[Any]:
        if self.plan.dtype is None:
            return nullcontext()
        return torch.autocast(self.world.device.type, self.plan.dtype)

    # ---- what is told

    def _tell(self) -> None:
        """Look at the steps since the last look: the one place where the loop waits for the device."""
        if not self._pending:
            return
        terms = list(self.objective.factors)
        table = torch.stack(self._pending).double().cpu().numpy()  # (steps, terms and the gradient's length)
        losses, norms = table[:, :-1], table[:, -1]
        whole = self.world.sum({str(n): value for n, value in enumerate(losses.flatten().tolist())})
        values = np.array(list(whole.values())).reshape(losses.shape)
        first = self.progress.step - len(self._pending) + 1
        totals = values @ np.array(list(self.objective.factors.values()))
        self._pending = []
        self._check(totals, norms, first)
        now = time.perf_counter()
        then, tokens, step = self._mark
        spent = max(now - then, 1e-9)
        self.progress.seconds += spent
        speed = (self.progress.tokens - tokens) / spent
        self._mark = (now, self.progress.tokens, self.progress.step)
        event: Event = {
            "event": "step",
            "step": self.progress.step,
            "steps": self.plan.steps,
            "loss": float(totals.mean()),
            "rate": self._rate,
            "gradient": float(norms.mean()),
            "tokens": self.progress.tokens,
            "tokens_per_second": speed,
            "seconds": self.progress.seconds,
            "left": (self.plan.steps - self.progress.step) * spent / max(self.progress.step - step, 1),
        }
        if len(terms) > 1:
            event["terms"] = {name: float(v) for name, v in zip(terms, values.mean(0), strict=True)}
        if self.plan.peak_flops:
            event["share_of_peak"] = speed * self.plan.flops_per_token / self.plan.peak_flops
        self._say(event)

    def _check(self, totals: np.ndarray, norms: np.ndarray, first: int) -> None:
        """Stop where a loss is not a number, or has been far above the first one for a while."""
        progress = self.progress
        for step, (loss, norm) in enumerate(zip(totals.tolist(), norms.tolist(), strict=True), first):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise self._stopped(step, f"the loss is not a number (loss {loss:.4g}, gradient {norm:.4g})")
            if progress.first_loss is None:
                progress.first_loss = loss
            limit = EXPLODED * abs(progress.first_loss) + 10.0
            progress.beyond = progress.beyond + 1 if loss > limit else 0
            if progress.beyond == FOR_STEPS:
                began = f"it was {progress.first_loss:.4g} at first, and is above {limit:.4g} for {FOR_STEPS} steps"
                raise self._stopped(step, f"the loss has exploded (loss {loss:.4g}: {began})")

    def _check_weights(self, weights: dict[str, Tensor]) -> None:
        """The last update may have spoilt what no loss has been computed with yet."""
        finite = [  # of this process's part, where the model is spread; tables may hold -inf on purpose
            getattr(t, "to_local", lambda t=t: t)().isfinite().all()
            for t in weights.values()
            if isinstance(t, nn.Parameter)
        ]
        if self.world.any(bool(finite) and not bool(torch.stack(finite).all())):
            raise self._stopped(self.progress.step, "the weights are not numbers any more")

    def _stopped(self, step: int, what: str) -> TrainingStopped:
        kept = self.checkpoints.steps()
        return TrainingStopped(
            f"At step {step} {what}. "
            + (f"The checkpoint of step {kept[-1]} is kept. " if kept else "There was no checkpoint yet. ")
            + "Lower optimizer.lr, lengthen schedule.warmup, or set optimizer.clip, and begin in a new folder (out=)."
        )

    def _evaluated(self) -> bool:
        """Measure, remember the best; True where patience is at its end."""
        assert self.evaluate is not None
        began = time.perf_counter()
        self.module.eval()
        torch.manual_seed(seed_of(self.plan.seed, self.progress.step, self.world.rank))
        with torch.no_grad(), self.ema.swap() if self.ema is not None else nullcontext(), self._precision():
            metrics = self.evaluate()
            text = self.sample() if self.sample is not None else None
            better = self._is_better(metrics)
            if better:
                self.best = {name: kept(tensor) for name, tensor in self.world.weights(self.module).items()}
        self.progress.waited = 0 if better else self.progress.waited + 1
        self._say({"event": "evaluation", "step": self.progress.step, "metrics": metrics, "best": better})
        if text is not None:
            self._say({"event": "sample", "step": self.progress.step, "text": text})
        then, tokens, step = self._mark  # the clock of training stood still
        self._mark = (then + time.perf_counter() - began, tokens, step)
        return self.plan.patience is not None and self.progress.waited >= self.plan.patience

    def _is_better(self, metrics: dict[str, float]) -> bool:
        """Whether this is the best evaluation so far, which is then remembered."""
        metric = self.plan.metric or next(iter(metrics))
        if metric not in metrics:
            raise TrainingStopped(
                f"There is no measure {metric!r} here; evaluation.metric can be {', '.join(metrics)}."
            )
        value, best = metrics[metric], self.progress.best
        better = not math.isnan(value) and (best is None or (value > best if rises(metric) else value < best))
        if better:
            self.progress.best, self.progress.best_step = value, self.progress.step
        return better

    def _say(self, event: Event) -> None:
        for watch in self.watchers:
            watch(event)

    def _is_due(self) -> bool:
        every, minutes = self.plan.checkpoint_every, self.plan.checkpoint_minutes
        if self.progress.beyond:  # an exploding loss must not push the good ones out
            return False
        by_count = every is not None and self.progress.step % every == 0
        seconds = math.inf if minutes is None else 60 * minutes
        if every is None and minutes is None:
            seconds = min(max(self._writing / WRITING, OFTEN), SELDOM)
        return by_count or self.world.any(time.perf_counter() - self._saved > seconds)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Ctrl-C and a friendly kill end the step, write a checkpoint and return; a second Ctrl-C stops at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: FrameType | None) -> None:
            if self._asked_to_stop and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._asked_to_stop = True

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def enough_memory() -> Iterator[None]:
    """Where memory runs out, say what needs less of it."""
    try:
        yield
    except ClearheadError:
        raise
    except (MemoryError, RuntimeError) as error:
        words = str(error)
        short = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not short and not re.search(r"can't allocate memory|not enough memory|out of memory", words):
            raise
        raise TrainingStopped(
            f"There is not enough memory ({(words.splitlines() or [type(error).__name__])[0][:200]}). "
            "What needs less, with the same result: batch.accumulate=2 (or 4, 8 …), checkpoint_activations=true, "
            "chunk=4096. With another: a smaller batch.size or batch.length, or lora. Then run it again."
        ) from error


def kept(tensor: Tensor) -> Tensor:
    """A copy that training does not change: in ordinary memory, or where the parts are if it is spread."""
    return tensor.detach().clone() if hasattr(tensor, "to_local") else tensor.detach().to("cpu", copy=True)


def seed_of(*parts: int) -> int:
    """One number from several: the draws of a step are its own."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)
