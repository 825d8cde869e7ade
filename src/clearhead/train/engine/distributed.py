"""Many processes that train one model: each reads its share of every batch, and the gradients are averaged.

    ddp    every process has the whole model (torch's DistributedDataParallel)
    fsdp   weights, gradients and the optimiser's state are spread; a layer is gathered when it is needed (FSDP2)

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
from contextlib import AbstractContextManager, nullcontext
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
from clearhead.train.engine.muon import sharded_like
from clearhead.train.engine.world import World
from clearhead.train.objectives.base import Batch, Objective
from clearhead.train.recipe import Recipe

COMPUTING = timedelta(minutes=15)  # nobody computes longer than this while others wait for gradients
TALKING = timedelta(hours=24)  # but one may read and tokenise for long, or look at the test data


class OthersLost(ClearheadError, RuntimeError):
    """Another process of the run has ended, so this one cannot go on."""


def join_others(recipe: Recipe) -> World:
    """Meet the processes that torchrun has started beside this one."""
    device = _own_device(recipe)
    if recipe.distribute == "fsdp" and recipe.optimizer.unfreeze_every:
        raise ConfigError(
            "optimizer.unfreeze_every changes which weights learn while the run goes on, and FSDP settles that at "
            "the beginning. Set distribute: ddp."
        )
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=COMPUTING, device_id=device if on_gpu else None)
    if recipe.distribute == "fsdp":
        return Shards(device, half=(recipe.precision or ("bf16" if on_gpu else "fp32")) == "bf16")
    return Copies(device)


def _own_device(recipe: Recipe) -> torch.device:
    """Every process of a machine takes the GPU of its number."""
    asked = torch.device(recipe.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if asked.index is not None:
        raise ConfigError(
            f"Under torchrun every process takes a GPU of its own: set device: {asked.type}, not {asked}."
        )
    if asked.type == "cpu":
        return asked
    mine, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if asked.type != "cuda" or mine >= there:
        raise ConfigError(
            f"torchrun started a process number {mine} on this machine, which has {there} GPUs: set --nproc-per-node "
            f"to {there}, or device: cpu."
        )
    return torch.device("cuda", mine)


class Together(World):
    """What all worlds of several processes have in common."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.talk = dist.new_group(backend="gloo", timeout=TALKING)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error the others must hear that nobody answers here; a broken NCCL group would wait to be closed.
        if kind is None or self.device.type == "cpu":
            dist.destroy_process_group()
        else:
            dist.destroy_process_group(self.talk)

    def _agreed(self, values: list[float], how: dist.ReduceOp.RedOpType) -> list[float]:
        told = torch.tensor(values, dtype=torch.float64)
        try:
            dist.all_reduce(told, how, self.talk)
        except RuntimeError:
            raise OthersLost(
                f"Process {self.rank} of {self.size} hears nothing from the others: one of them has ended, and its own "
                "message says why. The same command goes on from the last checkpoint."
            ) from None
        return list(told.tolist())

    def sum(self, numbers: dict[str, float]) -> dict[str, float]:
        names = sorted(numbers)  # processes may have met them in another order
        found = dict(zip(names, self._agreed([numbers[name] for name in names], dist.ReduceOp.SUM), strict=True))
        return {name: found[name] for name in numbers}

    def any(self, flag: bool) -> bool:
        return bool(self._agreed([float(flag)], dist.ReduceOp.MAX)[0])

    def wait(self) -> None:
        self._agreed([0.0], dist.ReduceOp.SUM)

    def backward(self, loss: Tensor) -> None:
        (loss * self.size).backward()  # gradients will be averaged, and the loop has weighed each loss by all counts


# ---- every process has the whole model


