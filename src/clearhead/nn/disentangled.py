"""DeBERTa's attention: what a token is and where it stands are two vectors, and each looks at the other.

score(i, j) = content_i · content_j  +  content_i · position_key(i - j)  +  position_query(i - j) · content_j

The vectors of the distances are one table for all layers; each layer projects it with matrices of its own, or
(shared) with those of the content.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.attention import Attention, attend
from clearhead.nn.kv_cache import LayerKVCache
from clearhead.nn.linear import Linear
from clearhead.nn.masks import BoundMask
from clearhead.nn.positions import skew
from clearhead.nn.tracing import tap


def log_bucket(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Distances up to half of `buckets` as they are; larger ones share buckets that grow with their logarithm.

    In fp32 and in this order: the rounding up decides which distances share a bucket.
    """
    middle = buckets // 2
    size = distance.abs()
    log_range = torch.log(torch.tensor((max_distance - 1) / middle, device=distance.device))
    log_ratio = torch.log(size.clamp(min=middle) / middle) / log_range * (middle - 1)
    return torch.where(size <= middle, distance, (log_ratio.ceil() + middle).long() * distance.sign())


def real_positions(mask: BoundMask) -> Tensor | None:
    """(batch, 1, time, 1) bool: which positions are no padding; None where the mask speaks of more than padding."""
    if mask.visible is None or mask.visible.ndim != 4 or mask.visible.shape[1:3] != (1, 1):
        return None
    return mask.visible.transpose(-1, -2)


class RelativeVectors(nn.Module):
    """The table of distances that all layers share: (2 · span, width), a row per distance or bucket."""

    def __init__(self, span: int, width: int, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * span, width)
        self.norm = norm

    def forward(self, query: int, key: int) -> Tensor:
        """The whole table, whatever the lengths: each layer drops out of it before it looks distances up."""
        return self.table.weight if self.norm is None else self.norm(self.table.weight)


