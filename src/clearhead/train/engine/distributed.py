"""Many processes that train one model: each reads its share of every batch, and the gradients are averaged.

    ddp    every process has the whole model (torch's DistributedDataParallel)
    fsdp   weights, gradients and the optimiser's state are sharded; a layer is gathered when it is needed (FSDP2)

torchrun starts the processes and says who is who. Numbers and agreements go over a group of their own, on the CPU, so
that nobody waits for a GPU to hear them.
"""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from clearhead.errors import CheckpointError, ClearheadError, ConfigError
from clearhead.models import Model
from clearhead.nn import Stack
from clearhead.nn.block import Block
from clearhead.train.data.types import Batch
from clearhead.train.engine.muon import sharded_like
from clearhead.train.engine.world import World
from clearhead.train.objectives.base import GatherRows, Objective

COMPUTE_TIMEOUT = timedelta(minutes=15)  # nobody computes longer than this while others wait for gradients
CONTROL_TIMEOUT = timedelta(hours=24)  # but one may read and tokenise for long, or look at the test data


class PeerLost(ClearheadError, RuntimeError):
    """Another process of the run has ended, so this one cannot go on."""


def join_process_group(device: torch.device, sharded: bool, bf16: bool | None) -> World:
    """Meet the processes that torchrun has started beside this one."""
    device = _own_device(device)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=COMPUTE_TIMEOUT, device_id=device if on_gpu else None)
    return FSDPWorld(device, on_gpu if bf16 is None else bf16) if sharded else DDPWorld(device)


def _own_device(device: torch.device) -> torch.device:
    """Every process of a machine takes the GPU of its number."""
    if device.index is not None:
        raise ConfigError(
            f"Under torchrun every process takes a GPU of its own: set device: {device.type}, not {device}."
        )
    if device.type == "cpu":
        return device
    local_rank, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if device.type != "cuda" or local_rank >= gpus:
        raise ConfigError(
            f"torchrun started a process number {local_rank} on this machine, which has {gpus} GPUs: set "
            f"--nproc-per-node to {gpus}, or device: cpu."
        )
    return torch.device("cuda", local_rank)


class DistributedWorld(World):
    """What all worlds of several processes have in common."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.cpu_group = dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error the others must hear that nobody answers here; a broken NCCL group would wait to be closed.
        if kind is None or self.device.type == "cpu":
            dist.destroy_process_group()
        else:
            dist.destroy_process_group(self.cpu_group)

    def _all_reduce(self, values: list[float], op: dist.ReduceOp.RedOpType) -> list[float]:
        reduced = torch.tensor(values, dtype=torch.float64)
        try:
            dist.all_reduce(reduced, op, self.cpu_group)
        except RuntimeError:
            raise PeerLost(
                f"Process {self.rank} of {self.size} hears nothing from the others: one of them has ended, and its own "
                "message says why. The same command goes on from the last checkpoint."
            ) from None
        return list(reduced.tolist())

    def sum(self, numbers: dict[str, float]) -> dict[str, float]:
        names = sorted(numbers)  # processes may have met them in another order
        sums = dict(zip(names, self._all_reduce([numbers[name] for name in names], dist.ReduceOp.SUM), strict=True))
        return {name: sums[name] for name in numbers}

    def any(self, flag: bool) -> bool:
        return bool(self._all_reduce([float(flag)], dist.ReduceOp.MAX)[0])

    def barrier(self) -> None:
        self._all_reduce([0.0], dist.ReduceOp.SUM)

    def merged_rows(self, tensors: Mapping[str, Tensor], own: Tensor | None) -> dict[str, Tensor]:
        assert own is not None
        merged = {}
        for name, tensor in tensors.items():
            mine = (tensor.float() * own[None, :, None]).cpu()  # a sum with zeros is exact
            dist.all_reduce(mine, group=self.cpu_group)
            merged[name] = mine.to(tensor.dtype)
        return merged

    @property
    def gather_rows(self) -> GatherRows:
        return self._gathered

    def _gathered(self, rows: Tensor) -> tuple[Tensor, int]:
        counts = torch.zeros(self.size, dtype=torch.long)
        counts[self.rank] = len(rows)
        dist.all_reduce(counts, group=self.cpu_group)
        most = int(counts.max())
        filled = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])]).contiguous()
        parts = [torch.empty_like(filled) for _ in range(self.size)]
        dist.all_gather(parts, filled)
        whole = torch.cat([part[: int(count)] for part, count in zip(parts, counts, strict=True)])
        return whole, int(counts[: self.rank].sum())

    def backward(self, loss: Tensor) -> None:
        (loss * self.size).backward()  # gradients will be averaged, and the loop has weighed each loss by all counts


# ---- every process has the whole model


class LossModule(nn.Module):
    """What DDP wraps: from a batch to its losses, so that it sees the whole way to them and nothing beside it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        # Which weights a step uses can change (gradual unfreezing, dropped layers, terms that are left out), so DDP has
        # to look each time. Where it never finds an unused one it advises against looking, at every start.
        self.unused = nn.Parameter(torch.zeros(0, device=next(module.parameters()).device))

    def forward(self, objective: Objective, batch: Batch) -> dict[str, Tensor]:
        return objective.losses(self.module, batch)


