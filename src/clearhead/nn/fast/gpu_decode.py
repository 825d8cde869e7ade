"""One new position of one text through a whole stack on a CUDA device, in five kernels a layer.

    norm, q-k-v → attention → output, + x → norm, up, activation → down, + x

The kernels are in `gpu_kernels.py`. `is_supported` says whether a stack is the case that they know; anything else takes
the path through the modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.activations import Activation, gelu_new
from clearhead.nn.attention import Attention
from clearhead.nn.block import Block
from clearhead.nn.fast import gpu_gemv
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.kv_cache import LayerKVCache, StaticKVCache
from clearhead.nn.linear import PLAIN, Linear
from clearhead.nn.stack import Stack

ACTIVATIONS: dict[Callable[[Tensor], Tensor], str] = {
    gelu_new: "gelu_new",
    F.gelu: "gelu",
    F.relu: "relu",
    F.silu: "silu",
}
KEYS = 512  # of 64 numbers, read at once; the first of them are read before the query is known


def is_supported(stack: nn.Module, output: nn.Module | None) -> bool:
    """Whether `decode_step` can take the place of these layers, the final norm and the output matrix.

    Nobody may be looking inside: the caller has made sure that there are no traces and no hooks.
    """
    dtype = next(stack.parameters()).dtype
    return (
        gpu_gemv.prepare()
        and dtype in gpu_gemv.HALF
        and not torch.is_autocast_enabled("cuda")
        and _is_exactly(stack, Stack)
        and _is_exactly(stack.final_norm, nn.LayerNorm)
        and _is_exactly(output, Linear)
        and all(_is_supported_block(layer) for layer in stack.layers)  # type: ignore[union-attr]
        and all(
            p.dtype is dtype and type(p) in PLAIN and p.is_contiguous()
            for part in (stack.layers, stack.final_norm, output)
            for p in part.parameters()  # type: ignore[union-attr]
        )
    )


def _is_supported_block(block: nn.Module) -> bool:
    attention: Any = getattr(block, "attention", None)
    feedforward: Any = getattr(block, "feedforward", None)
    return (
        _is_exactly(block, Block)
        and _is_exactly(attention, Attention)
        and _is_exactly(feedforward, FeedForward)
        and block.placement == "pre"
        and block.window is None
        and block.cross_attention is None
        and _is_exactly(block.attention_norm, nn.LayerNorm)
        and _is_exactly(block.feedforward_norm, nn.LayerNorm)
        and attention.rotary is None
        and attention.relative is None
        and "attend" not in vars(attention)
        and attention.head_dim in (8, 16, 32, 64, 128, 256)
        and all(
            _is_exactly(m, Linear)
            for m in (*_projections(attention), attention.output, feedforward.up, feedforward.down)
        )
        and feedforward.gate is None
        and _is_exactly(feedforward.activation, Activation)
        and feedforward.activation.function in ACTIVATIONS
        and feedforward.up.in_features <= gpu_gemv.MAX_WIDTH  # a norm needs all of its inputs at once
    )


def _is_exactly(module: Any, kind: type) -> bool:
    """Of this very type, with the forward of its type."""
    return type(module) is kind and "forward" not in vars(module)


def _projections(attention: Attention) -> tuple[Linear, ...]:
    return (attention.qkv,) if attention.fused else (attention.query, attention.key, attention.value)


def decode_step(
    stack: Stack,
    output: Linear,
    x: Tensor,  # (1, 1, width), from the embedding; changed in place
    cache: StaticKVCache,
    visible: Tensor,  # (capacity,) bool: which positions may be seen
    position: Tensor,  # (1,): where the new one is kept
    logits: Tensor,  # (1, vocab): where they are written
) -> None:
    """Logits of the next token."""
    gemv = gpu_gemv.fused_gemv
    dependent = x.is_cuda and torch.cuda.get_device_capability(x.device) >= (9, 0)
    x = x.view(-1)
    final_norm: Any = stack.final_norm
    is_first = True  # the first kernel lets everything before it end
    for block, layer_cache in zip(stack.blocks, cache.layers, strict=True):
        attention, feedforward = block.attention, block.feedforward
        attention_norm: Any = block.attention_norm
        feedforward_norm: Any = block.feedforward_norm
        projections = _projections(attention)
        sizes = [projection.out_features for projection in projections]
        qkv = x.new_empty(sum(sizes))
        for projection, part in zip(projections, qkv.split(sizes), strict=True):
            gemv(x, projection, part, norm=attention_norm, dependent=dependent and not is_first)
            is_first = False
        heads = _attend(attention, qkv, layer_cache, visible, position, dependent)
        gemv(heads, attention.output, x, residual=x, dependent=dependent)
        hidden = x.new_empty(feedforward.up.out_features)
        activation = ACTIVATIONS[feedforward.activation.function]
        gemv(x, feedforward.up, hidden, norm=feedforward_norm, activation=activation, dependent=dependent)
        gemv(hidden, feedforward.down, x, residual=x, dependent=dependent)
    gemv(x, output, logits.view(-1), norm=final_norm, dependent=dependent)


def _attend(
    attention: Attention, qkv: Tensor, cache: LayerKVCache, visible: Tensor, position: Tensor, dependent: bool
) -> Tensor:
    """(heads · head_dim,): the weighted sums of values; the new key and value are kept in the cache."""
    from clearhead.nn.fast import gpu_kernels

    keys, values = cache._keys, cache._values
    assert keys is not None and values is not None
    capacity, head_dim = keys.shape[2], attention.head_dim
    at_once = min(KEYS, KEYS * 64 // head_dim, max(16, 1 << (capacity - 1).bit_length()))
    heads = qkv.new_empty(attention.heads * head_dim)
    gpu_kernels.decode_attention[(attention.heads,)](
        qkv,
        keys,
        values,
        visible,
        position,
        heads,
        capacity,
        attention.scale,
        HEADS=attention.heads,
        GROUP=attention.heads // attention.kv_heads,
        DIM=head_dim,
        KEYS=at_once,
        DEPENDENT=dependent,
        **gpu_gemv.launch_options(4 if at_once * head_dim <= 128 * 64 else 8, dependent),
    )
    return heads
