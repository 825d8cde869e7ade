"""Scores of a large vocabulary → loss and gradient on a CUDA device, in one Triton kernel and in the scores' own place.

`nn/cross_entropy.py` says what it computes. Moving the numbers is what takes the time, so they are loaded 16 bytes at
a time (no mask ends within a load) and ahead of the arithmetic, and the gradient needs no tensor of its own. On an H200
with GPT-2's vocabulary, all of it takes 1.3 times as long as copying the scores.

Import this where there is a Triton.
"""
# mypy: ignore-errors

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def read(
    row,
    i,
    bias,
    HAS_BIAS: tl.constexpr,
    COLUMNS: tl.constexpr,
    VOCAB: tl.constexpr,
    INSIDE: tl.constexpr,  # no i is beyond the vocabulary
):
    """Scores with their bias, as powers of two (exp2 is what the hardware has); -inf beyond the vocabulary."""
    if INSIDE:
        x = tl.load(row + i).to(tl.float32)
        if HAS_BIAS:
            x += tl.load(bias + i).to(tl.float32)
    else:
        x = tl.load(row + i, mask=i < COLUMNS, other=0.0).to(tl.float32)
        if HAS_BIAS:
            x += tl.load(bias + i, mask=i < VOCAB, other=0.0).to(tl.float32)
        x = tl.where(i < VOCAB, x, -float("inf"))
    return x * 1.4426950408889634  # log2(e)


@triton.jit
def add(x, top, total):
    """The largest score so far, and the sum of the powers below it, lane by lane."""
    higher = tl.maximum(top, tl.max(x, axis=0))
    return higher, total * tl.exp2(top - higher) + tl.exp2(x - higher)


@triton.jit
def kernel(
    scores,  # (rows, COLUMNS); the gradient afterwards
    bias,  # (VOCAB,)
    labels,  # (rows,)
    counted,
    losses,  # (rows,)
    smoothing,
    HAS_BIAS: tl.constexpr,
    SMOOTHS: tl.constexpr,
    COLUMNS: tl.constexpr,
    VOCAB: tl.constexpr,
    WIDTH: tl.constexpr,  # scores read at once
):
    """A program takes a row: once through for the largest and the sum, once more to turn it into its gradient."""
    number = tl.program_id(0).to(tl.int64)
    row = scores + number * COLUMNS
    kind = scores.dtype.element_ty
    label = tl.load(labels + number)
    inside: tl.constexpr = VOCAB // WIDTH * WIDTH  # up to here nobody needs to look for the end
    i = tl.arange(0, WIDTH)
    if label == -100:
        for start in range(0, COLUMNS, WIDTH):
            tl.store(row + start + i, tl.zeros((WIDTH,), kind), mask=start + i < COLUMNS)
        tl.store(losses + number, 0.0)
        return

    top = -1e30  # less than any score, yet a number
    total = tl.zeros((WIDTH,), tl.float32)
    plain = tl.zeros((WIDTH,), tl.float32)  # the sum of the scores, for smoothing
    for start in tl.range(0, inside, WIDTH, num_stages=3):
        x = read(row, start + i, bias, HAS_BIAS, COLUMNS, VOCAB, True)
        top, total = add(x, top, total)
        if SMOOTHS:
            plain += x
    for start in range(inside, COLUMNS, WIDTH):
        x = read(row, start + i, bias, HAS_BIAS, COLUMNS, VOCAB, False)
        top, total = add(x, top, total)
        if SMOOTHS:
            plain += tl.where(start + i < VOCAB, x, 0.0)
    log_sum = top + tl.log2(tl.sum(total, axis=0))
    wanted = read(row, label, bias, HAS_BIAS, COLUMNS, VOCAB, True)
    loss = log_sum - (1 - smoothing) * wanted
    if SMOOTHS:
        loss -= smoothing * tl.sum(plain, axis=0) / VOCAB
    tl.store(losses + number, loss * 0.6931471805599453)  # ln(2)

    share = 1.0 / tl.load(counted)
    less = log_sum - tl.log2(share)
    for_all = share * smoothing / VOCAB
    tl.debug_barrier()  # everybody has read the label's score
    for start in tl.range(0, inside, WIDTH, num_stages=3):
        x = read(row, start + i, bias, HAS_BIAS, COLUMNS, VOCAB, True)
        tl.store(row + start + i, (tl.exp2(x - less) - for_all).to(kind))
    for start in range(inside, COLUMNS, WIDTH):
        x = read(row, start + i, bias, HAS_BIAS, COLUMNS, VOCAB, False)
        gradient = tl.where(start + i < VOCAB, tl.exp2(x - less) - for_all, 0.0)
        tl.store(row + start + i, gradient.to(kind), mask=start + i < COLUMNS)
    tl.debug_barrier()  # the label's was written like all others: now it is put right
    tl.store(row + label, (tl.exp2(wanted - less) - for_all - share * (1 - smoothing)).to(kind))


@torch.library.custom_op("clearhead::cross_entropy_", mutates_args=("scores",))
def cross_entropy_(
    scores: Tensor, bias: Tensor | None, labels: Tensor, counted: Tensor, vocab: int, smoothing: float
) -> Tensor:
    rows, columns = scores.shape
    losses = scores.new_empty(rows, dtype=torch.float32)
    width = min(8192, max(512, triton.next_power_of_2(vocab)))
    with torch.cuda.device_of(scores):  # Triton starts kernels on the device that is chosen, not where tensors are
        kernel[(rows,)](
            scores,
            bias if bias is not None else scores,
            labels,
            counted,
            losses,
            smoothing,
            HAS_BIAS=bias is not None,
            SMOOTHS=smoothing > 0,
            COLUMNS=columns,
            VOCAB=vocab,
            WIDTH=width,
            num_warps=width // 512,
        )
    return losses


@cross_entropy_.register_fake
def _(scores, bias, labels, counted, vocab, smoothing):
    return scores.new_empty(scores.shape[0], dtype=torch.float32)


def loss_and_gradient(
    scores: Tensor, bias: Tensor | None, labels: Tensor, counted: Tensor, vocab: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """As cross_entropy.loss_and_gradient; the gradient is written over the scores."""
    return torch.ops.clearhead.cross_entropy_(scores, bias, labels, counted, vocab, smoothing), scores
