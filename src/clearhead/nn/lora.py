"""LoRA (Hu et al. 2021): a matrix W stays as it is and has a narrow detour beside it, W + alpha/rank · B A.

`merge` adds the detour to W, and the model is a plain one again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.linear import Linear

FROZEN = "frozen_by_lora"  # where a model keeps the names of the parameters that learnt before
M = TypeVar("M", bound=nn.Module)


class LoRALinear(Linear):
    """Stands where a Linear stood, with its very weight and bias under their names, and a detour beside them."""

    def __init__(self, plain: Linear, a: nn.Parameter, b: nn.Parameter, scale: float, dropout: float) -> None:
        with torch.device("meta"):
            super().__init__(plain.in_features, plain.out_features, bias=plain.bias is not None)
        self.weight, self.bias = plain.weight, plain.bias
        self.lora_a, self.lora_b = a, b  # (rank, in), (out, rank)
        self.scale, self.dropout = scale, dropout
        self.train(plain.training)

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        narrow = F.linear(F.dropout(x.to(self.lora_a.dtype), self.dropout, self.training), self.lora_a)
        return y + (F.linear(narrow, self.lora_b) * self.scale).to(y.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={len(self.lora_a)}, scale={self.scale:g}"


def attach_adapters(
    model: nn.Module,
    chosen: Mapping[str, Linear],
    adapters: Mapping[Tensor, tuple[Tensor, Tensor]],
    scale: float,
    dropout: float,
) -> None:
    """Freeze the model, remembering what did learn, then put the detours in place."""
    model.__dict__[FROZEN] = [name for name, p in model.named_parameters() if p.requires_grad]
    model.requires_grad_(False)
    learning = {weight: (nn.Parameter(a), nn.Parameter(b)) for weight, (a, b) in adapters.items()}
    for name, module in chosen.items():
        _replace(model, name, LoRALinear(module, *learning[module.weight], scale, dropout))


@torch.no_grad()
def merge(model: M) -> M:
    """Add every detour to its matrix: the plain model again, with the same outputs, learning as before; in place."""
    merged: dict[Tensor, nn.Parameter] = {}
    for name, module in list(adapted(model)):
        if module.weight not in merged:
            detour = (module.lora_b.float() @ module.lora_a.float()) * module.scale
            merged[module.weight] = nn.Parameter((module.weight.float() + detour).to(module.weight.dtype), False)
        with torch.device("meta"):
            plain = Linear(module.in_features, module.out_features, bias=module.bias is not None)
        plain.weight, plain.bias = merged[module.weight], module.bias
        _replace(model, name, plain.train(module.training))
    for name in model.__dict__.pop(FROZEN, ()):
        model.get_parameter(name).requires_grad_(True)
    return model


def adapted(model: nn.Module) -> Iterator[tuple[str, LoRALinear]]:
    """The matrices with a detour, by name."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoRALinear))


def lora_state(model: nn.Module) -> dict[str, Tensor]:
    """What has learnt: the detours, and what learns whole beside them; by our own names, each once."""
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    path, _, own = name.rpartition(".")
    setattr(model.get_submodule(path), own, module)
