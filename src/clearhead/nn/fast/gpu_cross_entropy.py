"""Logits of a large vocabulary → loss and gradient on a CUDA device, in one Triton kernel and in the logits' own place.

`nn/cross_entropy.py` says what it computes. Moving the numbers is what takes the time, so they are loaded 16 bytes at a
time (no mask ends within a load) and ahead of the arithmetic, and the gradient needs no tensor of its own. On an H200
with GPT-2's vocabulary, all of it takes 1.3 times as long as copying the logits.

Import this where there is a Triton.
"""
# mypy: ignore-errors

import torch
import triton
import triton.language as tl
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # of logits


@triton.jit
def load_logits(
    row,
    i,
    bias,
    HAS_BIAS: tl.constexpr,
    COLUMNS: tl.constexpr,
    VOCAB: tl.constexpr,
    INSIDE: tl.constexpr,  # no i is beyond the vocabulary
):
    """Logits with their bias, as powers of two (exp2 is what the hardware has); -inf beyond the vocabulary."""
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
def online_logsumexp(x, highest, total):
    """The largest logit so far, and the sum of the powers below it, lane by lane."""
    higher = tl.maximum(highest, tl.max(x, axis=0))
    return higher, total * tl.exp2(highest - higher) + tl.exp2(x - higher)


@triton.jit
def cross_entropy_kernel(
    logits,  # (rows, COLUMNS); the gradient afterwards
    bias,  # (VOCAB,)
    labels,  # (rows,)
    count,
    losses,  # (rows,)
    smoothing,
    HAS_BIAS: tl.constexpr,
    HAS_SMOOTHING: tl.constexpr,
    COLUMNS: tl.constexpr,
    VOCAB: tl.constexpr,
    WIDTH: tl.constexpr,  # logits read at once
):
    """A program takes a row: once through for the log-sum-exp, once more to turn it into its gradient."""
    number = tl.program_id(0).to(tl.int64)
    row = logits + number * COLUMNS
    dtype = logits.dtype.element_ty
    label = tl.load(labels + number)
    inside: tl.constexpr = VOCAB // WIDTH * WIDTH  # up to here nobody needs to look for the end
    i = tl.arange(0, WIDTH)
    if label == -100:
        for start in range(0, COLUMNS, WIDTH):
            tl.store(row + start + i, tl.zeros((WIDTH,), dtype), mask=start + i < COLUMNS)
        tl.store(losses + number, 0.0)
        return

    highest = -1e30  # less than any logit, yet a number
    total = tl.zeros((WIDTH,), tl.float32)
    logit_sum = tl.zeros((WIDTH,), tl.float32)  # the sum of the logits, for smoothing
    for start in tl.range(0, inside, WIDTH, num_stages=3):
        x = load_logits(row, start + i, bias, HAS_BIAS, COLUMNS, VOCAB, True)
        highest, total = online_logsumexp(x, highest, total)
        if HAS_SMOOTHING:
            logit_sum += x
    for start in range(inside, COLUMNS, WIDTH):
        x = load_logits(row, start + i, bias, HAS_BIAS, COLUMNS, VOCAB, False)
        highest, total = online_logsumexp(x, highest, total)
        if HAS_SMOOTHING:
            logit_sum += tl.where(start + i < VOCAB, x, 0.0)
    log_sum = highest + tl.log2(tl.sum(total, axis=0))
    target = load_logits(row, label, bias, HAS_BIAS, COLUMNS, VOCAB, True)
    loss = log_sum - (1 - smoothing) * target
    if HAS_SMOOTHING:
        loss -= smoothing * tl.sum(logit_sum, axis=0) / VOCAB
    tl.store(losses + number, loss * 0.6931471805599453)  # ln(2)

    inverse_count = 1.0 / tl.load(count)
    log_scale = log_sum - tl.log2(inverse_count)
    smoothed = inverse_count * smoothing / VOCAB
    tl.debug_barrier()  # everybody has read the label's logit
    for start in tl.range(0, inside, WIDTH, num_stages=3):
        x = load_logits(row, start + i, bias, HAS_BIAS, COLUMNS, VOCAB, True)
        tl.store(row + start + i, (tl.exp2(x - log_scale) - smoothed).to(dtype))
    for start in range(inside, COLUMNS, WIDTH):
        x = load_logits(row, start + i, bias, HAS_BIAS, COLUMNS, VOCAB, False)
        gradient = tl.where(start + i < VOCAB, tl.exp2(x - log_scale) - smoothed, 0.0)
        tl.store(row + start + i, gradient.to(dtype), mask=start + i < COLUMNS)
    tl.debug_barrier()  # the label's was written like all others: now it is put right
    tl.store(row + label, (tl.exp2(target - log_scale) - smoothed - inverse_count * (1 - smoothing)).to(dtype))


@torch.library.custom_op("clearhead::cross_entropy_", mutates_args=("logits",))
def cross_entropy_(
    logits: Tensor, bias: Tensor | None, labels: Tensor, count: Tensor, vocab: int, smoothing: float
) -> Tensor:
    rows, columns = logits.shape
    losses = logits.new_empty(rows, dtype=torch.float32)
    width = min(8192, max(512, triton.next_power_of_2(vocab)))
    with torch.cuda.device_of(logits):  # Triton starts kernels on the device that is chosen, not where tensors are
        cross_entropy_kernel[(rows,)](
            logits,
            bias if bias is not None else logits,
            labels,
            count,
            losses,
            smoothing,
            HAS_BIAS=bias is not None,
            HAS_SMOOTHING=smoothing > 0,
            COLUMNS=columns,
            VOCAB=vocab,
            WIDTH=width,
            num_warps=width // 512,
        )
    return losses


@cross_entropy_.register_fake
def _(logits, bias, labels, count, vocab, smoothing):
    return logits.new_empty(logits.shape[0], dtype=torch.float32)


def loss_and_gradient(
    logits: Tensor, bias: Tensor | None, labels: Tensor, count: Tensor, vocab: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """As cross_entropy.loss_and_gradient; the gradient is written over the logits."""
    return torch.ops.clearhead.cross_entropy_(logits, bias, labels, count, vocab, smoothing), logits
