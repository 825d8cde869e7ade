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
from clearhead.train.data.types import Batch
from clearhead.train.objectives.base import GatherRows, Objective

# Compiled code whose kernels are recorded and started together (CUDA graphs): a small model's step is mostly starting.
CUDA_GRAPHS: dict[str, str | int | bool] = {"triton.cudagraphs": True}


def is_distributed() -> bool:
    """Whether torchrun has started this process, beside others."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def join_world(device: str | None = None, sharded: bool = False, bf16: bool | None = None) -> World:
    """The world this process is in: alone, or one of those that torchrun has started.

    device    None: a GPU where there is one
    sharded   several processes share one copy of the weights (FSDP); otherwise each has its own (DDP)
    bf16      what shards are gathered in; None: on a GPU
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if is_distributed():
        from clearhead.train.engine.distributed import join_process_group

        return join_process_group(torch.device(device), sharded, bf16)
    return World(as_device(device))


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
    def is_main(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    @property
    def sharded_parameters(self) -> dict[str, Tensor] | None:
        """The parameters by name, where every process has only its shard of each; None where all have all of it."""
        return None

    @property
    def init_device(self) -> torch.device:
        """Where the model is made, before `wrap` puts it where it is trained."""
        return self.device

    def wrap(
        self, module: nn.Module, compile: bool = False, static_shapes: bool = False, single_call: bool = False
    ) -> nn.Module:
        """What the loop gives to the other methods in place of the module. Make the optimiser after it.

        static_shapes   all batches have one shape: code for any shape, made when an epoch ends with another, is only
                        slower
        single_call     a step calls the module once. CUDA graphs write gradients where the last call did, so they must
                        not be added up over calls
        """
        if compile:
            recorded = static_shapes and single_call and self.size == 1 and self.device.type == "cuda"
            module.compile(dynamic=False if static_shapes else None, options=CUDA_GRAPHS if recorded else None)
        return module

    def inner(self, module: nn.Module) -> nn.Module:
        """What was wrapped."""
        return module

    @property
    def gather_rows(self) -> GatherRows | None:
        """Rows of all processes, in their order, and where one's own begin; None where there is nobody else."""
        return None

    def losses(self, module: nn.Module, objective: Objective, batch: Batch) -> dict[str, Tensor]:
        return objective.losses(module, batch)

    def gather(self, model: Model) -> Model:
        """The model with all of its weights in one place, to be saved and used, in the main process.

        All processes call it together.
        """
        return model

    def sum(self, numbers: dict[str, float]) -> dict[str, float]:
        """Each number, added up over all processes."""
        return numbers

    def any(self, flag: bool) -> bool:
        return flag

    def barrier(self) -> None:
        """Until everybody is here."""

    def no_sync(self, module: nn.Module) -> AbstractContextManager[object]:
        """Around each part of a batch but the last: gradients are added up here, and not exchanged yet."""
        return nullcontext()

    def autocast(self, dtype: torch.dtype | None) -> AbstractContextManager[object]:
        """Inside, products are computed in this type; None: in the weights' own."""
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def clip_grad_norm(self, module: nn.Module, max_norm: float) -> Tensor:
        """Gradient clipping: the norm over all parameters, which is brought down to `max_norm`."""
        return nn.utils.clip_grad_norm_(module.parameters(), max_norm)

    # ---- checkpoints

    def merged_rows(self, tensors: Mapping[str, Tensor], own: Tensor | None) -> dict[str, Tensor]:
        """Tensors whose second axis is the rows of a batch, each row from the process that has read it.

        own   (rows,): those that this one has read
        """
        return dict(tensors)

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """All weights by name, each once."""
        return dict(module.named_parameters()) | dict(module.named_buffers())

    @torch.no_grad()
    def load_weights(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        here = self.weights(module)
        if here.keys() != weights.keys() or any(here[name].shape != weights[name].shape for name in here):
            raise CheckpointError(
                "The checkpoint in this folder belongs to another model: its tensors have other names or shapes. "
                "Choose another folder (out=)."
            )
        for name, tensor in here.items():
            self.copy_weight(tensor, weights[name])

    def copy_weight(self, tensor: Tensor, value: Tensor) -> None:
        tensor.copy_(value)
