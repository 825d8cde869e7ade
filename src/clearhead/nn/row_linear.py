"""One row times a matrix on a CUDA device: every weight is read once, so all that counts is to read them fast.

A Triton kernel; it can be compiled into a graph with what surrounds it. `prepare` makes it, where there is a Triton.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._triton import has_triton

HALF = (torch.bfloat16, torch.float16)
_ready = False  # whether the kernel has been made; compiled code must not make it on its way


def prepare() -> bool:
    """Make the kernel, once; False where there is no Triton."""
    global _ready
    if not _ready and has_triton():
        _make()
        _ready = True
    return _ready


def usable(x: Tensor, weight: Tensor) -> bool:
    """One row, half precision, a matrix with its rows in a piece; and the kernel is there."""
    return (
        _ready
        and x.is_cuda
        and x.dtype in HALF
        and x.numel() == weight.shape[1]
        and weight.dtype == x.dtype
        and weight.is_contiguous()
    )


def row_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (…, in) · weight (out, in)ᵀ + bias, summed in fp32 and rounded once."""
    y: Tensor = torch.ops.clearhead.row_linear(x.contiguous(), weight, bias)
    return y.view(*x.shape[:-1], weight.shape[0])


def _make() -> None:
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

    # (outputs of a program, inputs read at once, warps): wide reads keep more of the memory busy
    sizes = [(1, 1024, 4), (1, 2048, 4), (1, 2048, 8), (1, 4096, 8), (1, 8192, 8), (2, 1024, 4), (2, 2048, 8)]
    sizes += [(2, 4096, 8), (4, 1024, 8), (4, 2048, 8), (8, 512, 8), (8, 1024, 8)]
    configs = [triton.Config({"ROWS": rows, "WIDTH": width}, num_warps=warps) for rows, width, warps in sizes]

    @triton.autotune(configs=configs, key=["outs", "ins"])
    @triton.jit
    def kernel(  # type: ignore[no-untyped-def]
        x, w, b, y, outs, ins, HAS_BIAS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
    ):
        """A program makes ROWS outputs, a stretch of WIDTH inputs at a time."""
        o = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        there = o < outs
        total = tl.zeros((ROWS, WIDTH), tl.float32)
        for start in range(0, ins, WIDTH):
            i = start + tl.arange(0, WIDTH)
            given = tl.load(x + i, mask=i < ins, other=0.0).to(tl.float32)
            place = w + o[:, None].to(tl.int64) * ins + i[None, :]
            weights = tl.load(place, mask=there[:, None] & (i < ins)[None, :], other=0.0)
            total += weights.to(tl.float32) * given[None, :]
        out = tl.sum(total, axis=1)
        if HAS_BIAS:
            out += tl.load(b + o, mask=there, other=0.0).to(tl.float32)
        tl.store(y + o, out.to(y.dtype.element_ty), mask=there)

    @torch.library.triton_op("clearhead::row_linear", mutates_args={})
    def op(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        outs, ins = weight.shape
        y = x.new_empty(outs)
        grid = lambda meta: (triton.cdiv(outs, meta["ROWS"]),)  # noqa: E731
        torch.library.wrap_triton(kernel)[grid](
            x, weight, bias if bias is not None else x, y, outs, ins, HAS_BIAS=bias is not None
        )
        return y
