"""Attention in six visible steps: project q, k, v → score → scale → mask → softmax → weighted sum.

`attend` is the arithmetic, once, for every family. It has two paths with the same result: the explicit one, run
only where a trace asks for scores or weights, and PyTorch's fused `scaled_dot_product_attention`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.nn.kv_cache import LayerKVCache
from clearhead.nn.linear import Linear
from clearhead.nn.masks import BoundMask
from clearhead.nn.positions import Rotary
from clearhead.nn.tracing import is_watched, tap

ATTENTION_TAPS = ("query", "key", "value", "scores", "weights", "heads", "output")


def attention_weights(
    module: nn.Module,
    query: Tensor,  # (batch, heads, Q, head_dim)
    key: Tensor,  # (batch, heads, K, head_dim)
    mask: BoundMask,
    *,
    scale: float,
    bias: Tensor | None = None,
    dtype: torch.dtype | None = None,  # of the weights; default: the query's
    precise: bool = False,  # scores in fp32 whatever the dtype
) -> Tensor:
    """The explicit path's first half: score → scale → mask → softmax. Weights (batch, heads, Q, K), rows sum to one."""
    if mask.is_causal and bias is None and query.dtype == torch.float32 and not is_watched(module, "scores"):
        # Nobody asks for the scores: product, scale and mask are one call, and nothing (Q, K) is written twice.
        causal = torch.full((query.shape[-2], key.shape[-2]), -torch.inf, device=query.device).triu_(1)
        scores = torch.baddbmm(causal, query.flatten(0, 1), key.flatten(0, 1).mT, alpha=scale)
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).unflatten(0, query.shape[:2])
        return tap(module, "weights", weights.to(dtype or query.dtype))
    if precise:  # autocast would narrow the product again
        with torch.autocast(query.device.type, enabled=False):
            scores = (query.float() @ key.float().transpose(-1, -2)) * scale
    else:
        scores = (query @ key.transpose(-1, -2)) * scale
    if bias is not None:
        scores = scores + bias
    scores = tap(module, "scores", scores)
    wide = torch.promote_types(scores.dtype, torch.float32)
    weights = F.softmax(mask.hide(scores), dim=-1, dtype=wide).to(dtype or query.dtype)
    if mask.fully_masked is not None:
        weights = weights.masked_fill(mask.fully_masked, 0.0)
    return tap(module, "weights", weights)


def attend(
    module: nn.Module,
    query: Tensor,  # (batch, heads, Q, head_dim)
    key: Tensor,  # (batch, kv_heads, K, head_dim); heads is a multiple of kv_heads
    value: Tensor,  # (batch, kv_heads, K, value_dim)
    mask: BoundMask,
    *,
    scale: float,
    bias: Tensor | None = None,  # added to the scaled scores: (batch or 1, heads or 1, Q, K)
    dropout: float = 0.0,
    upcast: bool = False,  # scores and softmax in fp32 whatever the dtype
) -> Tensor:
    """The weighted sum of values per head, (batch, heads, Q, value_dim); announces its steps as taps of `module`."""
    group = int(query.shape[1]) // int(key.shape[1])  # query heads per key/value head
    upcast = upcast and query.dtype in (torch.float16, torch.bfloat16)
    watched = is_watched(module, "scores", "weights")
    if watched or bias is not None:
        mask = mask.dense()
    if mask.band is not None:
        query, key, value = mask.band.fold(query, key, value)
    if upcast or watched:
        if group > 1:
            key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        weights = attention_weights(module, query, key, mask, scale=scale, bias=bias, dtype=value.dtype, precise=upcast)
        heads = F.dropout(weights, dropout) @ value
    else:
        heads = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask.for_sdpa(query.dtype, bias),
            dropout_p=dropout,
            is_causal=mask.is_causal and bias is None,
            scale=scale,
            enable_gqa=group > 1,
        )
        if mask.fully_masked is not None:
            heads = heads.masked_fill(mask.fully_masked, 0.0)
    if mask.band is not None:
        heads = mask.band.unfold(heads)
    return tap(module, "heads", heads)


