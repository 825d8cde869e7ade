"""Running a model to look at it: once, as it answers, without dropout and without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from clearhead.models.model import Model
from clearhead.pipeline import Pipeline, Reading


@contextmanager
def eval_mode(model: Model) -> Iterator[None]:
    """The model as it answers; one in training goes on training after."""
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
