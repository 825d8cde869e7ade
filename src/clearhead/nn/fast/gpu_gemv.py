"""One row times a matrix on a CUDA device: every weight is read once, so all that counts is to read them fast.

The kernel is Triton's (`gpu_kernels.product`). `gemv` is an operator that can be compiled with what surrounds it;
`product` also takes the norm before, the activation and the sum after. `prepare` loads it, where there is a Triton.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.nn.torch_internals import has_triton

HALF = (torch.bfloat16, torch.float16)
WIDEST = 8192  # inputs that are read at once
_kernels: Any = None  # gpu_kernels, once it is loaded; compiled code must not load it on its way


def prepare() -> bool:
    """Load the kernels, once; False where there is no Triton."""
    global _kernels
    if _kernels is None and has_triton():
        from clearhead.nn.fast import gpu_kernels

        _kernels = gpu_kernels
        torch.library.triton_op("clearhead::gemv", _gemv, mutates_args={})
    return _kernels is not None


def usable(x: Tensor, weight: Tensor) -> bool:
    """One row, half precision, a matrix with its rows in a piece; and the kernel is there."""
    return (
        _kernels is not None
        and x.is_cuda
        and x.dtype in HALF
        and x.numel() == weight.shape[1]
        and weight.dtype == x.dtype
        and weight.is_contiguous()
    )


def gemv(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (…, in) · weight (out, in)ᵀ + bias, summed in fp32 and rounded once."""
    y: Tensor = torch.ops.clearhead.gemv(x.contiguous(), weight, bias)
    return y.view(*x.shape[:-1], weight.shape[0])


def _gemv(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = x.new_empty(weight.shape[0])
    launch(torch.library.wrap_triton(_kernels.product), x, weight, bias, y)
    return y


def product(
    x: Tensor,  # (in,)
    linear: nn.Linear,
    y: Tensor,  # (out,)
    *,
    norm: nn.LayerNorm | None = None,
    activation: str = "",
    residual: Tensor | None = None,  # (out,); may be y
    dependent: bool = False,
) -> None:
    """y = residual + activation(linear(norm(x)))"""
    launch(_kernels.product, x, linear.weight, linear.bias, y, norm, activation, residual, dependent)


def tile(ins: int, outs: int) -> tuple[int, int, int]:
    """(inputs read at once, outputs, warps) of a program: enough in flight to keep memory busy, as measured."""
    width = min(WIDEST, max(16, 1 << (ins - 1).bit_length()))
    return (width, 8 if width <= 2048 else 2, 4)


def options(warps: int, dependent: bool) -> dict[str, Any]:
    """How a kernel is launched: dependent ones start while the one before still runs."""
    return {"num_warps": warps, "launch_pdl": True} if dependent else {"num_warps": warps}


def launch(
    kernel: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    y: Tensor,
    norm: nn.LayerNorm | None = None,
    activation: str = "",
    residual: Tensor | None = None,
    dependent: bool = False,
) -> None:
    outs, ins = weight.shape
    width, rows, warps = tile(ins, outs)
    gain, shift = (None, None) if norm is None else (norm.weight, norm.bias)
    kernel[(-(-outs // rows),)](
        x,
        weight,
        *(x if part is None else part for part in (bias, gain, shift, residual)),
        y,
        outs,
        0.0 if norm is None else norm.eps,
        INS=ins,
        WIDTH=width,
        ROWS=rows,
        NORM=norm is not None,
        GAIN=gain is not None,
        SHIFT=shift is not None,
        BIAS=bias is not None,
        ADD=residual is not None,
        ACTIVATION=activation,
        DEPENDENT=dependent,
        **options(warps, dependent),
    )
