"""What cpu_kernels.c must know of one layer: its matrices, norms and sizes, as the struct `Layer`.

`pack_layer` looks at everything that the plain path would look at. Where all of it is the plain case it gives the
struct, and what it has looked at; anywhere else None, and the plain path must run.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.activations import Activation, gelu_new
from clearhead.nn.attention import Attention
from clearhead.nn.fast import cpu_kernels
from clearhead.nn.fast.quantized import KINDS, QuantizedLinear, QuantizedMatrix
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.linear import PLAIN, Linear

# as cpu_kernels.c numbers them
ACTIVATIONS: dict[Callable[[Tensor], Tensor], int] = {gelu_new: 0, F.gelu: 1, F.relu: 2, F.silu: 3}
LAYOUT = struct.Struct("3P3q" * 6 + "2Pd" * 2 + "6q" + "d")
Matrix = tuple[int, int, int, int, int, int]  # the addresses of weight, scales and bias; kind, inputs, outputs
NO_MATRIX: Matrix = (0, 0, 0, 0, 0, 0)


@dataclass
class PackedLayer:
    """The struct, what a caller must know to use it, and the modules and tensors it was read from."""

    struct: bytes = b""
    width: int = 0
    hidden: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    modules: list[nn.Module] = field(default_factory=list)  # all but the block itself
    tensors: list[Tensor] = field(default_factory=list)


def pack_layer(block: nn.Module) -> PackedLayer | None:
    """The struct of a `Block` (and no subclass); None where the plain path must run."""
    attention: Any = block._modules.get("attention")
    feedforward: Any = block._modules.get("feedforward")
    placement = block.__dict__["placement"]
    if (
        placement == "parallel"
        or block.__dict__["residual_scale"] != 1
        or block.training
        or block._modules.get("cross_attention") is not None
        or not is_bare(attention, Attention)
        or not is_bare(feedforward, FeedForward)
    ):
        return None
    layer = PackedLayer(modules=[attention, feedforward])
    projections = _attention(layer, attention)
    if projections is None:
        return None
    attention_norm = _norm(layer, block._modules.get("attention_norm"))
    feedforward_norm = _norm(layer, block._modules.get("feedforward_norm"))
    matrices = _feedforward(layer, feedforward)
    if attention_norm is None or feedforward_norm is None or matrices is None:
        return None
    up, down, activation = matrices
    layer.struct = LAYOUT.pack(
        *itertools.chain(*projections),
        *up,
        *down,
        *attention_norm,
        *feedforward_norm,
        layer.width,
        attention.__dict__["heads"],
        layer.kv_heads,
        layer.head_dim,
        placement == "post",
        activation,
        attention.__dict__["scale"],
    )
    return layer


def _attention(layer: PackedLayer, attention: Any) -> tuple[Matrix, Matrix, Matrix, Matrix] | None:
    """Query, key, value and output; fused: the first holds all three, and key and value are empty."""
    own, parts = attention.__dict__, attention._modules
    if own["cross"] or own["training"] or "attend" in own:
        return None
    if not isinstance(own.get("scale"), float | int):  # torch has something to say to anything but a number
        return None
    if attention.rotary is not None or attention.relative is not None:
        return None
    layer.kv_heads, layer.head_dim = own["kv_heads"], own["head_dim"]
    q_size, kv_size = own["heads"] * layer.head_dim, layer.kv_heads * layer.head_dim
    output = _matrix(layer, parts.get("output"), q_size, None)
    if output is None:
        return None
    width = layer.width = output[-1]
    key: Matrix | None = NO_MATRIX
    value: Matrix | None = NO_MATRIX
    if own["fused"]:
        query = _matrix(layer, parts.get("qkv"), width, q_size + 2 * kv_size)
    else:
        query = _matrix(layer, parts.get("query"), width, q_size)
        key = _matrix(layer, parts.get("key"), width, kv_size)
        value = _matrix(layer, parts.get("value"), width, kv_size)
    return None if query is None or key is None or value is None else (query, key, value, output)


def _feedforward(layer: PackedLayer, feedforward: Any) -> tuple[Matrix, Matrix, int] | None:
    """Up, down, and the number of the activation."""
    parts = feedforward._modules
    activation: Any = parts.get("activation")
    if feedforward.training or parts.get("gate") is not None or not is_bare(activation, Activation):
        return None
    layer.modules.append(activation)
    function = activation.__dict__.get("function")  # not there if it has become a module
    number = next((number for known, number in ACTIVATIONS.items() if known is function), None)
    up = _matrix(layer, parts.get("up"), layer.width, None)
    if number is None or up is None:
        return None
    layer.hidden = up[-1]
    down = _matrix(layer, parts.get("down"), layer.hidden, layer.width)
    return None if down is None else (up, down, number)


def is_bare(module: Any, *kinds: type) -> bool:
    """It is of one of these very types, and nobody listens to it or has given it another forward."""
    if type(module) not in kinds:
        return False
    own = module.__dict__
    return not own["_forward_hooks"] and not own["_forward_pre_hooks"] and "forward" not in own


def _is_vector(tensor: Tensor | None, size: int) -> bool:
    """None, or `size` fp32 numbers in a row."""
    return tensor is None or (
        tensor.dtype is torch.float32
        and type(tensor) in PLAIN
        and tensor.is_cpu
        and tensor.numel() == size
        and tensor.is_contiguous()
    )


def _norm(layer: PackedLayer, module: Any) -> tuple[int, int, float] | None:
    """(weight, bias, eps)"""
    if not is_bare(module, nn.LayerNorm) or module.normalized_shape != (layer.width,):
        return None
    weight, bias = module._parameters["weight"], module._parameters["bias"]
    if not _is_vector(weight, layer.width) or not _is_vector(bias, layer.width):
        return None
    layer.modules.append(module)
    return _address(layer, weight), _address(layer, bias), module.eps


def _matrix(layer: PackedLayer, module: Any, inputs: int, outputs: int | None) -> Matrix | None:
    """A linear layer that takes and gives so many numbers (outputs None: any)."""
    if not is_bare(module, Linear, QuantizedLinear):
        return None
    layer.modules.append(module)
    bias = module._parameters.get("bias")
    if type(module) is Linear:
        weight = module._parameters.get("weight")
        if weight is None or weight.dtype is not torch.float32 or type(weight) not in PLAIN or not weight.is_cpu:
            return None
        if weight.layout is not torch.strided:
            return None
        if not weight.is_contiguous():
            return None
        size, kind = tuple(weight.shape), cpu_kernels.F32
        data, scales = _address(layer, weight), 0
    else:
        matrix: Any = module._modules["matrix"]
        if type(matrix) is not QuantizedMatrix:
            return None
        layer.modules.append(matrix)
        size, kind = (matrix.out_features, matrix.in_features), KINDS[matrix.kind]
        data, scales = _address(layer, matrix.codes), _address(layer, matrix.scales)
    if size[1] != inputs or (outputs is not None and size[0] != outputs) or not _is_vector(bias, size[0]):
        return None
    return data, scales, _address(layer, bias), kind, inputs, size[0]


def _address(layer: PackedLayer, tensor: Tensor | None) -> int:
    if tensor is None:
        return 0
    layer.tensors.append(tensor)
    return tensor.data_ptr()
