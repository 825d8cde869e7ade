"""Logits of a large vocabulary → loss and gradient on a CPU, in C and in the logits' own place.

`nn/cross_entropy.py` says what it computes, cpu_cross_entropy.c how. Nothing happens at import: `load()` compiles it
once on the user's machine, as native.py does; without a compiler torch does the work.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead import native
from clearhead.nn.torch_internals import openmp_functions

log = logging.getLogger("clearhead")

SOURCE = Path(__file__).with_name("cpu_cross_entropy.c")
# what lets a compiler keep several sums at once; nan and infinity stay what they are
FLAGS = ("-fno-trapping-math", "-fno-signed-zeros")
DTYPES = (torch.float32, torch.bfloat16)  # of logits

_POINTER, _LONG, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float


@cache
def load() -> Any:
    """The compiled function; None where it cannot be had."""
    try:
        return native.open_library(SOURCE, _ready, FLAGS, name="cross-entropy")
    except native.UnavailableError as error:
        log.info("The native loss is not used: %s.", error)
        return None


def _ready(library: ctypes.CDLL) -> Any:
    function = library.cross_entropy
    function.argtypes = [_POINTER, _INT, _POINTER, _POINTER, _POINTER, _LONG, _LONG, _FLOAT, _FLOAT, _INT]
    function.restype = _INT
    if (functions := openmp_functions()) is not None:  # torch's own threads
        library.setup.argtypes = [_POINTER] * 3
        library.setup(*functions[:3])
    return function


def loss_and_gradient(
    logits: Tensor, bias: Tensor | None, labels: Tensor, count: Tensor, vocab: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """As nn/cross_entropy.py's; the gradient takes the place of the logits. (positions, vocab)"""
    losses = torch.empty(len(logits), dtype=torch.float32)
    added = None if bias is None else bias.float().contiguous()
    wanted = labels.contiguous()
    done = load()(
        logits.data_ptr(), int(logits.dtype == torch.bfloat16), None if added is None else added.data_ptr(),
        wanted.data_ptr(), losses.data_ptr(), len(logits), vocab, smoothing, 1.0 / float(count),
        torch.get_num_threads(),
    )  # fmt: skip
    if not done:
        raise MemoryError("There is no memory left for a row of logits.")
    return losses, logits
