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
from clearhead.nn.kv_cache import StaticKVCache
from clearhead.nn.linear import PLAIN, Linear
from clearhead.nn.stack import Stack

ACTIVATIONS: dict[Callable[[Tensor], Tensor], str] = {
    gelu_new: "gelu_new",
    F.gelu: "gelu",
    F.relu: "relu",
    F.silu: "silu",
}
KEYS = 512  # of 64 numbers, looked at at once; the first of them are read before the query is known


def is_supported(stack: nn.Module, output: nn.Module | None) -> bool:
    """Whether `decode_step` can take the place of these layers, the final norm and the matrix over words.

    Nobody may be looking inside: the caller has made sure that there are no traces and no hooks.
    """
    dtype = next(stack.parameters()).dtype
    return (
        gpu_gemv.prepare()
        and dtype in gpu_gemv.HALF
        and not torch.is_autocast_enabled("cuda")
        and _bare(stack, Stack)
        and _bare(stack.final_norm, nn.LayerNorm)
        and _bare(output, Linear)
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
        _bare(block, Block)
        and _bare(attention, Attention)
        and _bare(feedforward, FeedForward)
        and block.placement == "pre"
        and block.window is None
        and block.cross_attention is None
        and _bare(block.attention_norm, nn.LayerNorm)
        and _bare(block.feedforward_norm, nn.LayerNorm)
        and attention.rotary is None
        and attention.relative is None
        and "attend" not in vars(attention)
        and attention.head_dim in (8, 16, 32, 64, 128, 256)
        and all(_bare(m, Linear) for m in (*_into(attention), attention.output, feedforward.up, feedforward.down))
        and feedforward.gate is None
        and _bare(feedforward.activation, Activation)
        and feedforward.activation.function in ACTIVATIONS
        and feedforward.up.in_features <= gpu_gemv.WIDEST  # a norm needs all of its inputs at once
    )


def _bare(module: Any, kind: type) -> bool:
    """Of this very type, with the forward of its type."""
    return type(module) is kind and "forward" not in vars(module)


def _into(attention: Attention) -> tuple[Linear, ...]:
    return (attention.qkv,) if attention.fused else (attention.query, attention.key, attention.value)


def decode_step(
    stack: Stack,
    output: Linear,
    x: Tensor,  # (1, 1, width), from the embedding; changed in place
    cache: StaticKVCache,
    visible: Tensor,  # (span,) bool: which positions may be seen
    position: Tensor,  # (1,): where the new one is kept
    scores: Tensor,  # (1, vocab): where the answer goes
) -> None:
    """Scores for the next token."""
    from clearhead.nn.fast import gpu_kernels

    product = gpu_gemv.product
    dependent = x.is_cuda and torch.cuda.get_device_capability(x.device) >= (9, 0)
    x = x.view(-1)
    last: Any = stack.final_norm
    follows = False  # the first kernel lets everything before it end
    for block, layer in zip(stack.blocks, cache.layers, strict=True):
        attention, feedforward = block.attention, block.feedforward
        norm_1: Any = block.attention_norm
        norm_2: Any = block.feedforward_norm
        sizes = [matrix.out_features for matrix in _into(attention)]
        qkv = x.new_empty(sum(sizes))
        for matrix, part in zip(_into(attention), qkv.split(sizes), strict=True):
            product(x, matrix, part, norm=norm_1, dependent=follows)
            follows = dependent
        heads = x.new_empty(attention.heads * attention.head_dim)
        keys, values = layer._keys, layer._values
        assert keys is not None and values is not None
        span = keys.shape[2]
        at_once = min(KEYS, KEYS * 64 // attention.head_dim, max(16, 1 << (span - 1).bit_length()))
        gpu_kernels.attention[(attention.heads,)](
            qkv,
            keys,
            values,
            visible,
            position,
            heads,
            span,
            attention.scale,
            HEADS=attention.heads,
            SHARED=attention.heads // attention.kv_heads,
            DIM=attention.head_dim,
            KEYS=at_once,
            DEPENDENT=dependent,
            **gpu_gemv.options(4 if at_once * attention.head_dim <= 128 * 64 else 8, dependent),
        )
        product(heads, attention.output, x, residual=x, dependent=dependent)
        hidden = x.new_empty(feedforward.up.out_features)
        bend = ACTIVATIONS[feedforward.activation.function]
        product(x, feedforward.up, hidden, norm=norm_2, activation=bend, dependent=dependent)
        product(hidden, feedforward.down, x, residual=x, dependent=dependent)
    product(x, output, scores.view(-1), norm=last, dependent=dependent)
