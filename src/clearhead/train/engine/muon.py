"""Muon (Jordan 2024): momentum for a matrix, made orthogonal before it is applied, so that all directions move alike.

A gradient's momentum is nearly of low rank: a few directions carry almost all of it. Five Newton–Schulz steps bring
every singular value to about 1 (0.7 to 1.2), and rare directions learn as fast as common ones.

The update is scaled as in Moonlight (Liu et al. 2025): an orthogonal (rows, cols) matrix has entries of root mean
square 1/√max(rows, cols), so 0.2 · √max(rows, cols) makes that 0.2, about what AdamW's updates have. AdamW's learning
rate and weight decay then hold for Muon too, whatever the shape, and one schedule moves both. (Jordan's own scale,
√max(1, rows/cols), needs a learning rate of its own.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.nn.attention import Attention
from clearhead.nn.block import Block
from clearhead.nn.disentangled import DisentangledAttention
from clearhead.nn.segment_recurrence import RelativeAttention

QUINTIC = (3.4445, -4.7750, 2.0315)  # a x + b x³ + c x⁵: steepest at zero, so that small singular values grow fast
STEPS = 5
RMS = 0.2
MAX_NUMBERS_TOGETHER = 2**28  # numbers that are made orthogonal together; more would only cost memory


@dataclass(frozen=True)
class Parts:
    """How a matrix is made of several that lie on each other, such as q, k and v: each is orthogonal on its own.

    sizes   the rows of each
    heads   where they alternate (DeBERTa: q, k, v of the first head, then of the second …): how often
    """

    sizes: tuple[int, ...]
    heads: int = 1

    def cut(self, matrix: Tensor) -> list[Tensor]:
        if self.heads > 1:
            matrix = matrix.unflatten(0, (self.heads, len(self.sizes), -1)).transpose(0, 1).flatten(0, 2)
        return list(matrix.split(self.sizes))

    def join(self, parts: list[Tensor]) -> Tensor:
        matrix = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.heads > 1:
            matrix = matrix.unflatten(0, (len(self.sizes), self.heads, -1)).transpose(0, 1).flatten(0, 2)
        return matrix


def hidden_matrices(model: nn.Module) -> dict[Tensor, Parts]:
    """What Muon moves: the matrices of attention and feed-forward inside the layers.

    Not the embeddings and the output matrix, whose rows are words and get gradients one by one, nor vectors.
    """
    matrices: dict[Tensor, Parts] = {}
    for block in model.modules():
        if not isinstance(block, Block):
            continue
        for module in block.modules():
            if isinstance(module, Attention | RelativeAttention) and module.fused:
                matrix, parts = _fused(module)
                matrices[matrix] = parts
        for module in block.modules():
            if isinstance(module, nn.Linear):
                matrices.setdefault(module.weight, Parts((module.weight.shape[0],)))
    return matrices


def _fused(attention: Attention | RelativeAttention) -> tuple[Tensor, Parts]:
    queries, keys = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
    if isinstance(attention, Attention) and attention.cross:
        return attention.key_value.weight, Parts((keys, keys))
    heads = attention.heads if isinstance(attention, DisentangledAttention) else 1
    return attention.qkv.weight, Parts((queries, keys, keys), heads)


def orthogonal(matrices: Tensor) -> Tensor:
    """(n, rows, cols) with rows <= cols -> the nearest matrices whose rows are orthonormal, roughly.

    In bf16 on a GPU, whose rounding the iteration forgives; in fp32 on a CPU.
    """
    a, b, c = QUINTIC
    x = matrices.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)  # no singular value is above 1
    for _ in range(STEPS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


def directions(matrices: list[Tensor]) -> list[Tensor]:
    """Each made orthogonal, with entries of root mean square 0.2.

    Those of one shape (or its transpose) are stacked: few and large products, whatever the number of layers.
    """
    by_shape: dict[tuple[int, int], list[int]] = {}
    for n, matrix in enumerate(matrices):
        by_shape.setdefault((min(matrix.shape), max(matrix.shape)), []).append(n)
    results: dict[int, Tensor] = {}
    for (rows, cols), numbers in by_shape.items():
        at_once = max(1, MAX_NUMBERS_TOGETHER // (rows * cols))
        for start in range(0, len(numbers), at_once):
            chunk = numbers[start : start + at_once]
            wide = torch.stack([matrices[n] if matrices[n].shape[0] == rows else matrices[n].mT for n in chunk])
            scaled = orthogonal(wide).to(wide.dtype) * (RMS * cols**0.5)
            for n, result in zip(chunk, scaled.unbind(), strict=True):
                results[n] = result if matrices[n].shape[0] == rows else result.mT
    return [results[n] for n in range(len(matrices))]


def gathered(tensor: Tensor) -> Tensor:
    """All of a tensor that lies over the ranks (FSDP's DTensor); any other as it is."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def sharded_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor that every rank holds whole, as `like` lies over the ranks; nothing is sent."""
    if hasattr(tensor, "placements") or not hasattr(like, "placements"):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate  # a second to import, and seldom needed

    assert isinstance(like, DTensor)
    mesh = like.device_mesh
    replicated = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return replicated.redistribute(mesh, like.placements)


class Muon(torch.optim.Optimizer):
    """Nesterov momentum → orthogonal → scaled, with AdamW's decoupled weight decay.

    Where parameters are sharded over ranks (FSDP2), each rank gathers the momentum of all, computes the same and keeps
    its own rows.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        parts: Mapping[Tensor, Parts],
        *,
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
    ) -> None:
        if not 0 <= momentum < 1:
            raise InputError(f"Muon's momentum is a share of what was, from 0 up to 1, not {momentum}.")
        self.parts = parts
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            if moved:
                self._move(moved, group["lr"], group["weight_decay"], group["momentum"])

    def _move(self, parameters: list[Tensor], lr: float, decay: float, momentum: float) -> None:
        for p in parameters:
            if not self.state[p]:
                self.state[p] = {"step": 0, "momentum": torch.zeros_like(p)}
            self.state[p]["step"] += 1
        gradients: list[Tensor] = [p.grad for p in parameters]  # type: ignore[misc]
        momenta = [self.state[p]["momentum"] for p in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - momentum)
        nesterov = torch._foreach_lerp(gradients, momenta, momentum)  # Nesterov: the momentum after the next gradient

        pieces = [self.parts[p].cut(gathered(u)) for p, u in zip(parameters, nesterov, strict=True)]
        flat = iter(directions([piece for pieces_of_one in pieces for piece in pieces_of_one]))
        joined = [
            self.parts[p].join([next(flat) for _ in pieces_of_one])
            for p, pieces_of_one in zip(parameters, pieces, strict=True)
        ]
        updates = [sharded_like(update, p) for update, p in zip(joined, parameters, strict=True)]
        if decay:
            torch._foreach_mul_(parameters, 1 - lr * decay)
        torch._foreach_add_(parameters, updates, alpha=-lr)
