"""One layer for one new position in one call of C: between small products, Python and torch take longer than they.

`step` looks at everything that the plain path would look at. Where all of it is the plain case it fills in the struct
`Layer` of kernels.c and calls; anywhere else it returns None, has changed nothing, and the plain path runs. Nothing is
remembered between calls: parts may be replaced, moved or rounded at any time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from clearhead.nn import native
from clearhead.nn.activations import Activation, gelu_new
from clearhead.nn.attention import Attention
from clearhead.nn.cache import LayerCache
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.glass import is_open
from clearhead.nn.linear import FEW, PLAIN, Linear, is_plain
from clearhead.nn.masks import BoundMask
from clearhead.nn.quantized import KINDS, QuantizedLinear, QuantizedMatrix

# as kernels.c numbers them
ACTIVATIONS: dict[Callable[[Tensor], Tensor], int] = {gelu_new: 0, F.gelu: 1, F.relu: 2, F.silu: 3}
LAYOUT = struct.Struct("3P3q" * 6 + "2Pd" * 2 + "4P" + "10q" + "d")
Numbers = tuple[int, int, int, int, int, int]
NO_MATRIX: Numbers = (0, 0, 0, 0, 0, 0)


def step(kernels: native.Kernels, block: nn.Module, x: Tensor, mask: BoundMask, cache: LayerCache) -> Tensor | None:
    """What `block` (a `Block` and no subclass) makes of x (rows, 1, width), whose keys and values join the cache.

    None where the plain path must run.
    """
    shape = x.shape
    if (
        len(shape) != 3
        or shape[1] != 1
        or not 0 < shape[0] <= FEW
        or torch.is_grad_enabled()
        or is_open()
        or x.dtype is not torch.float32
        or not x.is_contiguous()
        or not is_plain(x)
        or type(mask) is not BoundMask
        or mask.is_causal
        or not (mask.visible is mask.added is mask.dead is mask.band is None)
        or torch_modules._global_forward_hooks
        or torch_modules._global_forward_pre_hooks
    ):
        return None

    # Straight from the tables: nn.Module's attribute lookup would cost as much as all the rest.
    facts, parts = block.__dict__, block._modules
    attention: Any = parts.get("attention")
    feedforward: Any = parts.get("feedforward")
    placement = facts["placement"]
    if (
        placement == "parallel"
        or facts["training"]
        or parts.get("cross_attention") is not None
        or not _is_bare(attention, Attention)
        or not _is_bare(feedforward, FeedForward)
    ):
        return None
    rows, width = shape[0], shape[2]
    one, two = _norm(parts.get("attention_norm"), width), _norm(parts.get("feedforward_norm"), width)
    if one is None or two is None:
        return None

    facts, parts = attention.__dict__, attention._modules
    heads, kv_heads, head_dim = facts["heads"], facts["kv_heads"], facts["head_dim"]
    q_size, kv_size = heads * head_dim, kv_heads * head_dim
    if (
        facts["cross"]
        or facts["training"]
        or "mix" in facts
        or parts.get("rotary") is not None
        or facts.get("rotary") is not None
        or parts.get("relative") is not None
        or facts.get("relative") is not None
    ):
        return None
    key: Numbers | None = NO_MATRIX
    value: Numbers | None = NO_MATRIX
    if facts["fused"]:
        query = _matrix(parts.get("qkv"), width, q_size + 2 * kv_size)
    else:
        query = _matrix(parts.get("query"), width, q_size)
        key, value = _matrix(parts.get("key"), width, kv_size), _matrix(parts.get("value"), width, kv_size)
    output = _matrix(parts.get("output"), q_size, width)
    if query is None or key is None or value is None or output is None:
        return None
    scale = facts["scale"]

    facts, parts = feedforward.__dict__, feedforward._modules
    bend: Any = parts.get("activation")
    if facts["training"] or parts.get("gate") is not None or not _is_bare(bend, Activation):
        return None
    activation = ACTIVATIONS.get(bend.__dict__["function"])
    up = _matrix(parts.get("up"), width, None)
    if activation is None or up is None:
        return None
    down = _matrix(parts.get("down"), up[5], width)
    if down is None:
        return None

    room = _room(cache, rows, kv_heads, head_dim)
    if room is None:
        return None
    y = torch.empty_like(x)
    done = kernels.layer(
        LAYOUT.pack(
            *query,
            *key,
            *value,
            *output,
            *up,
            *down,
            *one,
            *two,
            x.data_ptr(),
            y.data_ptr(),
            *room[:2],
            rows,
            width,
            heads,
            kv_heads,
            head_dim,
            room[2],
            cache.length - cache.dropped,
            placement == "post",
            activation,
            torch.get_num_threads() if rows * width * up[5] > native.SMALL else 1,
            scale,
        )
    )
    if not done:
        return None
    cache.length += 1
    return y


def _is_bare(module: Any, *kinds: type) -> bool:
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


def _norm(module: Any, width: int) -> tuple[int, int, float] | None:
    """(weight, bias, eps)"""
    if not _is_bare(module, nn.LayerNorm) or module.__dict__["normalized_shape"] != (width,):
        return None
    weight, bias = module._parameters["weight"], module._parameters["bias"]
    if not _is_vector(weight, width) or not _is_vector(bias, width):
        return None
    return (
        0 if weight is None else weight.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        module.__dict__["eps"],
    )


def _matrix(module: Any, inputs: int, outputs: int | None) -> Numbers | None:
    """(weight, scales, bias, kind, inputs, outputs)"""
    if not _is_bare(module, Linear, QuantizedLinear):
        return None
    bias = module._parameters.get("bias")
    if type(module) is Linear:
        weight = module._parameters.get("weight")
        if weight is None or weight.dtype is not torch.float32 or type(weight) not in PLAIN or not weight.is_cpu:
            return None
        size = tuple(weight.shape)
        strides = weight.stride()
        if strides == (size[1], 1):
            kind = native.F32
        elif strides == (1, size[0]):
            kind = native.F32_T
        else:
            return None
        data, scales = weight.data_ptr(), 0
    else:
        matrix: Any = module._modules["matrix"]
        if type(matrix) is not QuantizedMatrix:
            return None
        facts, buffers = matrix.__dict__, matrix.__dict__["_buffers"]
        size, kind = (facts["out_features"], facts["in_features"]), KINDS[facts["kind"]]
        data, scales = buffers["codes"].data_ptr(), buffers["scales"].data_ptr()
    if size[1] != inputs or (outputs is not None and size[0] != outputs) or not _is_vector(bias, size[0]):
        return None
    return data, scales, 0 if bias is None else bias.data_ptr(), kind, inputs, size[0]


def _room(cache: LayerCache, rows: int, kv_heads: int, head_dim: int) -> tuple[int, int, int] | None:
    """(keys, values, room), where one more position can simply be written; growing and sliding is the cache's own."""
    if type(cache) is not LayerCache:
        return None
    keys, values, held = cache._keys, cache._values, cache.length - cache.dropped
    if keys is None or values is None or (cache._limit is not None and held >= cache._limit):
        return None
    room = keys.shape[2]
    if held >= room or keys.shape != (rows, kv_heads, room, head_dim) or values.shape != keys.shape:
        return None
    for tensor in (keys, values):
        if tensor.dtype is not torch.float32 or not tensor.is_cpu or not tensor.is_contiguous():
            return None
    return keys.data_ptr(), values.data_ptr(), room
