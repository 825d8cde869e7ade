"""What cpu_kernels.c must know of one layer: its matrices, norms and sizes, as the struct `Layer`.

`describe` looks at everything that the plain path would look at. Where all of it is the plain case it gives the struct,
and what it has looked at; anywhere else None, and the plain path must run.
"""

from __future__ import annotations

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
Numbers = tuple[int, int, int, int, int, int]
NO_MATRIX: Numbers = (0, 0, 0, 0, 0, 0)


@dataclass
class Layer:
    """The struct, what a caller must know to use it, and the modules and tensors it was read from."""

    packed: bytes = b""
    width: int = 0
    hidden: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    modules: list[nn.Module] = field(default_factory=list)  # all but the block itself
    tensors: list[Tensor] = field(default_factory=list)


def describe(block: nn.Module) -> Layer | None:
    """The struct of a `Block` (and no subclass); None where the plain path must run."""
    found, parts = Layer(), block._modules
    attention: Any = parts.get("attention")
    feedforward: Any = parts.get("feedforward")
    placement = block.__dict__["placement"]
    if (
        placement == "parallel"
        or block.training
        or parts.get("cross_attention") is not None
        or not is_bare(attention, Attention)
        or not is_bare(feedforward, FeedForward)
    ):
        return None
    found.modules += [attention, feedforward]

    facts = attention.__dict__
    found.kv_heads, found.head_dim = facts["kv_heads"], facts["head_dim"]
    q_size, kv_size = facts["heads"] * found.head_dim, found.kv_heads * found.head_dim
    scale = facts.get("scale")  # torch has something to say to anything but a number
    if facts["cross"] or facts["training"] or "attend" in facts or not isinstance(scale, float | int):
        return None
    if attention.rotary is not None or attention.relative is not None:
        return None
    output = _matrix(found, attention._modules.get("output"), q_size, None)
    if output is None:
        return None
    width = found.width = output[5]
    key: Numbers | None = NO_MATRIX
    value: Numbers | None = NO_MATRIX
    parts = attention._modules
    if facts["fused"]:
        query = _matrix(found, parts.get("qkv"), width, q_size + 2 * kv_size)
    else:
        query = _matrix(found, parts.get("query"), width, q_size)
        key = _matrix(found, parts.get("key"), width, kv_size)
        value = _matrix(found, parts.get("value"), width, kv_size)
    one = _norm(found, block._modules.get("attention_norm"), width)
    two = _norm(found, block._modules.get("feedforward_norm"), width)
    if query is None or key is None or value is None or one is None or two is None:
        return None

    parts = feedforward._modules
    bend: Any = parts.get("activation")
    if feedforward.training or parts.get("gate") is not None or not is_bare(bend, Activation):
        return None
    found.modules.append(bend)
    function = bend.__dict__.get("function")  # not there if it has become a module
    activation = next((number for known, number in ACTIVATIONS.items() if known is function), None)
    up = _matrix(found, parts.get("up"), width, None)
    if activation is None or up is None:
        return None
    down = _matrix(found, parts.get("down"), up[5], width)
    if down is None:
        return None
    found.hidden = up[5]
    found.packed = LAYOUT.pack(
        *query,
        *key,
        *value,
        *output,
        *up,
        *down,
        *one,
        *two,
        width,
        facts["heads"],
        found.kv_heads,
        found.head_dim,
        placement == "post",
        activation,
        scale,
    )
    return found


def is_bare(module: Any, *kinds: type) -> bool:
    """It is of one of these very types, and nobody listens to it or has given it another forward."""
    if type(module) not in kinds:
        return False
    facts = module.__dict__
    return not facts["_forward_hooks"] and not facts["_forward_pre_hooks"] and "forward" not in facts


def _is_vector(tensor: Tensor | None, size: int) -> bool:
    """None, or `size` fp32 numbers in a row."""
    return tensor is None or (
        tensor.dtype is torch.float32
        and type(tensor) in PLAIN
        and tensor.is_cpu
        and tensor.numel() == size
        and tensor.is_contiguous()
    )


def _norm(found: Layer, module: Any, width: int) -> tuple[int, int, float] | None:
    """(weight, bias, eps)"""
    if not is_bare(module, nn.LayerNorm) or module.normalized_shape != (width,):
        return None
    weight, bias = module._parameters["weight"], module._parameters["bias"]
    if not _is_vector(weight, width) or not _is_vector(bias, width):
        return None
    found.modules.append(module)
    return _address(found, weight), _address(found, bias), module.eps


def _matrix(found: Layer, module: Any, inputs: int, outputs: int | None) -> Numbers | None:
    """(weight, scales, bias, kind, inputs, outputs)"""
    if not is_bare(module, Linear, QuantizedLinear):
        return None
    found.modules.append(module)
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
        data, scales = _address(found, weight), 0
    else:
        matrix: Any = module._modules["matrix"]
        if type(matrix) is not QuantizedMatrix:
            return None
        found.modules.append(matrix)
        size, kind = (matrix.out_features, matrix.in_features), KINDS[matrix.kind]
        data, scales = _address(found, matrix.codes), _address(found, matrix.scales)
    if size[1] != inputs or (outputs is not None and size[0] != outputs) or not _is_vector(bias, size[0]):
        return None
    return data, scales, _address(found, bias), kind, inputs, size[0]


def _address(found: Layer, tensor: Tensor | None) -> int:
    if tensor is None:
        return 0
    found.tensors.append(tensor)
    return tensor.data_ptr()
