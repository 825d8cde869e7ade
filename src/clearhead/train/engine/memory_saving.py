"""Training in less memory: the loss in chunks of positions, gradient checkpointing, what to say when it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from clearhead.errors import ClearheadError, TrainingStopped
from clearhead.models import Model
from clearhead.models.heads import language_heads
from clearhead.nn import cross_entropy

CHUNKS = {"cuda": 16_384, "cpu": 1_024}  # positions whose scores are held at once


def save_memory(
    model: Model, device: torch.device, chunk: int | None = None, gradient_checkpointing: bool = False
) -> None:
    """
    chunk       positions per stretch of the vocabulary loss; 0: all at once. None: stretches where there is a kernel
                for them, which makes them the quicker way too
    gradient_checkpointing   keep only what goes into each layer, and compute its inside again on the way back
    """
    for head in language_heads(model):
        has_kernel = cross_entropy.prepare(device.type)
        usual = CHUNKS.get(device.type, 0) if has_kernel or device.type == "cuda" else 0
        head.chunk = usual if chunk is None else chunk
    for stack in model.stacks.values():
        stack.gradient_checkpointing = gradient_checkpointing


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Where memory runs out, say what needs less of it."""
    try:
        yield
    except ClearheadError:
        raise
    except (MemoryError, RuntimeError) as error:
        message = str(error)
        is_memory_error = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not is_memory_error and not re.search(r"can't allocate memory|not enough memory|out of memory", message):
            raise
        raise TrainingStopped(
            f"There is not enough memory ({(message.splitlines() or [type(error).__name__])[0][:200]}). "
            "What needs less, with the same result: batch.gradient_accumulation_steps=2 (or 4, 8 …), "
            "gradient_checkpointing=true, loss_chunk_size=4096. With another: a smaller batch.size or batch.length, or "
            "lora. Then run it again."
        ) from error