class DDPWorld(DistributedWorld):
    """Every process has the whole model; after the last part of a batch the gradients are averaged."""

    def wrap(
        self, module: nn.Module, compile: bool = False, static_shapes: bool = False, single_call: bool = False
    ) -> nn.Module:
        module = super().wrap(module, compile, static_shapes, single_call)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers gets another name in torch 2.13
            return DistributedDataParallel(
                LossModule(module), broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )

    def inner(self, module: nn.Module) -> nn.Module:
        assert isinstance(module, DistributedDataParallel) and isinstance(module.module, LossModule)
        return module.module.module

    def losses(self, module: nn.Module, objective: Objective, batch: Batch) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = module(objective, batch)
        return losses

    def no_sync(self, module: nn.Module) -> AbstractContextManager[object]:
        assert isinstance(module, DistributedDataParallel)
        context: AbstractContextManager[object] = module.no_sync()  # type: ignore[no-untyped-call, unused-ignore]
        return context

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        return super().weights(self.inner(module))


# ---- the model is sharded


class FSDPWorld(DistributedWorld):
    """Every process has its part of each tensor; the layers are gathered one after the other as they are used.

    bf16   layers are gathered in bf16, as autocast would cast them; what is kept and added up stays fp32
    """

    def __init__(self, device: torch.device, bf16: bool) -> None:
        super().__init__(device)
        self.bf16 = bf16
        self.module: nn.Module = nn.Module()
        self.meta_copy: nn.Module = nn.Module()  # the module's structure without its weights

    @property
    def sharded_parameters(self) -> dict[str, Tensor] | None:
        return dict(self.module.named_parameters())

    @property
    def init_device(self) -> torch.device:
        return torch.device("cpu")  # the GPU gets one layer after the other, and keeps its part

    def wrap(
        self, module: nn.Module, compile: bool = False, static_shapes: bool = False, single_call: bool = False
    ) -> nn.Module:
        if any(stack.layer_dropout for stack in module.modules() if isinstance(stack, Stack)):
            raise ConfigError(
                "This model leaves out layers at random in training, each process others, and FSDP needs all processes "
                "in the same layer. Set layerdrop to 0 in model.config, or distribute: ddp."
            )
        self.module, self.meta_copy = module, _meta_copy(module)
        mesh = dist.init_device_mesh(self.device.type, (self.size,))
        cast = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        for layer in _layers(module):
            if compile:
                layer.compile(dynamic=False if static_shapes else None)
            fully_shard(layer, mesh=mesh, mp_policy=cast if self.bf16 else MixedPrecisionPolicy())
        # Given back after every call, in evaluation too: weights that are read afterwards are always the parts.
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
        return module

    def clip_grad_norm(self, module: nn.Module, max_norm: float) -> Tensor:
        norm = super().clip_grad_norm(module, max_norm)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    @torch.no_grad()
    def gather(self, model: Model) -> Model:
        name = next(name for name, part in self.module.named_modules() if part is model)
        plain = copy.deepcopy(self.meta_copy.get_submodule(name), _shared_families(self.module))
        assert isinstance(plain, Model)
        full: dict[str, nn.Parameter] = {}
        for parameter_name, p in model.named_parameters():
            gathered = p.full_tensor() if isinstance(p, DTensor) else p
            if self.is_main:
                full[parameter_name] = nn.Parameter(gathered.cpu(), p.requires_grad)
        if self.is_main:
            names = {p: parameter_name for parameter_name, p in plain.named_parameters()}
            for part in plain.modules():
                for parameter_name, p in list(part.named_parameters(recurse=False)):
                    setattr(part, parameter_name, full[names[p]])
        return plain.train(model.training)

    def copy_weight(self, tensor: Tensor, value: Tensor) -> None:
        tensor.copy_(sharded_like(value.to(tensor.device), tensor))


