"""What MFU (model FLOPs utilisation) is made of: the FLOPs that training takes, and the machine's peak, measured."""

from __future__ import annotations

import time
from functools import cache

import torch

from clearhead.models import Model
from clearhead.nn.block import Block
from clearhead.nn.multiply_adds import multiply_adds


@cache
def peak_flops_per_second(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Floating-point operations per second of a large matrix product here: the best of a few."""
    size = 8192 if device.type == "cuda" else 1024
    with torch.no_grad():
        a = torch.randn(size, size, device=device).to(dtype)
        best, began = 0.0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            a @ a
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def training_flops(model: Model, length: int) -> float:
    """Per unit (token …), forward and backward: six per weight of every matrix, and the attention at this length.

    The usual count: causal attention is taken as if whole, and what is recomputed does not count.
    """
    scores = 0
    for stack in model.stacks.values():
        for block in (layer for layer in stack.layers if isinstance(layer, Block)):
            parts = (block.attention, block.cross_attention)
            scores += sum(a.heads * a.head_dim * min(length, block.window or length) for a in parts if a is not None)
    return 6 * multiply_adds(model) + 12 * scores
