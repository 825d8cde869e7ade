"""The two ways to train in less memory: the loss in stretches of positions, and layers that are computed twice."""

from __future__ import annotations

import torch

from clearhead.models import Model
from clearhead.nn import Stack, cross_entropy

CHUNK = 16_384  # positions whose scores are held at once, on a GPU


def spare_memory(model: Model, device: torch.device, chunk: int | None = None, recompute: bool = False) -> None:
    """
    chunk       positions per stretch of the vocabulary loss; 0: all at once. None: stretches on a GPU, where they are
                quicker as well
    recompute   keep only what goes into each layer, and compute its inside again on the way back
    """
    head = model.language_head
    if head is not None:
        head.chunk = (CHUNK if device.type == "cuda" else 0) if chunk is None else chunk
        if head.chunk and device.type == "cuda":
            cross_entropy.prepare()
    for stack in (module for module in model.modules() if isinstance(module, Stack)):
        stack.recompute = recompute
