"""Products of a few rows, in C: compiled once on the user's machine, kept and loaded by native.py.

One token after another means one row at a time (gemv), and torch reads a matrix slowly for one row. `cpu_kernels.c`
reads it as fast as memory gives it, and multiplies with int8 and int4 weights without unpacking them first.
`cpu_decode.py` hands it all layers at once.

Nothing happens at import. `load()` compiles and loads (a second or two the first time, milliseconds later) and is
called by what needs it: generating on the CPU, or loading a quantised model. Where that is not possible it gives None,
`why_not()` says why, and torch does the work. CLEARHEAD_NATIVE=0 switches it off.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from clearhead import native
from clearhead.nn.torch_internals import openmp_functions

log = logging.getLogger("clearhead")

F32, BF16, I8, I4 = range(4)  # how a matrix is stored; see cpu_kernels.c
GROUP = 32  # inputs that share a scale in int4
SMALL = 1 << 16  # multiplications for which a second thread is not worth waking
SOURCE = Path(__file__).with_name("cpu_kernels.c")

_POINTER, _LONG, _INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int


class Kernels:
    """The loaded library.

    linear(kind, x, w, scales, bias, y, rows, in, out, threads): addresses and sizes; y = x · wᵀ + bias.
    layers(layers, caches, count, x, y, rows, threads): whole layers for one new position of each row; the structs
        `Layer` and `Cache` of cpu_kernels.c, `count` of each, as bytes. Whether it was done.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.linear: Any = library.linear
        self.linear.argtypes = [_INT, *[_POINTER] * 5, *[_LONG] * 3, _INT]
        self.linear.restype = None
        self.layers: Any = library.layers
        self.layers.argtypes = [_POINTER, _POINTER, _LONG, _POINTER, _POINTER, _LONG, _LONG]
        self.layers.restype = _INT
        # whether `linear` is also the fastest for many rows of int8 and int4
        self.has_many: bool = bool(library.has_many())
        self.threaded = _give_threads(library)


loaded: Kernels | None = None  # what `Linear` looks at: it never compiles anything itself
_reason = "nothing has asked for them yet"
_tried = False
_lock = threading.Lock()


def load() -> Kernels | None:
    """The kernels, compiled and loaded if need be; None where that is not possible."""
    global loaded, _reason, _tried
    with _lock:
        if not _tried:
            _tried = True
            try:
                loaded, _reason = open_library(), ""
            except native.UnavailableError as error:
                _reason = str(error)
                log.info("The native kernels are not used: %s.", _reason)
        return loaded


def why_not() -> str:
    """Why there are no native kernels; empty where there are."""
    return "" if loaded is not None else _reason


def open_library(extra_flags: Sequence[str] = ()) -> Kernels:
    """The library, compiled if need be, and seen to multiply."""
    return native.open_library(SOURCE, _tried_out, extra_flags)


def _tried_out(library: ctypes.CDLL) -> Kernels:
    kernels = Kernels(library)
    x, w = torch.arange(70.0), torch.arange(5 * 70.0).view(5, 70).remainder(7)  # small whole numbers: no rounding
    y = torch.empty(5)
    kernels.linear(F32, x.data_ptr(), w.data_ptr(), None, None, y.data_ptr(), 1, 70, 5, 1)
    if not torch.equal(y, w @ x):
        raise native.UnavailableError("the compiled library multiplies wrongly on this machine")
    return kernels


def _give_threads(library: ctypes.CDLL) -> bool:
    """Hand over torch's own OpenMP threads, so that there is one pool. Without them: one thread."""
    functions = openmp_functions()
    if functions is None:
        return False
    library.setup.argtypes = [_POINTER] * 4
    library.setup(*functions)
    return True