class Attention(nn.Module):
    """Multi-head attention: to its own sequence, or (cross) to a memory of another one.

    heads, kv_heads   query heads, and key/value heads shared among them (default: as many)
    fused             one matrix for q, k and v (cross: one for k and v), as GPT-2 stores them
    scale             what multiplies q·k; default 1/√head_dim, which keeps unit-variance scores at unit variance
    rotary, relative  position schemes that act inside attention
    """

    taps = ATTENTION_TAPS

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_dim: int | None = None,
        kv_heads: int | None = None,
        cross: bool = False,
        memory_width: int | None = None,
        fused: bool = False,
        bias: bool = True,
        out_bias: bool | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        upcast: bool = False,
        rotary: Rotary | None = None,
        relative: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if head_dim is None and width % heads:
            raise ConfigError(f"The width {width} cannot be split into {heads} heads of equal size.")
        if cross and (rotary is not None or relative is not None):
            raise ConfigError("rotary and relative positions are distances in one sequence; cross-attention has two.")
        self.heads = heads
        self.kv_heads = heads if kv_heads is None else kv_heads
        self.head_dim = width // heads if head_dim is None else head_dim
        if self.heads % self.kv_heads:
            raise ConfigError(f"{heads} query heads cannot share {kv_heads} key/value heads evenly.")
        self.cross, self.fused = cross, fused
        self.scale = self.head_dim**-0.5 if scale is None else scale
        self.dropout, self.upcast = dropout, upcast
        self.rotary, self.relative = rotary, relative

        q_size, kv_size = self.heads * self.head_dim, self.kv_heads * self.head_dim
        source = memory_width if memory_width is not None else width
        if fused and not cross:
            self.qkv = Linear(width, q_size + 2 * kv_size, bias=bias)
        else:
            self.query = Linear(width, q_size, bias=bias)
            if fused:
                self.key_value = Linear(source, 2 * kv_size, bias=bias)
            else:
                self.key = Linear(source, kv_size, bias=bias)
                self.value = Linear(source, kv_size, bias=bias)
        self.output = Linear(q_size, width, bias=bias if out_bias is None else out_bias)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        """(batch, time, heads · head_dim) -> (batch, heads, time, head_dim)"""
        return x.unflatten(-1, (heads, self.head_dim)).transpose(1, 2)

    def _project(self, x: Tensor, source: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Queries from x; keys and values from `source` (None: they are not needed)."""
        kv_size = self.kv_heads * self.head_dim
        if self.fused and not self.cross:
            q, k, v = self.qkv(x).split([self.heads * self.head_dim, kv_size, kv_size], dim=-1)
        else:
            q = self.query(x)
            if source is None:
                return self._split(q, self.heads), None, None
            k, v = self.key_value(source).chunk(2, -1) if self.fused else (self.key(source), self.value(source))
        return self._split(q, self.heads), self._split(k, self.kv_heads), self._split(v, self.kv_heads)

    def forward(
        self,
        x: Tensor,  # (batch, Q, width)
        mask: BoundMask,
        memory: Tensor | None = None,  # (batch, K, memory_width), for cross-attention
        cache: LayerKVCache | None = None,
        position_ids: Tensor | None = None,  # (batch or 1, Q), for rotary positions
        bias: Tensor | None = None,
    ) -> Tensor:
        projected = cache.memory if self.cross and cache is not None else None  # keys and values of an earlier step
        query, key, value = self._project(x, None if projected else memory if self.cross else x)
        query = query if self.rotary is None else self.rotary(query, position_ids)
        query = tap(self, "query", query)
        if projected is not None:
            key, value = projected
        else:
            assert key is not None and value is not None
            key = key if self.rotary is None else self.rotary(key, position_ids)
            if self.cross and cache is not None:
                cache.memory = (key.detach(), value.detach())  # untapped: a replacement acts on each call anew
        key, value = tap(self, "key", key), tap(self, "value", value)
        if cache is not None and not self.cross:
            key, value = cache.append(key, value)
        if self.relative is not None:
            by_distance = self.relative(query, key) * self.scale
            bias = by_distance if bias is None else bias + by_distance
        if key.shape[0] != query.shape[0]:
            heads = self._attend_beams(query, key, value, mask)
        else:
            heads = self.attend(query, key, value, mask, bias)
        # (batch, heads, Q, head_dim) -> (batch, Q, heads · head_dim) -> (batch, Q, width)
        return tap(self, "output", self.output(heads.transpose(1, 2).flatten(-2)))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: BoundMask, bias: Tensor | None) -> Tensor:
        """The weighted sum of values per head; the place for attention of another pattern (block-sparse)."""
        return attend(
            self,
            query,
            key,
            value,
            mask,
            scale=self.scale,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            upcast=self.upcast,
        )

    def _attend_beams(self, query: Tensor, key: Tensor, value: Tensor, mask: BoundMask) -> Tensor:
        """Several rows of queries attend to each row of an encoder's keys (beams of one text), which are not copied.

        Without an order between them, the queries of all copies can stand in one row: (batch, heads, copies · Q, …).
        """
        rows, sources = query.shape[0], key.shape[0]
        if not self.cross or rows % sources:
            raise InputError(f"{rows} texts cannot look at {sources} encoded texts: they must be as many, or copies.")
        copies = rows // sources
        if (
            is_watched(self, "scores", "weights", "heads") or not mask.same_for_all_queries
        ):  # each copy must be seen on its own
            key, value = key.repeat_interleave(copies, 0), value.repeat_interleave(copies, 0)
            return self.attend(query, key, value, mask.repeat(copies), None)
        folded = query.unflatten(0, (sources, copies)).transpose(1, 2).flatten(2, 3)
        heads = self.attend(folded, key, value, mask, None)
        return heads.unflatten(2, (copies, -1)).transpose(1, 2).flatten(0, 1)

    def extra_repr(self) -> str:
        kv_heads = f", kv_heads={self.kv_heads}" if self.kv_heads != self.heads else ""
        return f"heads={self.heads}{kv_heads}, head_dim={self.head_dim}, cross={self.cross}"