def _layers(module: nn.Module) -> list[Block]:
    """The layers that can be gathered on their own: nothing else has their weights (in ALBERT all layers share)."""
    uses = Counter(p for part in module.modules() for p in part.parameters(recurse=False))
    layers = []
    for layer in (part for part in module.modules() if isinstance(part, Block)):
        inside = Counter(p for part in layer.modules() for p in part.parameters(recurse=False))
        if all(uses[p] == count for p, count in inside.items()):
            layers.append(layer)
    return layers


def _meta_copy(module: nn.Module) -> nn.Module:
    """A copy without weights: same structure, same ties, buffers too."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad) for p in module.parameters()
    }
    return copy.deepcopy(module, memo | _shared_families(module))


def _shared_families(module: nn.Module) -> dict[int, Any]:
    """For copy.deepcopy: a copied model is of the same family, not of a copied one."""
    return {id(part.family): part.family for part in module.modules() if isinstance(part, Model)}


# ---- checkpoints of which every process writes its part


def save_sharded(folder: Path, tables: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Tensors by table and name, into a folder that is there; all processes call it together."""
    flat = {f"{name}/{key}": tensor.detach() for name, table in tables.items() for key, tensor in table.items()}
    try:
        dcp.save(flat, checkpoint_id=folder)
    except CheckpointException as error:
        raise OSError("; ".join({str(failure[0]) for failure in error.failures.values()})) from None


def load_sharded(folder: Path, parameters: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """A checkpoint that many processes wrote, by however many it is read.

    parameters   by name, where they are sharded here: what belongs to one of them is read as it is sharded, and
                 everything else in one piece
    """
    try:
        stored = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
        flat: dict[str, Any] = {}
        for key, metadata in stored.items():
            assert isinstance(metadata, TensorStorageMetadata)
            name = key.partition("/")[2]
            like = parameters.get(name, parameters.get(name.rpartition(".")[0]))
            if like is not None and like.shape == metadata.size:
                flat[key] = torch.empty_like(like, dtype=metadata.properties.dtype).detach()
            else:
                flat[key] = torch.empty(metadata.size, dtype=metadata.properties.dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that one process alone reads it, which is meant
            dcp.load(flat, checkpoint_id=folder, no_dist=not dist.is_initialized())
    except (CheckpointException, pickle.UnpicklingError, EOFError, AssertionError, KeyError, RuntimeError) as error:
        raise CheckpointError(
            f"The checkpoint {folder} cannot be read: {str(error).strip() or type(error).__name__}."
        ) from None
    tables: dict[str, dict[str, Tensor]] = {}
    for key, tensor in flat.items():
        table, _, name = key.partition("/")
        tables.setdefault(table, {})[name] = tensor
    return tables
