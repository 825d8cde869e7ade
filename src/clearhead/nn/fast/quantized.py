"""Weights of eight or four bits: less memory to hold, and above all less to read for every token. Products stay fp32.

int8   one scale for each output; a weight is code · scale, codes -127 to 127
int4   one scale for each group of 32 inputs; codes -8 to 7, two in a byte (the layout is told in cpu_kernels.c)

Only weights are rounded to so few bits: inputs, biases, norms and sums are fp32. Products go to the native kernels.
Many rows (a prompt) are multiplied there as whole numbers of 16 bits with a scale for each 32 inputs, off by 1/65,534
of the largest of them at most. Without those kernels, many rows are multiplied by fp32 blocks that are unpacked, used
and forgotten. It is for the CPU and for use, not for training.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError, did_you_mean
from clearhead.nn.fast import cpu_kernels
from clearhead.nn.linear import Linear, is_plain, many_rows
from clearhead.nn.recurrent import RecurrentBase

log = logging.getLogger("clearhead")

KINDS = {"int8": cpu_kernels.I8, "int4": cpu_kernels.I4}
FEW = 64  # rows for which reading quantised weights beats unpacking them
BLOCK = 1 << 20  # weights that are unpacked at a time
SMALLEST = cpu_kernels.GROUP  # a matrix with fewer inputs or outputs stays as it is: there is nothing to gain


class QuantizedMatrix(nn.Module):
    """The codes and scales of one (outputs, inputs) matrix; a linear layer and an embedding may share it."""

    codes: Tensor  # int8: (outputs, inputs) int8; int4: (outputs, groups · 16) uint8
    scales: Tensor  # int8: (outputs, 1); int4: (outputs, groups)

    def __init__(self, weight: Tensor, kind: str) -> None:
        super().__init__()
        self.kind = check_kind(kind)
        self.out_features, self.in_features = weight.shape
        step = max(1, BLOCK // max(1, self.in_features))
        encode = _to_int8 if kind == "int8" else _to_int4
        parts = [encode(weight[n : n + step].detach().float()) for n in range(0, self.out_features, step)]
        self.register_buffer("codes", torch.cat([codes for codes, _ in parts]))
        self.register_buffer("scales", torch.cat([scales for _, scales in parts]))
        if not bool(torch.isfinite(self.scales).all()):
            raise InputError("The weights hold infinities or NaN, which cannot be rounded to a few bits.")

    def rows(self, index: Tensor | slice) -> Tensor:
        """Some rows of the matrix in fp32: (…, inputs)."""
        codes, scales = self.codes[index], self.scales[index]
        if self.kind == "int8":
            return codes.float() * scales
        groups = codes.unflatten(-1, (-1, cpu_kernels.GROUP // 2))
        weights = torch.cat([groups & 15, groups >> 4], -1).float().sub_(8).mul_(scales.unsqueeze(-1))
        return weights.flatten(-2)[..., : self.in_features]

    def refuse_to_leave(self, move: Callable[[Tensor], Tensor]) -> None:
        """Scales in a narrower type would be other weights, and the products run on the CPU."""
        moved = move(self.scales[:0])
        if moved.dtype is not torch.float32:
            raise InputError(
                f"A quantised model computes in float32 and cannot become {str(moved.dtype).removeprefix('torch.')}. "
                "Load it without quantize= and with the dtype."
            )
        if moved.device.type != "cpu":
            raise InputError(
                f"Quantised products run on the CPU here, not on {moved.device}. Load the model without quantize= "
                "(dtype='bfloat16' halves its memory)."
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self.refuse_to_leave(fn)
        return super()._apply(fn, recurse)

    def extra_repr(self) -> str:
        return f"{self.out_features} × {self.in_features}, {self.kind}"


class QuantizedLinear(nn.Module):
    """Stands where a Linear stood. Gradients reach its input (explanations need them), never its weights."""

    def __init__(self, matrix: QuantizedMatrix, bias: Tensor | None = None) -> None:
        super().__init__()
        self.matrix = matrix
        self.in_features, self.out_features = matrix.in_features, matrix.out_features
        self.bias = None if bias is None else nn.Parameter(bias.detach().float(), requires_grad=False)

    @property
    def weight(self) -> Tensor:
        """The whole matrix, unpacked: (outputs, inputs) in fp32. For looking at; it costs what it saves."""
        return self.matrix.rows(slice(None))

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype is not torch.float32 or x.device.type != "cpu":
            raise InputError(f"A quantised layer takes float32 on the CPU, not {x.dtype} on {x.device}.")
        if torch.compiler.is_compiling() or not is_plain(x) or (torch.is_grad_enabled() and x.requires_grad):
            return F.linear(x, self.weight, self.bias)
        if x.shape[-1:] != (self.in_features,):
            raise InputError(f"The layer takes vectors of {self.in_features} numbers, not {tuple(x.shape)}.")
        rows = x.numel() // self.in_features
        if cpu_kernels.loaded is not None and (rows <= FEW or cpu_kernels.loaded.has_many):
            return self._in_c(cpu_kernels.loaded, x, rows)
        flat = x.reshape(rows, self.in_features)
        y = x.new_empty(rows, self.out_features)
        step = max(1, BLOCK // self.in_features)
        for n in range(0, self.out_features, step):
            part = slice(n, n + step)
            y[:, part] = many_rows(flat, self.matrix.rows(part), None if self.bias is None else self.bias[part])
        return y.view(*x.shape[:-1], self.out_features)

    def _in_c(self, kernels: cpu_kernels.Kernels, x: Tensor, rows: int) -> Tensor:
        buffers, bias = self.matrix._buffers, self._parameters.get("bias")
        y = x.new_empty((*x.shape[:-1], self.out_features))
        if rows:
            x = x.contiguous()
            kernels.linear(
                KINDS[self.matrix.kind],
                x.data_ptr(),
                buffers["codes"].data_ptr(),  # type: ignore[union-attr]
                buffers["scales"].data_ptr(),  # type: ignore[union-attr]
                None if bias is None else bias.data_ptr(),
                y.data_ptr(),
                rows,
                self.in_features,
                self.out_features,
                torch.get_num_threads() if y.numel() * self.in_features > cpu_kernels.SMALL else 1,
            )
        return y

    def extra_repr(self) -> str:
        return f"bias={self.bias is not None}"


class QuantizedEmbedding(nn.Module):
    """Rows of a quantised matrix by id: an embedding that is the output matrix as well."""

    def __init__(self, matrix: QuantizedMatrix) -> None:
        super().__init__()
        self.matrix = matrix
        self.num_embeddings, self.embedding_dim = matrix.out_features, matrix.in_features

    @property
    def weight(self) -> Tensor:
        return self.matrix.rows(slice(None))

    def forward(self, ids: Tensor) -> Tensor:
        return self.matrix.rows(ids)


def quantize_(model: nn.Module, kind: str) -> nn.Module:
    """Round the matrices of a model, in place and one after the other; what is left becomes fp32 and stops learning.

    Every `Linear` with at least 32 inputs and outputs is replaced; an embedding that shares its matrix (a tied output)
    goes on sharing it. So are the matrices of recurrent layers, which then take their steps one by one. All else (other
    embeddings, biases, norms) stays.
    """
    check_kind(kind)
    if any(isinstance(module, QuantizedMatrix) for module in model.modules()):
        raise InputError("The model is quantised already. To choose other bits, load it again.")
    devices = {str(p.device) for p in model.parameters()} - {"cpu"}
    if devices:
        raise InputError(f"Quantised products run on the CPU here, and the model is on {', '.join(sorted(devices))}.")
    if cpu_kernels.load() is None:
        log.warning("Quantised products will be slow: there are no native kernels (%s).", cpu_kernels.why_not())
    users_of: dict[int, list[tuple[nn.Module, str]]] = {}  # a weight -> the modules that share it: (parent, name)
    for parent in model.modules():
        for name, child in parent._modules.items():  # all of them, even one module under two names
            if isinstance(child, Linear | nn.Embedding):
                users_of.setdefault(id(child.weight), []).append((parent, name))
    for users in users_of.values():
        layers = {id(child): child for parent, name in users if isinstance(child := getattr(parent, name), Linear)}
        if not layers:
            continue
        weight = next(iter(layers.values())).weight
        if min(weight.shape) < SMALLEST:
            continue
        matrix = QuantizedMatrix(weight, kind)
        made: dict[int, nn.Module] = {key: QuantizedLinear(matrix, layer.bias) for key, layer in layers.items()}
        for parent, name in users:
            old = getattr(parent, name)
            setattr(parent, name, made.get(id(old)) or made.setdefault(id(old), QuantizedEmbedding(matrix)))
        del weight, layers, old  # the fp32 matrix goes before the next one comes
    for rnn in [module for module in model.modules() if isinstance(module, RecurrentBase)]:
        rnn.use_linears(lambda weight, bias: _rounded(weight, bias, kind))
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():  # a copy, so that no file stays mapped for a handful of biases
            tensor.requires_grad_(False)
            tensor.data = tensor.data.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    return model.eval()


def _rounded(weight: Tensor, bias: Tensor | None, kind: str) -> nn.Module:
    """A matrix that is no layer's: rounded where there is something to gain."""
    if min(weight.shape) >= SMALLEST:
        return QuantizedLinear(QuantizedMatrix(weight, kind), bias)
    layer = Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight, layer.bias = nn.Parameter(weight), None if bias is None else nn.Parameter(bias)  # type: ignore[assignment]
    return layer


def check_kind(kind: str) -> str:
    if kind not in KINDS:
        raise InputError(f"Weights cannot be quantised to {kind!r}.{did_you_mean(str(kind), KINDS)} Known: int8, int4.")
    return kind


def _to_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, inputs) fp32 -> codes, scales"""
    scales = weight.abs().amax(-1, keepdim=True) / 127
    return (weight / _nonzero(scales)).round_().to(torch.int8), scales


def _to_int4(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The weight of largest size in a group becomes -8 exactly, so that all sixteen codes are used."""
    groups = F.pad(weight, (0, -weight.shape[1] % cpu_kernels.GROUP)).unflatten(-1, (-1, cpu_kernels.GROUP))
    low, high = groups.aminmax(dim=-1, keepdim=True)
    scales = torch.where(high > -low, high, low) / -8
    codes = (groups / _nonzero(scales)).round_().clamp_(-8, 7).add_(8).to(torch.uint8)
    first, second = codes.chunk(2, -1)
    return (first | second << 4).flatten(-2), scales.squeeze(-1)


def _nonzero(scales: Tensor) -> Tensor:
    return torch.where(scales == 0, 1, scales)
