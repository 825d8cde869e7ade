"""Training that goes wrong is stopped: a loss that is not a number, one that explodes, weights that are spoilt."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from clearhead.errors import TrainingStopped
from clearhead.train.engine.checkpoints import Checkpoints, Progress

EXPLOSION_FACTOR = 4.0  # so many times the first loss is too much,
EXPLODED_STEPS = 5  # if it stays there for so many steps: a single batch may be odd


def check_losses(losses: list[float], norms: list[float], progress: Progress, checkpoints: Checkpoints | None) -> None:
    """Stop where a loss is not a number, or has been far above the first one for a while.

    losses, norms   of the newest steps, up to progress.step
    """
    first = progress.step - len(losses) + 1
    for step, (loss, norm) in enumerate(zip(losses, norms, strict=True), first):
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise training_stopped(
                step, f"the loss is not a number (loss {loss:.4g}, gradient {norm:.4g})", checkpoints
            )
        if progress.first_loss is None:
            progress.first_loss = loss
        limit = EXPLOSION_FACTOR * abs(progress.first_loss) + 10.0
        progress.exploded_steps = progress.exploded_steps + 1 if loss > limit else 0
        if progress.exploded_steps == EXPLODED_STEPS:
            began = f"it was {progress.first_loss:.4g} at first, and is above {limit:.4g} for {EXPLODED_STEPS} steps"
            raise training_stopped(step, f"the loss has exploded (loss {loss:.4g}: {began})", checkpoints)


def finite(weights: dict[str, Tensor]) -> bool:
    """Whether all parameters are numbers: the last update may have spoilt what no loss has been computed with yet."""
    checks = [  # of this process's shard, where the model is sharded; buffers may hold -inf on purpose
        getattr(t, "to_local", lambda t=t: t)().isfinite().all()
        for t in weights.values()
        if isinstance(t, nn.Parameter)
    ]
    return not checks or bool(torch.stack(checks).all())


def training_stopped(step: int, reason: str, checkpoints: Checkpoints | None) -> TrainingStopped:
    kept = checkpoints.steps() if checkpoints is not None else []
    return TrainingStopped(
        f"At step {step} {reason}. "
        + (f"The checkpoint of step {kept[-1]} is kept. " if kept else "There was no checkpoint yet. ")
        + "Lower optimizer.lr, lengthen schedule.warmup, or set optimizer.max_grad_norm, and begin in a new folder "
        "(out=)."
    )
