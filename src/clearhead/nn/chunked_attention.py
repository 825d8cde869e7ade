"""Chunked cross-attention: every chunk of a text looks at what was retrieved for the chunk before (RETRO).

Positions are laid beside the chunk whose neighbours they may see (`NeighborReading.fold`), so that the arithmetic is
that of any cross-attention, with a row for every chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.attention import Attention, attend
from clearhead.nn.block import Block
from clearhead.nn.kv_cache import LayerKVCache
from clearhead.nn.masks import BoundMask, Mask
from clearhead.nn.neighbors import ChunkedLayerKVCache, NeighborReading
from clearhead.nn.positions import RelativeSinusoids, Rotary
from clearhead.nn.tracing import tap


class AlignedCrossAttention(Attention):
    """Cross-attention between two texts that lie side by side, so that a place in one can be near one in the other.

    rotary, relative   how the distance between the two places acts (at most one of them)
    null_key           a learned key and value that can always be attended to: a way to look at nothing
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        rotary: Rotary | None = None,
        relative: RelativeSinusoids | None = None,
        null_key: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(width, heads, cross=True, **options)
        self.rotary, self.relative = rotary, relative
        size = self.heads * self.head_dim
        self.null_key = nn.Parameter(torch.empty(size)) if null_key else None
        self.null_value = nn.Parameter(torch.empty(size)) if null_key else None

    def forward(
        self,
        x: Tensor,  # (batch, Q, width)
        mask: BoundMask,
        memory: Tensor | None = None,  # (batch, K, memory_width)
        cache: LayerKVCache | None = None,
        position_ids: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Places count from 0 in both texts."""
        assert memory is not None and cache is None and bias is None
        positions = torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids
        key_positions = torch.arange(memory.shape[1], device=x.device)
        query = self._placed(self._split(self.query(x), self.heads), positions)
        heads = self._look(query, *self.keys_values(memory, key_positions), mask, positions, key_positions)
        return tap(self, "output", self.output(heads.transpose(1, 2).flatten(-2)))

    def _placed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x if self.rotary is None else self.rotary(x, positions)

    def keys_values(self, memory: Tensor, key_positions: Tensor) -> tuple[Tensor, Tensor]:
        key, value = self._split(self.key(memory), self.kv_heads), self._split(self.value(memory), self.kv_heads)
        return self._placed(key, key_positions[None]), value

    def _look(
        self,
        query: Tensor,  # (batch, heads, Q, head_dim)
        key: Tensor,  # (batch, heads, K, head_dim)
        value: Tensor,
        mask: BoundMask,  # over the null key too, where there is one
        positions: Tensor,  # (batch or 1, Q)
        key_positions: Tensor,  # (K,)
    ) -> Tensor:
        query, key, value = tap(self, "query", query), tap(self, "key", key), tap(self, "value", value)
        bias = None
        if isinstance(self.relative, RelativeSinusoids):
            bias = self.relative.between(query, positions, key_positions) * self.scale
        if self.null_key is not None and self.null_value is not None:
            key, value = (
                torch.cat((self._split(null[None, None], self.heads).to(t.dtype).expand(len(t), -1, -1, -1), t), 2)
                for null, t in ((self.null_key, key), (self.null_value, value))
            )
            bias = None if bias is None else F.pad(bias, (1, 0))
        dropout = self.dropout if self.training else 0.0
        return attend(self, query, key, value, mask, scale=self.scale, bias=bias, dropout=dropout, upcast=self.upcast)


class ChunkedCrossAttention(AlignedCrossAttention):
    """
    query_positions   where the queries of a chunk stand beside its neighbours, the one that ends the chunk first

    The taps have a row for every chunk of every text: weights (batch · chunks, heads, chunk, k · tokens), with the null
    key in front where there is one. `output` is (batch, time, width), zeros where there is nothing to look at.
    """

    def __init__(self, width: int, heads: int, *, query_positions: Sequence[int], **options: Any) -> None:
        super().__init__(width, heads, **options)
        self.query_positions = tuple(query_positions)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,  # (batch, time, width)
        neighbors: NeighborReading,
        cache: LayerKVCache | None = None,
    ) -> Tensor:
        encoded = neighbors.encoded
        if encoded is None:
            return tap(self, "output", torch.zeros_like(x))
        memory, visible = encoded
        folds, tokens = memory.shape[1], memory.shape[3]
        memory, visible = memory.flatten(2, 3).flatten(0, 1), visible.flatten(0, 1)  # (batch · folds, k · tokens, …)
        key_positions = torch.arange(memory.shape[1], device=x.device) % tokens
        positions = torch.tensor(self.query_positions, device=x.device)[neighbors.slots(x.device)]
        query = neighbors.fold(self.query(x)).flatten(0, 1)  # (batch · folds, chunk, heads · head_dim)
        query = self._placed(self._split(query, self.heads), positions)
        key, value = self._cached_keys_values(memory, key_positions, neighbors, cache)
        seen = visible if self.null_key is not None else visible[:, 1:]
        mask = Mask(visible=(seen[:, None, None],)).bind(query.shape[2], seen.shape[1], x.device)
        heads = self._look(query, key, value, mask, positions, key_positions)
        output = self.output(heads.transpose(1, 2).flatten(-2))
        output = output * seen.any(-1)[:, None, None].to(output.dtype)  # nothing retrieved: nothing said
        return tap(self, "output", neighbors.unfold(output.unflatten(0, (-1, folds))))

    def _cached_keys_values(
        self, memory: Tensor, key_positions: Tensor, neighbors: NeighborReading, cache: LayerKVCache | None
    ) -> tuple[Tensor, Tensor]:
        """Of a text being written, keys and values are made once for every chunk."""
        keeps = isinstance(cache, ChunkedLayerKVCache) and neighbors.width == 1
        if keeps and cache.neighbor_memory is not None and cache.chunks == neighbors.chunks:  # type: ignore[union-attr]
            return cache.neighbor_memory  # type: ignore[union-attr]
        made = self.keys_values(memory, key_positions)
        if isinstance(cache, ChunkedLayerKVCache):
            cache.neighbor_memory = (made[0].detach(), made[1].detach()) if keeps else None
            cache.chunks = neighbors.chunks
        return made


class ChunkedBlock(Block):
    """A layer that also looks at the neighbours of the text's chunks, between attention and feed-forward."""

    reads_neighbors: ClassVar[bool] = True

    def __init__(
        self, *parts: Any, chunked_attention: ChunkedCrossAttention, chunked_attention_norm: nn.Module, **options: Any
    ) -> None:
        super().__init__(*parts, **options)
        self.chunked_attention_norm = chunked_attention_norm
        self.chunked_attention = chunked_attention

    def forward(self, x: Tensor, mask: BoundMask, *, neighbors: Any = None, **options: Any) -> Tensor:
        return super().forward(x, mask, **(options | {"memory": neighbors, "memory_mask": None}))

    def _look_across(self, x: Tensor, memory: Any, memory_mask: BoundMask | None, cache: LayerKVCache | None) -> Tensor:
        """memory: the NeighborReading of the call, or None."""
        if memory is None:
            return x
        memory.read(x)
        if not memory.on:
            return x
        normed = self.chunked_attention_norm(x) if self.placement != "post" else x
        attended = self._drop(self.chunked_attention(normed, memory, cache))
        return self._added(x, attended, self.chunked_attention_norm)