class DisentangledAttention(Attention):
    """
    terms              what the scores add up besides content to content: "c2p" (content to position), "p2c"
    relative           False: the terms are left out, but still count in the scale, as published
    span               distances are clipped to ±span, after bucketing
    buckets            None: a row of the table for every distance
    shared             the content's query and key matrices project the positions too (v2, v3)
    position_dropout   on the table of distances
    fused              one matrix for q, k and v, head by head, with biases for q and v alone (v1)
    talking_heads      two matrices that mix the heads, before and after the softmax (v1)
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        terms: tuple[str, ...] = ("c2p", "p2c"),
        relative: bool = True,
        span: int = 512,
        buckets: int | None = None,
        max_distance: int = 512,
        shared: bool = False,
        fused: bool = False,
        talking_heads: bool = False,
        dropout: float = 0.0,
        position_dropout: float = 0.0,
    ) -> None:
        scale = (width // heads * (1 + len(terms))) ** -0.5
        super().__init__(width, heads, fused=fused, bias=not fused, out_bias=True, scale=scale, dropout=dropout)
        if shared and fused:
            raise ConfigError("Fused q, k and v have no matrices of their own that positions could share.")
        self.span, self.buckets, self.max_distance = span, buckets, max_distance
        self.shared, self.position_dropout = shared, position_dropout
        self.terms = terms if relative else ()
        if fused:
            self.query_bias = nn.Parameter(torch.zeros(width))
            self.value_bias = nn.Parameter(torch.zeros(width))
        if "c2p" in self.terms and not shared:
            self.position_key = Linear(width, width, bias=not fused)
        if "p2c" in self.terms and not shared:
            self.position_query = Linear(width, width)
        self.mix_scores = Linear(heads, heads, bias=False) if talking_heads else None
        self.mix_weights = Linear(heads, heads, bias=False) if talking_heads else None

    def _content(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (batch, heads, time, head_dim) each."""
        if not self.fused:
            q, k, v = (self._split(part(x), self.heads) for part in (self.query, self.key, self.value))
            return q, k, v
        q, k, v = self.qkv(x).unflatten(-1, (self.heads, 3 * self.head_dim)).transpose(1, 2).chunk(3, -1)
        return (
            q + self._split(self.query_bias[None, None], self.heads),
            k,
            v + self._split(self.value_bias[None, None], self.heads),
        )

    def rows(self, query: int, key: int, device: torch.device) -> Tensor:
        """(query + key - 1,): the table's row of every distance i - j that occurs, the largest first."""
        distance = torch.arange(key - 1, -query, -1, device=device)
        if self.buckets is not None:
            distance = log_bucket(distance, self.buckets, self.max_distance)
        return (distance + self.span).clamp(0, 2 * self.span - 1)

    def _position_terms(self, query: Tensor, key: Tensor, table: Tensor) -> Tensor | None:
        """(batch, heads, Q, K), unscaled: content to position and position to content."""
        q, k = query.shape[-2], key.shape[-2]
        vectors = F.dropout(table, self.position_dropout, self.training)[self.rows(q, k, query.device)][None]
        total = None
        if "c2p" in self.terms:
            by_query = self._split((self.key if self.shared else self.position_key)(vectors), self.heads)
            total = skew(query @ by_query.transpose(-1, -2), k)
        if "p2c" in self.terms:
            by_key = self._split((self.query if self.shared else self.position_query)(vectors), self.heads)
            term = skew(key @ by_key.flip(-2).transpose(-1, -2), q).transpose(-1, -2)
            total = term if total is None else total + term
        return total

    def forward(
        self,
        x: Tensor,  # (batch, Q, width)
        mask: BoundMask,
        memory: Tensor | None = None,
        cache: LayerKVCache | None = None,
        position_ids: Tensor | None = None,
        bias: Tensor | None = None,  # the table of distances, as RelativeVectors gives it
    ) -> Tensor:
        query, key, value = self._content(x)
        query, key, value = tap(self, "query", query), tap(self, "key", key), tap(self, "value", value)
        position_bias = None if bias is None or not self.terms else self._position_terms(query, key, bias)
        if position_bias is not None:
            position_bias = position_bias * self.scale
        real = real_positions(mask)
        if real is not None:  # as published, padding sees all keys alike; a loss over all positions feels that
            query = query * real
            position_bias = None if position_bias is None else position_bias * real
            mask = BoundMask(visible=real.transpose(-1, -2) | ~real, fully_masked=mask.fully_masked)
        dropout = self.dropout if self.training else 0.0
        if self.mix_scores is None:
            heads = attend(self, query, key, value, mask, scale=self.scale, bias=position_bias, dropout=dropout)
        else:
            heads = self._attend_talking_heads(query, key, value, mask, position_bias, dropout)
        # (batch, heads, Q, head_dim) -> (batch, Q, width)
        return tap(self, "output", self.output(heads.transpose(1, 2).flatten(-2)))

    def _attend_talking_heads(
        self, query: Tensor, key: Tensor, value: Tensor, mask: BoundMask, bias: Tensor | None, dropout: float
    ) -> Tensor:
        """Attention whose heads mix their scores, and their weights again: rows need not sum to one any more."""
        assert self.mix_scores is not None and self.mix_weights is not None
        scores = query @ key.transpose(-1, -2) * self.scale
        scores = scores if bias is None else scores + bias
        scores = tap(self, "scores", self.mix_scores(scores.movedim(1, -1)).movedim(-1, 1))
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights = F.dropout(F.softmax(mask.hide(scores), dim=-1, dtype=wide).to(value.dtype), dropout)
        weights = self.mix_weights(weights.movedim(1, -1)).movedim(-1, 1)
        if mask.fully_masked is not None:
            weights = weights.masked_fill(mask.fully_masked, 0.0)
        return tap(self, "heads", tap(self, "weights", weights) @ value)
