"""Position schemes: how a model that sees a set of vectors learns their order.

Added to the embeddings: sinusoidal tables (two layouts) and learned tables.
Added to the scores: T5's buckets of distance, relative keys (Shaw; Music Transformer's "skew"), sinusoids of distance.
Rotated into queries and keys: rotary (RoPE), in both ways of pairing the dimensions.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.linear import Linear

Layout = Literal["interleaved", "halves"]
Pairing = Literal["neighbours", "halves"]


def sinusoidal(
    length: int, width: int, layout: Layout = "interleaved", base: float = 10_000.0, endpoint: bool = False
) -> Tensor:
    """(length, width): sines and cosines of position · base^(-2i/width).

    interleaved   sin, cos, sin, cos … as the 2017 paper writes it
    halves        all sines, then all cosines, as tensor2tensor computes it
    endpoint      tensor2tensor's spacing: the slowest wave is exactly 1/base (i runs over width/2 - 1 steps)
    """
    if layout not in ("interleaved", "halves"):
        raise ConfigError(f"Sinusoidal layout must be 'interleaved' or 'halves', not {layout!r}.")
    waves = width // 2 if endpoint else (width + 1) // 2
    exponent = torch.arange(waves, dtype=torch.float64) / (max(waves - 1, 1) if endpoint else width / 2)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * base**-exponent  # (length, waves)
    table = torch.zeros(length, width, dtype=torch.float64)
    if layout == "interleaved":
        table[:, 0 : 2 * waves : 2] = angle.sin()
        table[:, 1::2] = angle.cos()[:, : width // 2]
    else:
        table[:, :waves] = angle.sin()
        table[:, waves : 2 * waves] = angle.cos()[:, : width - waves]
    return table.float()


class SinusoidalPositions(nn.Module):
    """A fixed table, looked up by position like a learned one; it is computed, never saved.

    padding_idx   a row of zeros, for the position that padding gets (M2M-100)
    """

    weight: Tensor

    def __init__(
        self,
        length: int,
        width: int,
        layout: Layout = "interleaved",
        endpoint: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.layout: Layout = layout
        self.endpoint = endpoint
        self.length, self.width, self.padding_idx = length, width, padding_idx
        self.register_buffer("weight", torch.empty(length, width), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            table = sinusoidal(self.length, self.width, self.layout, endpoint=self.endpoint)
            if self.padding_idx is not None:
                table[self.padding_idx] = 0.0
            self.weight.copy_(table)

    def forward(self, position_ids: Tensor) -> Tensor:
        return self.weight[position_ids]

    def extra_repr(self) -> str:
        return f"{self.length}, {self.width}, layout={self.layout!r}"


class LearnedPositions(nn.Embedding):
    """A learned vector for each of `length` positions.

    offset   rows at the start of the table that no position uses (BART keeps 2 for history's sake)
    """

    def __init__(self, length: int, width: int, offset: int = 0, padding_idx: int | None = None) -> None:
        super().__init__(length + offset, width, padding_idx=padding_idx)
        self.length, self.offset = length, offset

    def forward(self, position_ids: Tensor) -> Tensor:
        return super().forward(position_ids + self.offset if self.offset else position_ids)


class Rotary(nn.Module):
    """Rotates pairs of dimensions of queries and keys by an angle that grows with position (RoPE).

    neighbours   pairs (0, 1), (2, 3) …: the RoFormer paper, GPT-J
    halves       pairs (0, d/2), (1, d/2 + 1) …: GPT-NeoX, Llama
    Only the first `rotated` dimensions of a head are rotated; the rest pass through.
    """

    def __init__(
        self, head_dim: int, rotated: int | None = None, base: float = 10_000.0, pairing: Pairing = "halves"
    ) -> None:
        super().__init__()
        self.rotated = head_dim if rotated is None else rotated
        if self.rotated % 2 or not 0 < self.rotated <= head_dim:
            raise ConfigError(f"Rotary positions turn an even number of dimensions up to {head_dim}, not {rotated}.")
        if pairing not in ("neighbours", "halves"):
            raise ConfigError(f"Rotary pairing must be 'neighbours' or 'halves', not {pairing!r}.")
        self.base, self.pairing = base, pairing

    def forward(self, x: Tensor, position_ids: Tensor) -> Tensor:
        """x (batch, heads, time, head_dim), position_ids (batch or 1, time)."""
        d = self.rotated
        wave = self.base ** -(torch.arange(0, d, 2, device=x.device, dtype=torch.float32) / d)
        angle = position_ids[:, None, :, None].float() * wave  # (batch, 1, time, d/2)
        cos, sin = angle.cos(), angle.sin()
        first, rest = x[..., :d].to(torch.promote_types(x.dtype, torch.float32)), x[..., d:]
        if self.pairing == "neighbours":
            a, b = first[..., 0::2], first[..., 1::2]
            rotated = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
        else:
            a, b = first[..., : d // 2], first[..., d // 2 :]
            rotated = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
        return torch.cat((rotated.to(x.dtype), rest), dim=-1)

    def extra_repr(self) -> str:
        return f"rotated={self.rotated}, base={self.base:g}, pairing={self.pairing!r}"


class RelativeBuckets(nn.Module):
    """T5: a learned number per head and bucket of distance, added to the scores of every layer."""

    def __init__(self, buckets: int, heads: int, max_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        exact = buckets // (4 if bidirectional else 2)
        if exact < 1 or max_distance <= exact:
            raise ConfigError(f"{buckets} buckets up to a distance of {max_distance} leave no room for shared ones.")
        self.table = nn.Embedding(buckets, heads)
        self.max_distance, self.bidirectional = max_distance, bidirectional

    def bucket(self, distance: Tensor) -> Tensor:
        """distance = key position - query position. Small distances have a bucket each, large ones share."""
        buckets = self.table.num_embeddings
        offset = torch.zeros_like(distance)
        if self.bidirectional:
            buckets //= 2
            offset = (distance > 0).long() * buckets
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        # log-spaced from `exact` up to max_distance
        log_ratio = torch.log(distance.float().clamp(min=1) / exact) / math.log(self.max_distance / exact)
        far = (exact + (log_ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return offset + torch.where(distance < exact, distance, far)

    def forward(self, query: int, key: int) -> Tensor:
        """(1, heads, query, key); the queries are the last of the keys."""
        device = self.table.weight.device
        i = torch.arange(key - query, key, device=device)[:, None]
        j = torch.arange(key, device=device)[None, :]
        bias: Tensor = self.table(self.bucket(j - i))  # (query, key, heads)
        return bias.permute(2, 0, 1)[None]


def skew(by_distance: Tensor, columns: int) -> Tensor:
    """(…, rows, rows + columns - 1) of scores by distance -> (…, rows, columns) by position, without a gather.

    out[r, c] = by_distance[r, c + rows - 1 - r]: each row is read one step further left than the one above it.
    """
    *lead, rows, length = by_distance.shape
    if rows == 1:
        return by_distance
    flat = by_distance.flatten(-2)[..., rows - 1 : rows - 1 + rows * (length - 1)]
    return flat.reshape(*lead, rows, length - 1)[..., :columns]


class RelativeKeys(nn.Module):
    """A learned vector per distance, dotted with the query (Shaw; Music Transformer) and, if asked, with the key.

    Distances are query position - key position, clipped to ±max_distance. Shaw's second table, on the values, is
    left out, as Music Transformer and BERT's relative variants leave it out.
    """

    def __init__(self, max_distance: int, head_dim: int, with_key: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * max_distance + 1, head_dim)
        self.max_distance, self.with_key = max_distance, with_key

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """query (batch, heads, Q, head_dim), key (batch, heads, K, head_dim) -> (batch, heads, Q, K), unscaled."""
        q, k = query.shape[-2], key.shape[-2]
        # Every distance that occurs: from k - 1 (last query, first key) down to -(q - 1).
        distance = torch.arange(k - 1, -q, -1, device=query.device).clamp(-self.max_distance, self.max_distance)
        vectors: Tensor = self.table(distance + self.max_distance)  # (q + k - 1, head_dim)
        scores = skew(query @ vectors.t(), k)
        if self.with_key:
            by_key = skew(key @ vectors.flip(0).t(), q).transpose(-1, -2)
            scores = scores + by_key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        return scores


class RelativeSinusoids(nn.Module):
    """A matrix makes a key of the sinusoid of every distance, dotted with the query (Transformer-XL, RETRO).

    Transformer-XL's two vectors that are added to the query are left out.
    """

    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        if width % 2:
            raise ConfigError(f"Sines and cosines come in pairs: the width must be even, not {width}.")
        self.width, self.heads, self.head_dim = width, heads, head_dim
        self.distance = Linear(width, heads * head_dim, bias=False)

    def keys(self, distance: Tensor) -> Tensor:
        """(distances,) -> (heads, head_dim, distances)"""
        wave = 10_000.0 ** -(torch.arange(0, self.width, 2, device=distance.device) / self.width)
        angle = distance[:, None].float() * wave
        sinusoids = torch.cat((angle.sin(), angle.cos()), -1).to(self.distance.weight.dtype)
        keys: Tensor = self.distance(sinusoids).unflatten(-1, (self.heads, self.head_dim))
        return keys.permute(1, 2, 0)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """As RelativeKeys: in one sequence, where the queries are the last of the keys."""
        q, k = query.shape[-2], key.shape[-2]
        keys = self.keys(torch.arange(k - 1, -q, -1, device=query.device))
        return skew(query @ keys.to(query.dtype), k)

    def between(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """In two sequences that are laid side by side: query (batch, heads, Q, head_dim), positions (batch or 1, Q) and
        (K,) -> (batch, heads, Q, K), unscaled."""
        distance = query_positions[:, :, None] - key_positions  # (batch or 1, Q, K)
        low, high = int(distance.min()), int(distance.max())
        keys = self.keys(torch.arange(low, high + 1, device=query.device))
        by_distance = query @ keys.to(query.dtype)  # (batch, heads, Q, distances)
        index = (distance - low)[:, None].expand(*by_distance.shape[:3], -1)
        return by_distance.gather(-1, index)
