"""One transformer layer: attention and feed-forward around a residual stream, with the norm before, after or shared."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.attention import Attention
from clearhead.nn.fast import cpu_kernels
from clearhead.nn.fast.cpu_decode import decode_step
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.kv_cache import LayerKVCache
from clearhead.nn.masks import BoundMask
from clearhead.nn.tracing import tap

Placement = Literal["pre", "post", "parallel"]


class Block(nn.Module):
    """
    pre        x + sublayer(norm(x))                          GPT-2, T5
    post       norm(x + sublayer(x))                          the 2017 Transformer, BERT, GPT
    parallel   x + attention(norm(x)) + feedforward(norm(x))  GPT-J (one norm), GPT-NeoX (two)

    window           how far this layer sees (None: everything the mask allows)
    residual_scale   post: norm(residual_scale · x + sublayer(x)), as DeepNet has it
    """

    taps: tuple[str, ...] = ("input", "output")
    reads_neighbors: ClassVar[bool] = False  # whether it takes the neighbours of the text's chunks

    def __init__(
        self,
        attention: Attention,
        feedforward: FeedForward,
        *,
        attention_norm: nn.Module,
        feedforward_norm: nn.Module | None = None,
        cross_attention: Attention | None = None,
        cross_attention_norm: nn.Module | None = None,
        placement: Placement = "pre",
        dropout: float = 0.0,
        window: int | None = None,
        residual_scale: float = 1.0,
    ) -> None:
        super().__init__()
        if placement not in ("pre", "post", "parallel"):
            raise ConfigError(f"The norm is placed 'pre', 'post' or 'parallel', not {placement!r}.")
        if feedforward_norm is None and placement != "parallel":
            raise ConfigError(f"A {placement}-norm layer needs a norm for its feed-forward.")
        if cross_attention is not None and placement == "parallel":
            raise ConfigError("A parallel layer has no place for cross-attention.")
        if cross_attention is not None and cross_attention_norm is None:
            raise ConfigError("Cross-attention needs a norm of its own.")
        if residual_scale != 1 and placement != "post":
            raise ConfigError("Only a post-norm layer scales its residual stream.")
        self.attention_norm = attention_norm
        self.attention = attention
        self.cross_attention_norm = cross_attention_norm
        self.cross_attention = cross_attention
        self.feedforward_norm = feedforward_norm
        self.feedforward = feedforward
        self.placement, self.dropout, self.window = placement, dropout, window
        self.residual_scale = residual_scale

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.training and self.dropout else x

    def forward(
        self,
        x: Tensor,  # (batch, time, width)
        mask: BoundMask,
        *,
        memory: Tensor | None = None,
        memory_mask: BoundMask | None = None,
        cache: LayerKVCache | None = None,
        position_ids: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        if not torch.compiler.is_compiling() and cache is not None and cpu_kernels.loaded is not None:
            plain = bias is None and type(self) is Block
            y = decode_step(cpu_kernels.loaded, self, [self], x, [mask], [cache]) if plain else None
            if y is not None:
                return y  # the same in one call, where nobody looks inside
        x = tap(self, "input", x)
        pre = self.placement != "post"

        normed = self.attention_norm(x) if pre else x
        attended = self._drop(self.attention(normed, mask, cache=cache, position_ids=position_ids, bias=bias))
        if self.placement == "parallel":
            if self.feedforward_norm is not None:
                normed = self.feedforward_norm(x)
            return tap(self, "output", x + attended + self._drop(self.feedforward(normed)))
        x = self._added(x, attended, self.attention_norm)
        x = self._look_across(x, memory, memory_mask, cache)

        assert self.feedforward_norm is not None
        normed = self.feedforward_norm(x) if pre else x
        fed_forward = self._drop(self.feedforward(normed))
        return tap(self, "output", self._added(x, fed_forward, self.feedforward_norm))

    def _added(self, x: Tensor, new: Tensor, norm: nn.Module) -> Tensor:
        """What a sublayer says, added to the residual stream."""
        if self.placement != "post":
            return x + new
        normed: Tensor = norm((x if self.residual_scale == 1 else x * self.residual_scale) + new)
        return normed

    def _look_across(
        self, x: Tensor, memory: Tensor | None, memory_mask: BoundMask | None, cache: LayerKVCache | None
    ) -> Tensor:
        """Cross-attention, between attention and feed-forward."""
        # With neither an encoder's states nor cached ones, a decoder layer runs without looking at an encoder.
        if self.cross_attention is None or not (memory is not None or (cache is not None and cache.memory)):
            return x
        assert self.cross_attention_norm is not None
        normed = self.cross_attention_norm(x) if self.placement != "post" else x
        attended = self._drop(self.cross_attention(normed, memory_mask or BoundMask(), memory, cache=cache))
        return self._added(x, attended, self.cross_attention_norm)
