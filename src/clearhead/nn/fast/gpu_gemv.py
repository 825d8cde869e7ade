"""One row times a matrix (gemv) on a CUDA device: every weight is read once, so all that counts is to read them fast.

The kernel is Triton's (`gpu_kernels.gemv`). `gemv` is an operator that can be compiled with what surrounds it;
`fused_gemv` also takes the norm before, the activation and the sum after. `prepare` loads it, where there is a Triton.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.nn.torch_internals import has_triton

HALF = (torch.bfloat16, torch.float16)
MAX_WIDTH = 8192  # inputs that are read at once
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
    """One row, half precision, a contiguous matrix; and the kernel is there."""
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
    _launch(torch.library.wrap_triton(_kernels.gemv), x, weight, bias, y)
    return y


def fused_gemv(
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
    _launch(_kernels.gemv, x, linear.weight, linear.bias, y, norm, activation, residual, dependent)


def tile(in_features: int) -> tuple[int, int, int]:
    """(inputs read at once, outputs, warps) of a program: enough in flight to keep memory busy, as measured."""
    width = min(MAX_WIDTH, max(16, 1 << (in_features - 1).bit_length()))
    return (width, 8 if width <= 2048 else 2, 4)


def launch_options(warps: int, dependent: bool) -> dict[str, Any]:
    """How a kernel is launched: dependent ones start while the one before still runs."""
    return {"num_warps": warps, "launch_pdl": True} if dependent else {"num_warps": warps}


def _launch(
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
    out_features, in_features = weight.shape
    width, rows, warps = tile(in_features)
    norm_weight, norm_bias = (None, None) if norm is None else (norm.weight, norm.bias)
    kernel[(-(-out_features // rows),)](
        x,
        weight,
        # in the place of what is missing any pointer will do: it is not read
        *(x if part is None else part for part in (bias, norm_weight, norm_bias, residual)),
        y,
        out_features,
        0.0 if norm is None else norm.eps,
        IN=in_features,
        WIDTH=width,
        ROWS=rows,
        NORM=norm is not None,
        HAS_NORM_WEIGHT=norm_weight is not None,
        HAS_NORM_BIAS=norm_bias is not None,
        HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None,
        ACTIVATION=activation,
        DEPENDENT=dependent,
        **launch_options(warps, dependent),
    )
