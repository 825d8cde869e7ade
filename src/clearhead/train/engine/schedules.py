"""How the learning rate moves: from the number of an update to what multiplies the highest rate.

`schedule(step)` is for the update after `step` others (0 for the first). A warm-up of n updates rises in equal steps
and its last has the factor 1; the decay starts there and would reach its end at update `total`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from clearhead.errors import InputError, did_you_mean

Schedule = Callable[[int], float]


def constant(total: int | None = None, warmup: float = 0) -> Schedule:
    """1 after the warm-up."""
    return _warmed(_steps("warmup", warmup, total), lambda step: 1.0)


def linear(total: int, warmup: float = 0, final: float = 0.0) -> Schedule:
    """A straight line from 1 down to `final`: BERT's."""
    first = _steps("warmup", warmup, total)
    return _warmed(first, lambda step: 1 - (1 - final) * _fraction(step, first, total))


def cosine(total: int, warmup: float = 0, final: float = 0.0) -> Schedule:
    """Half a wave from 1 down to `final`: GPT-3's, with final = 0.1."""
    first = _steps("warmup", warmup, total)
    return _warmed(
        first, lambda step: final + (1 - final) * (1 + math.cos(math.pi * _fraction(step, first, total))) / 2
    )


def inverse_root(total: int | None = None, warmup: float = 4000) -> Schedule:
    """√(warmup / n) at update n: the 2017 Transformer's shape, with a peak of 1."""
    if not warmup:
        raise InputError("An inverse root falls from the end of a warm-up, so it needs one: the 2017 paper's is 4000.")
    first = max(1, _steps("warmup", warmup, total))
    return _warmed(first, lambda step: math.sqrt(first / (step + 1)))


def noam(width: int, total: int | None = None, warmup: float = 4000) -> Schedule:
    """The 2017 Transformer's own numbers, d_model^-0.5 · min(n^-0.5, n · warmup^-1.5): for a learning rate of 1."""
    shape, peak = inverse_root(total, warmup), (width * max(1, _steps("warmup", warmup, total))) ** -0.5
    return lambda step: peak * shape(step)


def slanted_triangular(total: int, cut_frac: float = 0.1, ratio: float = 32.0) -> Schedule:
    """ULMFiT's: up from 1/ratio over the first share of the updates, then slowly down to it again."""
    if not 0 < cut_frac < 1 or ratio < 1:
        raise InputError(f"cut_frac must lie between 0 and 1, ratio be 1 or more; they are {cut_frac} and {ratio}.")
    cut = max(1, math.floor(total * cut_frac))

    def factor(step: int) -> float:
        t = min(step + 1, total)  # the paper counts from 1
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
        return (1 + max(p, 0.0) * (ratio - 1)) / ratio

    return factor


def warmup_stable_decay(
    total: int, warmup: float = 0, decay: float = 0.2, final: float = 0.0, shape: str = "linear"
) -> Schedule:
    """1 until the last part, then down to `final`: a run can be prolonged from where it still was 1 (MiniCPM).

    shape   "linear", or "root": 1 - √share, which falls faster at first (Hägele et al. 2024)
    """
    first, last = _steps("warmup", warmup, total), _steps("decay", decay, total)
    if first + last > total:
        raise InputError(f"{first} updates to warm up and {last} to decay do not fit into {total}.")
    if shape not in ("linear", "root"):
        raise InputError(f"The decay has the shape 'linear' or 'root', not {shape!r}.{did_you_mean(shape, SHAPES)}")
    start = total - last

    def after(step: int) -> float:
        fraction = _fraction(step, start, total)
        return 1 - (1 - final) * (fraction if shape == "linear" else math.sqrt(fraction))

    return _warmed(first, after)


SHAPES = ("linear", "root")
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse-root": inverse_root,
    "noam": noam,
    "slanted-triangular": slanted_triangular,
    "warmup-stable-decay": warmup_stable_decay,
}


def schedule(name: str, total: int, warmup: float = 0, final: float = 0.0, **options: Any) -> Schedule:
    """A schedule by its name, for a run of `total` updates; options as the function of that name has them.

    A warm-up or end of 0 is the same as none said, for schedules that know neither.
    """
    if name not in SCHEDULES:
        raise InputError(
            f"There is no schedule {name!r}.{did_you_mean(name, SCHEDULES)} There are: {', '.join(SCHEDULES)}."
        )
    if total < 1:
        raise InputError(f"A schedule needs at least one update, not {total}.")
    known = [option for option in inspect.signature(SCHEDULES[name]).parameters if option != "total"]
    options |= {option: value for option, value in (("warmup", warmup), ("final", final)) if value or option in known}
    for option in options:
        if option not in known:
            raise InputError(
                f"The schedule {name} has no option {option!r}.{did_you_mean(option, known)} "
                f"It has: {', '.join(known)}."
            )
    if name == "noam" and "width" not in options:
        raise InputError("The schedule noam needs the model's width; inverse-root has the same shape without it.")
    return SCHEDULES[name](total=total, **options)


def _steps(name: str, value: float, total: int | None) -> int:
    """A number of updates; below 1 it is a share of all of them."""
    if value < 0 or (value >= 1 and value != int(value)):
        raise InputError(f"{name} is a whole number of updates, or a share of them below 1, not {value}.")
    if value == 0 or value >= 1:
        return int(value)
    if total is None:
        raise InputError(f"{name} is a share, {value}, but the number of all updates is not known: give total.")
    return round(value * total)


def _fraction(step: int, start: int, end: int) -> float:
    """How much of the way from `start` to `end` lies behind, 0 to 1."""
    return min(1.0, max(0.0, (step - start) / max(1, end - start)))


def _warmed(warmup: int, after: Schedule) -> Schedule:
    return lambda step: (step + 1) / warmup if step < warmup else after(step)
