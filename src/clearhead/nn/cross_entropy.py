"""The loss over a large vocabulary, a stretch of positions at a time: all scores at once would be the largest tensor.

GPT-2's scores for 65,536 tokens are 13 GB in fp32. Here the scores of a stretch are made, turned into loss and
gradients, and forgotten; the backward pass then only scales what is known. Nothing is computed twice.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.nn.torch_internals import has_triton

ALIGNED = 64  # rows of scores a tensor core can read without a detour, counted in words of the vocabulary
_kernel: Any = None  # gpu_cross_entropy, once it is loaded; compiled code must not load it on its way


def prepare() -> bool:
    """Load the kernel for CUDA devices, once; False where there is no Triton."""
    global _kernel
    if _kernel is None and has_triton():
        from clearhead.nn.fast import gpu_cross_entropy

        _kernel = gpu_cross_entropy
    return _kernel is not None


def linear_cross_entropy(
    hidden: Tensor,  # (positions, width)
    weight: Tensor,  # (vocab, width)
    bias: Tensor | None,
    labels: Tensor,  # (positions,), -100: left out
    chunk: int,
    smoothing: float = 0.0,
) -> Tensor:
    """The mean of cross_entropy(hidden · weightᵀ + bias, labels, label_smoothing=smoothing), `chunk` rows at a time."""
    kind = hidden.dtype
    if torch.is_autocast_enabled(hidden.device.type):
        kind = torch.get_autocast_dtype(hidden.device.type)
    learns = weight.requires_grad  # a frozen table (LoRA) needs no gradient, a third of the work
    loss: Tensor = _LinearCrossEntropy.apply(
        hidden.to(kind), weight.to(kind), None if bias is None else bias.to(kind), labels, chunk, smoothing, learns
    )
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients together, on the way forward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        chunk: int,
        smoothing: float,
        learns: bool,
    ) -> Tensor:
        vocab = weight.shape[0]
        spare = -vocab % ALIGNED if hidden.is_cuda else 0
        table = F.pad(weight, (0, 0, 0, spare))
        counted = (labels != -100).sum().clamp(min=1).float()
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        d_table = torch.zeros_like(table, dtype=torch.float32) if learns else None
        d_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        d_hidden = []
        for rows, wanted in zip(hidden.split(chunk), labels.split(chunk), strict=True):
            scores = rows @ table.T
            how = _kernel.loss_and_gradient if _kernel is not None and scores.is_cuda else loss_and_gradient
            losses, d_scores = how(scores, bias, wanted, counted, vocab, smoothing)
            total += losses.sum()
            d_hidden.append(d_scores @ table)
            if d_table is not None:
                d_table += d_scores.T @ rows
            if d_bias is not None:
                d_bias += d_scores[:, :vocab].sum(0)
        d_weight = None if d_table is None else d_table[:vocab].to(weight.dtype)
        ctx.save_for_backward(torch.cat(d_hidden), d_weight, None if d_bias is None else d_bias.to(weight.dtype))
        return total / counted

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # in fp32: a share of a batch, such as a third, is no number that bf16 has
        scaled = [None if d is None else (d.float() * grads[0]).to(d.dtype) for d in ctx.saved_tensors]
        return (*scaled, None, None, None, None)


def loss_and_gradient(
    scores: Tensor, bias: Tensor | None, labels: Tensor, counted: Tensor, vocab: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The loss of each position, and the gradient of their mean with respect to the scores (positions, vocab + spare).

    counted   over how many the mean is taken
    """
    there = (labels != -100).float()[:, None]
    wide = scores.float()
    if bias is not None:
        wide = wide + F.pad(bias.float(), (0, scores.shape[1] - vocab))
    column = torch.arange(scores.shape[1], device=scores.device)
    if scores.shape[1] != vocab:
        wide = wide.masked_fill(column >= vocab, -torch.inf)
    logs = wide - wide.logsumexp(-1, keepdim=True)
    wanted = labels.clamp(min=0)
    picked = logs.gather(1, wanted[:, None])
    loss = -(1 - smoothing) * picked
    gradient = logs.exp() - (1 - smoothing) * (column == wanted[:, None])
    if smoothing:
        loss = loss - smoothing * logs[:, :vocab].mean(-1, keepdim=True)
        gradient = gradient - (smoothing / vocab) * (column < vocab)
    return (loss * there)[:, 0], (gradient * there / counted).to(scores.dtype)
