"""One process or many: the loop asks the world, and the world knows whether there is anybody else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Self

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError
from clearhead.hub import as_device
from clearhead.models import Model
from clearhead.train.objectives.base import Batch, Objective
from clearhead.train.recipe import Recipe

# Compiled code whose kernels are recorded and started together (CUDA graphs): a small model's step is mostly starting.
RECORDED: dict[str, str | int | bool] = {"triton.cudagraphs": True}


def join(recipe: Recipe) -> World:
    """The world this process is in: alone, or one of those that torchrun has started."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        from clearhead.train.engine.distributed import join_others

        return join_others(recipe)
    return World(as_device(recipe.device or ("cuda" if torch.cuda.is_available() else "cpu")))


class World:
    """One process, one device."""

    rank = 0
    size = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pass

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    @property
    def spread(self) -> dict[str, Tensor] | None:
        """The parameters by name, where every process has only a part of each; None where all have the whole."""
        return None

    @property
    def cradle(self) -> torch.device:
        """Where the model is made, before `wrap` puts it where it is trained."""
        return self.device

    def wrap(self, module: nn.Module, compile: bool = False, even: bool = False, once: bool = False) -> nn.Module:
        """What the loop gives to the other methods in place of the module. Make the optimiser after it.

        even   all batches have one shape: code for any shape, made when an epoch ends with another, is only slower
        once   a step calls the module once. Recorded kernels write gradients where the last call did, so they must not
               be added up over calls
        """
        if compile:
            recorded = even and once and self.size == 1 and self.device.type == "cuda"
            module.compile(dynamic=False if even else None, options=RECORDED if recorded else None)
        return module

    def losses(self, module: nn.Module, objective: Objective, batch: Batch) -> dict[str, Tensor]:
        return objective.losses(module, batch)

    def whole(self, model: Model) -> Model:
        """The model with all of its weights in one place, to be saved and used, in the process that leads.

        All processes call it together.
        """
        return model

    def sum(self, numbers: dict[str, float]) -> dict[str, float]:
        """Each number, added up over all processes."""
        return numbers

    def any(self, flag: bool) -> bool:
        return flag

    def wait(self) -> None:
        """Until everybody is here."""

    def joining(self, module: nn.Module, last: bool) -> AbstractContextManager[object]:
        """Around each part of a batch: gradients are exchanged after the last one only."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def clip(self, module: nn.Module, longest: float) -> Tensor:
        """The length of the whole gradient, which is shortened to `longest`."""
        return nn.utils.clip_grad_norm_(module.parameters(), longest)

    # ---- checkpoints

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """All weights by name, each once."""
        return dict(module.named_parameters()) | dict(module.named_buffers())

    @torch.no_grad()
    def load_weights(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        own = self.weights(module)
        if own.keys() != weights.keys() or any(own[name].shape != weights[name].shape for name in own):
            raise CheckpointError(
                "The checkpoint in this folder belongs to another model: its tensors have other names or shapes. "
                "Choose another folder (out=)."
            )
        for name, tensor in own.items():
            self.put(tensor, weights[name])

    def put(self, tensor: Tensor, value: Tensor) -> None:
        tensor.copy_(value)
