"""Segment recurrence: layers that also look at what the layer below said of earlier text. Transformer-XL and XLNet.

Positions are distances, so remembered states need none of their own: the same memory serves whatever comes next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.nn.attention import ATTENTION_TAPS, attend
from clearhead.nn.block import Block
from clearhead.nn.embedding import TokenEmbedder
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.linear import Linear
from clearhead.nn.masks import BoundMask, Mask, from_attention_mask
from clearhead.nn.positions import skew
from clearhead.nn.stack import Stack, narrowed, shape_of
from clearhead.nn.state import TensorState
from clearhead.nn.tracing import tap

Mems = Sequence[Tensor]  # one (remembered, batch, width) per layer, the layout that published code hands around


class SegmentMemory(TensorState):
    """The hidden states of earlier text, a tensor for each layer, which later segments look at in place of keys."""

    @property
    def length(self) -> int:
        return 0 if self.tensors is None else self.tensors[0].shape[0]


class RelativeAttention(nn.Module):
    """score(i, j) = ((q_i + u) · k_j + (q_i + v) · r_{i-j} + (q_i + s) · e_{i, j}) / √head_dim

    u, v      content_bias and position_bias: what any query asks of content and of distance
    r         `distance`, applied to the sinusoid of the distance: the relative keys
    s, e      with `segments`: e is one of two vectors, for keys in the query's own segment or in another
    fused     q, k and v in one matrix (Transformer-XL)

    Keys and values are made of the remembered states and the new ones, so their taps hold both. With a target stream
    (XLNet) the other taps are announced twice in a call: first for the content, then for the targets.
    """

    taps = ATTENTION_TAPS

    def __init__(
        self,
        width: int,
        heads: int,
        head_dim: int,
        *,
        fused: bool = False,
        segments: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads = self.kv_heads = heads
        self.head_dim, self.fused, self.dropout = head_dim, fused, dropout
        self.scale = head_dim**-0.5
        size = heads * head_dim
        if fused:
            self.qkv = Linear(width, 3 * size, bias=False)
        else:
            self.query = Linear(width, size, bias=False)
            self.key = Linear(width, size, bias=False)
            self.value = Linear(width, size, bias=False)
        self.distance = Linear(width, size, bias=False)
        self.output = Linear(size, width, bias=False)
        self.content_bias = nn.Parameter(torch.empty(heads, head_dim))
        self.position_bias = nn.Parameter(torch.empty(heads, head_dim))
        self.segment_bias = nn.Parameter(torch.empty(heads, head_dim)) if segments else None
        self.segments = nn.Parameter(torch.empty(2, heads, head_dim)) if segments else None

    def _split(self, x: Tensor) -> Tensor:
        """(batch, time, heads · head_dim) -> (batch, heads, time, head_dim)"""
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def forward(
        self,
        source: Tensor,  # (batch, K, width): remembered states, then the new ones
        time: int,  # how many are new: Q
        mask: BoundMask,
        distances: Tensor,  # (1 or 2, Q + K - 1, width): two where half of the batch runs backwards
        other_segment: Tensor | None = None,  # (batch, 1, Q, K) bool: whether the key lies in another segment
        targets: Tensor | None = None,  # (batch, targets, width): what to guess, without having seen it
        target_mask: BoundMask | None = None,
        target_mapping: Tensor | None = None,  # (batch, targets, Q): where each target stands
    ) -> tuple[Tensor, Tensor | None]:
        if self.fused:
            query, key, value = self.qkv(source).chunk(3, -1)
            query = query[:, -time:]
        else:
            query, key, value = self.query(source[:, -time:]), self.key(source), self.value(source)
        key, value = tap(self, "key", self._split(key)), tap(self, "value", self._split(value))
        relative_keys = self._split(self.distance(distances))  # (1 or 2, heads, Q + K - 1, head_dim)
        if len(relative_keys) > 1:
            relative_keys = relative_keys.repeat_interleave(len(source) // len(relative_keys), 0)

        heads = self._attend(self._split(query), key, value, relative_keys, mask, other_segment)
        content = self._project_out(heads)
        if targets is None:
            return content, None
        assert target_mask is not None and target_mapping is not None and not self.fused
        mapping = target_mapping.to(source.dtype)[:, None]  # (batch, 1, targets, Q)
        query = mapping.transpose(-1, -2) @ self._split(self.query(targets))
        heads = self._attend(query, key, value, relative_keys, target_mask, other_segment)
        return content, self._project_out(mapping @ heads)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        relative_keys: Tensor,
        mask: BoundMask,
        other_segment: Tensor | None,
    ) -> Tensor:
        query = tap(self, "query", query)
        bias = skew((query + self.position_bias[:, None]) @ relative_keys.transpose(-1, -2), key.shape[2])
        if other_segment is not None:
            assert self.segments is not None and self.segment_bias is not None
            # (batch, heads, Q, 2): for keys in the same segment, and in another
            by_segment = (query + self.segment_bias[:, None]) @ self.segments.permute(1, 2, 0)
            bias = bias + torch.where(other_segment, by_segment[..., 1:], by_segment[..., :1])
        return attend(
            self,
            query + self.content_bias[:, None],
            key,
            value,
            mask,
            scale=self.scale,
            bias=bias * self.scale,
            dropout=self.dropout if self.training else 0.0,
        )

    def _project_out(self, heads: Tensor) -> Tensor:
        # (batch, heads, Q, head_dim) -> (batch, Q, heads · head_dim) -> (batch, Q, width)
        return tap(self, "output", self.output(heads.transpose(1, 2).flatten(-2)))

    def extra_repr(self) -> str:
        return f"heads={self.heads}, head_dim={self.head_dim}"


class SegmentRecurrentBlock(Block):
    """A layer that looks at remembered states too. Its norm is placed "pre" or "post"."""

    def __init__(self, attention: RelativeAttention, feedforward: FeedForward, **options: Any) -> None:
        super().__init__(attention, feedforward, **options)  # type: ignore[arg-type]

    def forward(  # type: ignore[override]
        self,
        x: Tensor,  # (batch, time, width)
        mask: BoundMask,
        distances: Tensor,
        memory: Tensor | None = None,  # (batch, remembered, width)
        other_segment: Tensor | None = None,
        targets: Tensor | None = None,
        target_mask: BoundMask | None = None,
        target_mapping: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        pre = self.placement == "pre"
        x = tap(self, "input", x)
        source = x if memory is None else torch.cat((memory, x), 1)
        source = self.attention_norm(source) if pre else source
        query_stream = None if targets is None else tap(self, "input", targets)
        attended, query_attended = self.attention(
            source,
            x.shape[1],
            mask,
            distances,
            other_segment,
            self.attention_norm(query_stream) if query_stream is not None and pre else query_stream,
            target_mask,
            target_mapping,
        )
        return self._rest(x, attended), None if query_stream is None else self._rest(query_stream, query_attended)

    def _rest(self, x: Tensor, attended: Tensor) -> Tensor:
        assert self.feedforward_norm is not None
        if self.placement == "pre":
            x = x + self._drop(attended)
            return tap(self, "output", x + self._drop(self.feedforward(self.feedforward_norm(x))))
        x = self.attention_norm(x + self._drop(attended))
        return tap(self, "output", self.feedforward_norm(x + self._drop(self.feedforward(x))))


class SegmentRecurrentStack(Stack):
    """Runs ids (or vectors) through the layers, with a memory in and a memory out.

    mem_len       how many states are remembered (None: all)
    reuse_len     how many of the new ones may be remembered, from the first on (None: all)
    zero_memory   a call without a memory looks at mem_len states of zero (Transformer-XL)
    window        how far back a position sees; "memory": as far as the last one's memory reaches
    max_distance  longer distances count as this one
    bi_data       the second half of the batch is text that runs backwards
    two_stream    a learned vector stands for a word to be guessed, in a second stream (XLNet)
    """

    def __init__(
        self,
        embed: TokenEmbedder,
        layers: Iterable[SegmentRecurrentBlock],
        *,
        causal: bool,
        mem_len: int | None,
        reuse_len: int | None = None,
        zero_memory: bool = False,
        window: int | Literal["memory"] | None = None,
        max_distance: int | None = None,
        bi_data: bool = False,
        two_stream: bool = False,
        width: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed, layers, causal=causal, final_dropout=dropout)
        if width % 2:
            raise ConfigError(f"The width {width} is odd; half of it holds sines of the distance, half cosines.")
        self.width, self.mem_len, self.reuse_len, self.zero_memory = width, mem_len, reuse_len, zero_memory
        self.window, self.max_distance, self.bi_data = window, max_distance, bi_data
        self.query_embedding = nn.Parameter(torch.empty(1, 1, width)) if two_stream else None

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,  # (batch, time)
        *,
        attention_mask: Tensor | None = None,  # (batch, time) or (batch, time, time), of the new positions
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        mems: Mems | None = None,
        perm_mask: Tensor | None = None,  # (batch, time, time): 1 where query i must not see key j
        target_mapping: Tensor | None = None,  # (batch, targets, time)
        remember_all: bool = False,  # whatever mem_len says
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The last states (of the targets, where there are some), and the new memory."""
        batch, time, device = shape_of(input_ids, inputs_embeds)
        x = narrowed(self.embed(input_ids, torch.arange(time, device=device)[None], None, inputs_embeds))
        memory = self._recall(mems, x)
        past = 0 if memory[0] is None else memory[0].shape[1]
        mask, target_mask = self._masks(attention_mask, perm_mask, batch, time, past, device)
        other_segment = self._other_segment(token_type_ids, batch, time, past)
        distances = F.dropout(self.distances(batch, time, past + time, x), self.final_dropout, self.training)
        targets = None
        if target_mapping is not None:
            if self.query_embedding is None:
                raise InputError("This model has no target stream: leave target_mapping out.")
            _check_shape("target_mapping", target_mapping, (batch, target_mapping.shape[1], time))
            targets = F.dropout(
                self.query_embedding.expand(batch, target_mapping.shape[1], -1), self.final_dropout, self.training
            )
        remembered = []
        for layer, past_states in zip(self.layers, memory, strict=True):
            remembered.append(self._remember(x, past_states, None if remember_all else self.mem_len))
            inputs = (x, mask, distances, past_states, other_segment, targets, target_mask, target_mapping)
            x, targets = self.through(layer, *inputs)
        return F.dropout(x if targets is None else targets, self.final_dropout, self.training), tuple(remembered)

    def _recall(self, mems: Mems | None, x: Tensor) -> list[Tensor | None]:
        """One memory per layer, (batch, remembered, width)."""
        batch = len(x)
        if mems is None or mems[0] is None:
            if not self.zero_memory or not self.mem_len:
                return [None] * len(self.layers)
            return [x.new_zeros(batch, self.mem_len, self.width)] * len(self.layers)
        if len(mems) != len(self.layers):
            raise InputError(f"mems holds {len(mems)} layers; this model has {len(self.layers)}.")
        for mem in mems:
            _check_shape("each of mems", mem, (mems[0].shape[0], batch, self.width))
        return [mem.transpose(0, 1).to(x.dtype) for mem in mems]

    def _remember(self, x: Tensor, past_states: Tensor | None, limit: int | None) -> Tensor:
        new = x[:, : self.reuse_len] if self.reuse_len else x
        whole = new if past_states is None else torch.cat((past_states, new), 1)
        kept = whole if limit is None else whole[:, max(0, whole.shape[1] - limit) :]
        return kept.detach().transpose(0, 1)

    def _masks(
        self,
        attention_mask: Tensor | None,
        perm_mask: Tensor | None,
        batch: int,
        time: int,
        past: int,
        device: torch.device,
    ) -> tuple[BoundMask, BoundMask]:
        """For the content, where a position always sees itself, and for the targets, where it may not."""
        window = past + 1 if self.window == "memory" else self.window
        order = Mask(causal=self.causal, window=window)
        if attention_mask is not None and attention_mask.ndim == 4:
            raise InputError("This model takes an attention_mask of the shape (batch, time) or (batch, time, time).")
        parts = list(from_attention_mask(attention_mask, batch, time, time).visible)
        if perm_mask is not None:
            _check_shape("perm_mask", perm_mask, (batch, time, time))
            parts.append((perm_mask == 0)[:, None])
        if not parts:
            bound = order.bind(time, past + time, device)
            return bound, bound
        seen = reduce(torch.logical_and, parts)  # (batch, 1, time or 1, time)
        if past:  # the memory is seen by all
            seen = torch.cat((seen.new_ones(*seen.shape[:3], past), seen), -1)
        itself = torch.eye(time, dtype=torch.bool, device=device)
        itself = F.pad(itself, (past, 0))
        content, target = (order & Mask(visible=(part,)) for part in (seen | itself, seen))
        return content.bind(time, past + time, device), target.bind(time, past + time, device)

    def _other_segment(self, token_type_ids: Tensor | None, batch: int, time: int, past: int) -> Tensor | None:
        """(batch, 1, Q, K) bool: whether query and key lie in different segments; the memory is segment 0."""
        if token_type_ids is None:
            return None
        if self.blocks[0].attention.segments is None:
            raise InputError("This model knows no segments: leave token_type_ids out.")
        _check_shape("token_type_ids", token_type_ids, (batch, time))
        keys = F.pad(token_type_ids, (past, 0))
        return (token_type_ids[:, :, None] != keys[:, None])[:, None]

    def distances(self, batch: int, time: int, length: int, like: Tensor) -> Tensor:
        """(1 or 2, time + length - 1, width): sinusoids of every distance, from the farthest back to the last ahead."""
        distance = torch.arange(length - 1, -time, -1, device=like.device, dtype=torch.float32)
        if self.max_distance is not None:
            distance = distance.clamp(-self.max_distance, self.max_distance)
        if self.bi_data:
            if batch % 2:
                raise InputError(f"Half of the batch runs backwards (bi_data), so it cannot hold {batch} texts.")
            directions = torch.stack((distance, -distance))
        else:
            directions = distance[None]
        steps = torch.arange(0, self.width, 2, device=like.device, dtype=torch.float32)
        angle = directions[..., None] * (1 / 10_000 ** (steps / self.width))
        return torch.cat((angle.sin(), angle.cos()), -1).to(like.dtype)


def _check_shape(name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    if not isinstance(tensor, Tensor) or tuple(tensor.shape) != expected:
        shape = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
        raise InputError(f"{name} must be a tensor of the shape {expected}, not {shape}.")
