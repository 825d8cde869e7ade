"""An average of the weights over the updates, which is often better than the last ones: kept beside them, in fp32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError, InputError
from clearhead.train.engine.muon import sharded_like
from clearhead.train.engine.optim import check_names, parameter_names


class EMA:
    """average = decay · average + (1 - decay) · weights, after every update.

    warmup   the first averages forget faster, by min(decay, (1 + n) / (10 + n)) after n updates: otherwise the
             weights that training began with would stay in it for long

    What is frozen when it is made is left out: call `freeze` before, gradual unfreezing after.
    """

    def __init__(self, model: nn.Module, decay: float = 0.999, *, warmup: bool = True) -> None:
        if not 0 <= decay < 1:
            raise InputError(f"The decay of an average is from 0 up to 1, such as 0.999, not {decay}.")
        self.decay, self.warmup, self.updates = decay, warmup, 0
        self.weights = parameter_names(model)
        self.averages = {name: p.detach().float().clone() for name, p in self.weights.items()}

    def observe(self, value: float, higher_is_better: bool) -> None:
        """What held-out data says of the weights, for averages that begin by it."""

    @torch.no_grad()
    def update(self) -> None:
        n = self.updates
        decay = min(self.decay, (1 + n) / (10 + n)) if self.warmup else self.decay
        current = [p.detach().float() for p in self.weights.values()]
        torch._foreach_lerp_(list(self.averages.values()), current, 1 - decay)
        self.updates += 1

    @contextmanager
    def swap(self) -> Iterator[None]:
        """Inside, the model has the averages; after it, its own weights again, to the bit."""
        with torch.no_grad():
            trained = {name: p.detach().clone() for name, p in self.weights.items()}
            self.apply()
        try:
            yield
        finally:
            with torch.no_grad():
                for name, p in self.weights.items():
                    p.copy_(trained[name])

    @torch.no_grad()
    def apply(self) -> None:
        """The model has the averages from now on."""
        for name, p in self.weights.items():
            p.copy_(self.averages[name])

    def state_tensors(self) -> dict[str, Tensor]:
        return dict(self.averages)

    def state_numbers(self) -> dict[str, Any]:
        return {"updates": self.updates}

    @torch.no_grad()
    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        check_names("The stored average", tensors, self.averages)
        for name, average in self.averages.items():
            if tensors[name].shape != average.shape:
                raise CheckpointError(
                    f"The stored average of {name} is {tuple(tensors[name].shape)}, the model's weight "
                    f"{tuple(average.shape)}. It belongs to another model."
                )
        for name, average in self.averages.items():
            average.copy_(sharded_like(tensors[name].to(average.device), average))
        self.updates = int(numbers["updates"])


class TriggeredAverage(EMA):
    """NT-ASGD (Merity et al. 2017): the mean of all weights since the moment when SGD stopped to get better.

    That moment has come when an evaluation is worse than the best of those more than `patience` evaluations ago. Until
    then, the weights themselves are evaluated.
    """

    def __init__(self, model: nn.Module, patience: int = 5) -> None:
        super().__init__(model, 0.0, warmup=False)
        self.patience = patience
        self.history: list[float] = []  # of evaluations, less being better
        self.began = False

    def observe(self, value: float, higher_is_better: bool) -> None:
        value = -value if higher_is_better else value
        before = self.history[: -self.patience]
        if not self.began and before and value > min(before):
            self.began, self.updates = True, 0
        self.history.append(value)

    @torch.no_grad()
    def update(self) -> None:
        if self.began:
            self.updates += 1
            now = [p.detach().float() for p in self.weights.values()]
            torch._foreach_lerp_(list(self.averages.values()), now, 1 / self.updates)

    @contextmanager
    def swap(self) -> Iterator[None]:
        if not self.updates:
            yield
            return
        with super().swap():
            yield

    def apply(self) -> None:
        if self.updates:
            super().apply()

    def state_numbers(self) -> dict[str, Any]:
        return super().state_numbers() | {"history": self.history, "began": self.began}

    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        super().load_state(tensors, numbers)
        self.history, self.began = [float(value) for value in numbers["history"]], bool(numbers["began"])