class Losses(nn.Module):
    """What DDP wraps: from a batch to its losses, so that it sees the whole way to them and nothing beside it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        # Which weights a step uses can change (gradual unfreezing, dropped layers, terms that are left out), so DDP has
        # to look each time. Where it never finds an unused one it advises against looking, at every start.
        self.unused = nn.Parameter(torch.zeros(0, device=next(module.parameters()).device))

    def forward(self, objective: Objective, batch: Batch) -> dict[str, Tensor]:
        return objective.losses(self.module, batch)


class Copies(Together):
    """Every process has the whole model; after the last part of a batch the gradients are averaged."""

    def wrap(self, module: nn.Module, compile: bool = False, even: bool = False, once: bool = False) -> nn.Module:
        module = super().wrap(module, compile, even, once)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers gets another name in torch 2.13
            return DistributedDataParallel(
                Losses(module), broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )

    def losses(self, module: nn.Module, objective: Objective, batch: Batch) -> dict[str, Tensor]:
        found: dict[str, Tensor] = module(objective, batch)
        return found

    def joining(self, module: nn.Module, last: bool) -> AbstractContextManager[object]:
        assert isinstance(module, DistributedDataParallel)
        quiet: AbstractContextManager[object] = module.no_sync()  # type: ignore[no-untyped-call, unused-ignore]
        return nullcontext() if last else quiet

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        assert isinstance(module, DistributedDataParallel) and isinstance(module.module, Losses)
        return super().weights(module.module.module)


# ---- the model is spread


class Shards(Together):
    """Every process has its part of each tensor; the layers are gathered one after the other as they are used.

    half   layers are gathered in bf16, as autocast would cast them; what is kept and added up stays fp32
    """

    def __init__(self, device: torch.device, half: bool) -> None:
        super().__init__(device)
        self.half = half
        self.module: nn.Module = nn.Module()
        self.hollow: nn.Module = nn.Module()  # the module's structure without its weights

    @property
    def spread(self) -> dict[str, Tensor] | None:
        return dict(self.module.named_parameters())

    @property
    def cradle(self) -> torch.device:
        return torch.device("cpu")  # the GPU gets one layer after the other, and keeps its part

    def wrap(self, module: nn.Module, compile: bool = False, even: bool = False, once: bool = False) -> nn.Module:
        if any(stack.layer_dropout for stack in module.modules() if isinstance(stack, Stack)):
            raise ConfigError(
                "This model leaves out layers at random in training, each process others, and FSDP needs all processes "
                "in the same layer. Set layerdrop to 0 in model.config, or distribute: ddp."
            )
        self.module, self.hollow = module, _hollow(module)
        mesh = dist.init_device_mesh(self.device.type, (self.size,))
        cast = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        for layer in _layers(module):
            if compile:
                layer.compile(dynamic=False if even else None)
            fully_shard(layer, mesh=mesh, mp_policy=cast if self.half else MixedPrecisionPolicy())
        # Given back after every call, in evaluation too: weights that are read afterwards are always the parts.
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
        return module

    def clip(self, module: nn.Module, longest: float) -> Tensor:
        norm = super().clip(module, longest)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    @torch.no_grad()
    def whole(self, model: Model) -> Model:
        name = next(name for name, part in self.module.named_modules() if part is model)
        plain = copy.deepcopy(self.hollow.get_submodule(name), _same_families(self.module))
        assert isinstance(plain, Model)
        found: dict[str, nn.Parameter] = {}
        for own, p in model.named_parameters():
            gathered = p.full_tensor() if isinstance(p, DTensor) else p
            if self.leads:
                found[own] = nn.Parameter(gathered.cpu(), p.requires_grad)
        if self.leads:
            places = {p: own for own, p in plain.named_parameters()}
            for part in plain.modules():
                for own, p in list(part.named_parameters(recurse=False)):
                    setattr(part, own, found[places[p]])
        return plain.train(model.training)

    def put(self, tensor: Tensor, value: Tensor) -> None:
        tensor.copy_(sharded_like(value.to(tensor.device), tensor))


def _layers(module: nn.Module) -> list[Block]:
    """The layers that can be gathered on their own: nothing else has their weights (in ALBERT all layers share)."""
    places = Counter(p for part in module.modules() for p in part.parameters(recurse=False))
    found = []
    for layer in (part for part in module.modules() if isinstance(part, Block)):
        inside = Counter(p for part in layer.modules() for p in part.parameters(recurse=False))
        if all(places[p] == count for p, count in inside.items()):
            found.append(layer)
    return found


def _hollow(module: nn.Module) -> nn.Module:
    """A copy without weights: same structure, same ties, buffers too."""
    instead: dict[int, Any] = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad) for p in module.parameters()
    }
    return copy.deepcopy(module, instead | _same_families(module))


def _same_families(module: nn.Module) -> dict[int, Any]:
    """For copy.deepcopy: a copied model is of the same family, not of a copied one."""
    return {id(part.family): part.family for part in module.modules() if isinstance(part, Model)}


# ---- checkpoints of which every process writes its part


def write_spread(folder: Path, tables: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Tensors by table and name, into a folder that is there; all processes call it together."""
    flat = {f"{name}/{key}": tensor.detach() for name, table in tables.items() for key, tensor in table.items()}
    try:
        dcp.save(flat, checkpoint_id=folder)
    except CheckpointException as error:
        raise OSError("; ".join({str(failure[0]) for failure in error.failures.values()})) from None


def read_spread(folder: Path, parameters: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """A checkpoint that many processes wrote, by however many it is read.

    parameters   by name, where they are spread here: what belongs to one of them is read as it is spread, and
                 everything else whole
    """
    try:
        stored = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
        flat: dict[str, Any] = {}
        for key, about in stored.items():
            assert isinstance(about, TensorStorageMetadata)
            name = key.partition("/")[2]
            like = parameters.get(name, parameters.get(name.rpartition(".")[0]))
            if like is not None and like.shape == about.size:
                flat[key] = torch.empty_like(like, dtype=about.properties.dtype).detach()
            else:
                flat[key] = torch.empty(about.size, dtype=about.properties.dtype)
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
