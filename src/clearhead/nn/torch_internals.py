"""All that leans on torch's private parts, in one place: what a new release of torch may break is found here.

Each is a question or a handle that torch has no public name for.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_modules
from torch.utils._triton import has_triton

__all__ = [
    "dynamo_is_loaded",
    "flatten_recurrent_weights",
    "has_global_forward_hooks",
    "has_triton",
    "is_intercepted",
    "onednn_linear",
    "openmp_functions",
    "recompile_limit",
]


def is_intercepted() -> bool:
    """Whether anybody records, transforms or recasts what is done to plain CPU tensors right now."""
    return bool(
        torch._C._len_torch_dispatch_stack()  # a dispatch mode, such as a FLOP counter
        or torch._C._get_tracing_state() is not None  # torch.jit.trace
        or torch.is_autocast_enabled("cpu")
        or forward_ad._current_level >= 0  # forward-mode derivatives
        or torch._C._functorch.peek_interpreter_stack() is not None  # vmap, grad, jvp
    )


def has_global_forward_hooks() -> bool:
    """Whether hooks listen to the forward pass of every module there is."""
    return bool(torch_modules._global_forward_hooks or torch_modules._global_forward_pre_hooks)


def dynamo_is_loaded() -> bool:
    """Whether anything in this process may have been compiled; torch loads its compiler on first use."""
    return "torch._dynamo" in sys.modules


def recompile_limit(count: int) -> AbstractContextManager[None]:
    """Inside, a function may be compiled for so many shapes before torch gives up on it."""
    import torch._dynamo  # slow to load, and only those who compile need it

    patched: AbstractContextManager[None] = torch._dynamo.config.patch(recompile_limit=count)
    return patched


def onednn_linear() -> Callable[[Tensor, Tensor, Tensor | None], Tensor] | None:
    """oneDNN's x · weightᵀ + bias in fp32, which `F.linear` does not always choose; None where torch lacks it."""
    operator = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
    if operator is None:
        return None
    return lambda x, weight, bias: operator(x, weight, bias, "none", [], "")


def flatten_recurrent_weights(first: nn.RNNBase, weights: list[Tensor], layers: int) -> None:
    """Lay the weights of several recurrent layers out as cuDNN reads them, one after the other, as `torch.nn` does for
    its own; else every call copies them. They stay the same parameters. `first`: the lowest layer.

    On several devices each parameter's memory is whoever's who distributes it.
    """
    places = [w.data_ptr() for w in weights]
    if first.__dict__.get("_laid_out_at") == places:
        return
    first.__dict__["_laid_out_at"] = places
    plain = all(type(w) is nn.Parameter and w.dtype == weights[0].dtype for w in weights)
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if distributed or not plain or not torch.backends.cudnn.is_acceptable(weights[0]):
        return
    from torch.backends.cudnn.rnn import get_cudnn_mode

    with torch.no_grad(), torch.cuda.device_of(weights[0]):
        if torch._use_cudnn_rnn_flatten_weight():
            per_layer = (4 if first.bias else 2) + (first.proj_size > 0)
            sizes = (first.input_size, get_cudnn_mode(first.mode), first.hidden_size, first.proj_size, layers)
            torch._cudnn_rnn_flatten_weight(weights, per_layer, *sizes, True, first.bidirectional)
            first.__dict__["_laid_out_at"] = [w.data_ptr() for w in weights]


def openmp_functions() -> list[ctypes.c_void_p] | None:
    """GOMP_parallel, omp_get_thread_num, omp_get_num_threads, GOMP_barrier of the runtime that torch itself uses.

    None where torch was built with another one.
    """
    try:
        library = ctypes.CDLL(torch._C.__file__)  # its symbols include those of the runtime
        functions = (
            library.GOMP_parallel,
            library.omp_get_thread_num,
            library.omp_get_num_threads,
            library.GOMP_barrier,
        )
    except (OSError, AttributeError):
        return None
    return [ctypes.cast(function, ctypes.c_void_p) for function in functions]
