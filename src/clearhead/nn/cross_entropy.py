"""Chunked cross-entropy: the loss over a large vocabulary, some positions at a time.

All logits at once would be the largest tensor: GPT-2's for 65,536 tokens are 13 GB in fp32. Here those of a chunk are
made, turned into loss and gradients, and forgotten; the backward pass then only scales what is known. Nothing is
computed twice.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.nn.fast import cpu_cross_entropy
from clearhead.nn.torch_internals import has_triton

ALIGNED = 64  # rows of logits are padded to a multiple of so many, which tensor cores read without a detour
_kernels: dict[str, Any] = {}  # by the kind of device, once they are loaded; compiled code must not load them


def prepare(device: str) -> bool:
    """Load the kernel for such devices, once; False where there can be none (no Triton, no C compiler)."""
    if device == "cuda" and device not in _kernels and has_triton():
        from clearhead.nn.fast import gpu_cross_entropy

        _kernels[device] = gpu_cross_entropy
    elif device == "cpu" and device not in _kernels and cpu_cross_entropy.load() is not None:
        _kernels[device] = cpu_cross_entropy
    return device in _kernels


def linear_cross_entropy(
    hidden: Tensor,  # (positions, width)
    weight: Tensor,  # (vocab, width)
    bias: Tensor | None,
    labels: Tensor,  # (positions,), -100: left out
    chunk: int,
    smoothing: float = 0.0,
) -> Tensor:
    """The mean of cross_entropy(hidden · weightᵀ + bias, labels, label_smoothing=smoothing), `chunk` rows at a time."""
    dtype = hidden.dtype
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
    hidden, table, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    # a frozen table (LoRA) needs no gradient, a third of the work
    loss: Tensor = _LinearCrossEntropy.apply(hidden, table, bias, labels, chunk, smoothing, weight.requires_grad)
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
        weight_grad: bool,
    ) -> Tensor:
        vocab = weight.shape[0]
        padding = -vocab % ALIGNED if hidden.is_cuda else 0
        table = F.pad(weight, (0, 0, 0, padding))
        count = (labels != -100).sum().clamp(min=1).float()
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        d_table = torch.zeros_like(table, dtype=torch.float32) if weight_grad else None
        d_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        d_hidden = []
        for rows, targets in zip(hidden.split(chunk), labels.split(chunk), strict=True):
            logits = rows @ table.T
            losses, d_logits = _kernel_for(logits)(logits, bias, targets, count, vocab, smoothing)
            total += losses.sum()
            d_hidden.append(d_logits @ table)
            if d_table is not None:
                d_table += d_logits.T @ rows
            if d_bias is not None:
                d_bias += d_logits[:, :vocab].sum(0)
        d_weight = None if d_table is None else d_table[:vocab].to(weight.dtype)
        ctx.save_for_backward(torch.cat(d_hidden), d_weight, None if d_bias is None else d_bias.to(weight.dtype))
        return total / count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # in fp32: the weight of a micro-batch, such as a third, is no number that bf16 has
        scaled = [None if d is None else (d.float() * grads[0]).to(d.dtype) for d in ctx.saved_tensors]
        return (*scaled, None, None, None, None)


def _kernel_for(logits: Tensor) -> Any:
    kernel = _kernels.get(logits.device.type)
    if kernel is None or logits.dtype not in kernel.DTYPES or (torch.compiler.is_compiling() and not logits.is_cuda):
        return loss_and_gradient  # torch can compile it; it cannot look into C
    return kernel.loss_and_gradient


def loss_and_gradient(
    logits: Tensor, bias: Tensor | None, labels: Tensor, count: Tensor, vocab: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The loss of each position, and the gradient of their mean with respect to the logits.

    logits   (positions, vocab + padding)
    count    over how many the mean is taken
    """
    is_counted = (labels != -100).float()[:, None]
    wide = logits.float()
    if bias is not None:
        wide = wide + F.pad(bias.float(), (0, logits.shape[1] - vocab))
    column = torch.arange(logits.shape[1], device=logits.device)
    if logits.shape[1] != vocab:
        wide = wide.masked_fill(column >= vocab, -torch.inf)
    log_probs = wide - wide.logsumexp(-1, keepdim=True)
    targets = labels.clamp(min=0)[:, None]
    loss = -(1 - smoothing) * log_probs.gather(1, targets)
    gradient = log_probs.exp() - (1 - smoothing) * (column == targets)
    if smoothing:
        loss = loss - smoothing * log_probs[:, :vocab].mean(-1, keepdim=True)
        gradient = gradient - (smoothing / vocab) * (column < vocab)
    return (loss * is_counted)[:, 0], (gradient * is_counted / count).to(logits.dtype)
