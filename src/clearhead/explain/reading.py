"""Running a model to look at it: at rest, once, at the layers, heads and positions asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from clearhead.errors import InputError
from clearhead.models.model import Model
from clearhead.pipeline import Pipeline, Reading


def place(name: str, value: int, size: int, whole: str) -> int:
    """A layer, head or position, counted from the end if negative. whole: what has them, "the model has 12 layers"."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"A {name} is a whole number, not {value!r}.")
    if not -size <= value < size:
        raise InputError(f"There is no {name} {value}: {whole}, counted from 0.")
    return value % size


def places(name: str, asked: int | list[int] | range | tuple[int, ...] | None, size: int, whole: str) -> list[int]:
    """All of them (None), one, or several, each once and in the order asked for."""
    if asked is None:
        return list(range(size))
    if not isinstance(asked, list | tuple | range):
        asked = [asked]
    found = list(dict.fromkeys(place(name, n, size, whole) for n in asked))
    if not found:
        raise InputError(f"The list of {name}s is empty. Leave it out for all of them.")
    return found


@contextmanager
def at_rest(model: Model) -> Iterator[None]:
    """The model as it answers, without dropout and without gradients; a model in training goes on training after."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def call(pipe: Pipeline, reading: Reading, **more: Any) -> Any:
    """The model's output for a reading."""
    return pipe.model(**reading.inputs, **more)
