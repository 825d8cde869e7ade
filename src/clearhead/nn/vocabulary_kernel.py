"""Scores of a large vocabulary → loss and gradient on a CUDA device: each row is read from memory once, written once.

A Triton kernel; `nn/vocabulary_loss.py` says what it computes. It can be compiled into a graph with what surrounds it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._triton import has_triton

_ready = False  # whether the kernel has been made; compiled code must not make it on its way


def prepare() -> bool:
    """Make the kernel, once; False where there is no Triton."""
    global _ready
    if not _ready and has_triton():
        _make()
        _ready = True
    return _ready


def usable(scores: Tensor) -> bool:
    return _ready and scores.is_cuda


def loss_and_gradient(
    scores: Tensor, bias: Tensor | None, labels: Tensor, counted: Tensor, vocab: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """(the loss of each row in fp32, the gradient of their mean over `counted` with respect to the scores)"""
    losses, gradient = torch.ops.clearhead.vocabulary_loss(scores, bias, labels, counted, vocab, smoothing)
    return losses, gradient


def _make() -> None:
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

    @triton.jit
    def kernel(  # type: ignore[no-untyped-def]
        scores, bias, labels, counted, losses, gradient, columns, vocab, smoothing,
        HAS_BIAS: tl.constexpr, WIDTH: tl.constexpr,
    ):  # fmt: skip
        """A program takes a row: once through for the largest and the sum, once more (from the cache) to write."""
        row = tl.program_id(0).to(tl.int64)
        label = tl.load(labels + row)
        first = row * columns
        i = tl.arange(0, WIDTH)
        if label == -100:
            for start in range(0, columns, WIDTH):
                tl.store(gradient + first + start + i, tl.zeros((WIDTH,), gradient.dtype.element_ty),
                         mask=start + i < columns)  # fmt: skip
            tl.store(losses + row, 0.0)
            return
        largest = tl.full((WIDTH,), -1e30, tl.float32)  # less than any score, yet a number
        total = tl.zeros((WIDTH,), tl.float32)
        plain = tl.zeros((WIDTH,), tl.float32)  # the sum of the scores, for smoothing
        for start in range(0, vocab, WIDTH):
            there = start + i < vocab
            x = tl.load(scores + first + start + i, mask=there, other=-float("inf")).to(tl.float32)
            if HAS_BIAS:
                x += tl.load(bias + start + i, mask=there, other=0.0).to(tl.float32)
            higher = tl.maximum(largest, x)
            total = total * tl.exp(largest - higher) + tl.exp(x - higher)
            if smoothing > 0:
                plain += tl.where(there, x, 0.0)
            largest = higher
        top = tl.max(largest, axis=0)
        whole = tl.sum(total * tl.exp(largest - top), axis=0)
        log_sum = top + tl.log(whole)
        wanted = tl.load(scores + first + label).to(tl.float32)
        if HAS_BIAS:
            wanted += tl.load(bias + label).to(tl.float32)
        mean = tl.sum(plain, axis=0) / vocab
        tl.store(losses + row, log_sum - (1 - smoothing) * wanted - smoothing * mean)
        share = 1.0 / tl.load(counted)
        for start in range(0, columns, WIDTH):
            there = start + i < vocab
            x = tl.load(scores + first + start + i, mask=there, other=-float("inf")).to(tl.float32)
            if HAS_BIAS:
                x += tl.load(bias + start + i, mask=there, other=0.0).to(tl.float32)
            g = tl.exp(x - log_sum) - tl.where(start + i == label, 1 - smoothing, 0.0) - smoothing / vocab
            g = tl.where(there, g * share, 0.0)
            tl.store(gradient + first + start + i, g.to(gradient.dtype.element_ty), mask=start + i < columns,
                     cache_modifier=".cs")  # fmt: skip

    @torch.library.triton_op("clearhead::vocabulary_loss", mutates_args={})
    def op(
        scores: Tensor, bias: Tensor | None, labels: Tensor, counted: Tensor, vocab: int, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        rows, columns = scores.shape
        losses = torch.empty(rows, dtype=torch.float32, device=scores.device)
        gradient = torch.empty_like(scores)
        torch.library.wrap_triton(kernel)[(rows,)](
            scores, bias if bias is not None else scores, labels, counted, losses, gradient, columns, vocab, smoothing,
            HAS_BIAS=bias is not None, WIDTH=2048, num_warps=8,
        )  # fmt: skip
        return losses, gradient
