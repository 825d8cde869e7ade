"""A matrix with a bias, as torch has it, that also knows the fast ways on a CPU.

Few rows (one token after another) go to the native kernels once something has loaded them; many rows to oneDNN, which
is a tenth faster than torch's own choice. Everything else (gradients, GPUs, other types, compiling, tracing) is
torch's. All are fp32 products that differ in the order of their sums alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.fast import cpu_kernels, gpu_gemv
from clearhead.nn.torch_internals import is_intercepted, onednn_linear

FEW = 8  # rows that the native kernels multiply
MANY = 64  # rows from which oneDNN is faster than F.linear

PLAIN = (Tensor, nn.Parameter)  # and no subclass, which may be anything

_onednn_linear = onednn_linear()


class Linear(nn.Linear):
    """nn.Linear; the same parameters under the same names."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and cpu_kernels.loaded is not None:
            # straight from the table: nn.Module's attribute lookup would cost a quarter of the whole call
            y = fast_linear(cpu_kernels.loaded, x, self._parameters.get("weight"), self._parameters.get("bias"))
            if y is not None:
                return y
        weight, bias = self.weight, self.bias
        if x.is_cuda and not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)):
            if gpu_gemv.usable(x, weight):
                return gpu_gemv.gemv(x, weight, bias)
            if weight.shape[0] % 8 and weight.shape[0] > 1024 and x.dtype in gpu_gemv.HALF:
                # Tensor cores need rows of a multiple of 8; GPT-2's 50,257 words would take five times as long.
                even = weight.shape[0] // 8 * 8
                parts = (slice(even), slice(even, None))
                return torch.cat([F.linear(x, weight[n], None if bias is None else bias[n]) for n in parts], -1)
        return F.linear(x, weight, bias)


def is_fast(x: Tensor, weight: Tensor) -> bool:
    """Whether the native kernels would multiply these: few rows, on a CPU, without gradients."""
    return (
        cpu_kernels.loaded is not None
        and not torch.compiler.is_compiling()
        and x.is_cpu
        and x.numel() <= FEW * x.shape[-1]
        and not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear, with the fast ways on a CPU, for a matrix that is no `Linear`."""
    y = fast_linear(cpu_kernels.loaded, x, weight, bias) if cpu_kernels.loaded and is_fast(x, weight) else None
    return F.linear(x, weight, bias) if y is None else y


def is_plain(x: Tensor) -> bool:
    """A tensor on the CPU, and nobody who records, transforms or recasts what is done to it."""
    return type(x) in PLAIN and x.is_cpu and not is_intercepted()


def fast_linear(kernels: cpu_kernels.Kernels, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """x · weightᵀ + bias; None where torch should do it."""
    if weight is None or (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)):
        return None
    dtype = weight.dtype
    if x.dtype is not dtype or type(weight) not in PLAIN or not weight.is_cpu or not is_plain(x):
        return None
    if weight.layout is not torch.strided:
        return None
    if bias is not None and (bias.dtype is not dtype or type(bias) not in PLAIN):
        return None
    out_features, in_features = weight.shape
    shape = x.shape
    if not shape or shape[-1] != in_features or not in_features:
        return None  # torch says what is wrong
    rows = x.numel() // in_features
    if dtype is torch.float32 and rows >= MANY:
        return many_rows(x, weight, bias)
    if rows > FEW or not weight.is_contiguous():
        return None
    if dtype is torch.float32:
        kind = cpu_kernels.F32
    elif dtype is torch.bfloat16:
        kind = cpu_kernels.BF16  # summed in fp32 and rounded once
        x, bias = x.float(), None if bias is None else bias.float()
    else:
        return None
    y = x.new_empty((*shape[:-1], out_features))
    if rows:
        x = x.contiguous()
        kernels.linear(
            kind,
            x.data_ptr(),
            weight.data_ptr(),
            None,
            None if bias is None else bias.data_ptr(),
            y.data_ptr(),
            rows,
            in_features,
            out_features,
            torch.get_num_threads() if y.numel() * in_features > cpu_kernels.SMALL else 1,
        )
    return y if dtype is torch.float32 else y.to(dtype)


def many_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """An fp32 product of many rows on the CPU."""
    return F.linear(x, weight, bias) if _onednn_linear is None or not x.numel() else _onednn_linear(x, weight, bias)
