"""Attention to a sliding window without the (query, key) square: memory grows with the length, not with its square.

The queries are cut into blocks of one window each. A block and the keys it can reach (its own stretch and a window's
worth on the sides it may look to) make one small attention problem; all of them are solved at once, as if they were
texts of a batch. The numbers are those of the dense mask, because every pair that the mask shows is in some block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Band:
    """Which keys each query sees: those less than `window` away, before it only if `causal`, and not hidden.

    The `query` positions are the last of the `key` positions. visible_keys: (batch or 1, key) bool, True = may be seen.
    """

    window: int
    causal: bool
    query: int
    key: int
    visible_keys: Tensor | None = None

    @property
    def blocks(self) -> int:
        return -(-self.query // self.window)

    @property
    def span(self) -> int:
        """How many keys a block of queries reaches."""
        return 2 * self.window - 1 if self.causal else 3 * self.window - 2

    def visible(self, batch: int, device: torch.device | str) -> Tensor:
        """(batch · blocks, 1, window, span) bool: what each query of a block sees of the block's keys."""
        start = torch.arange(self.blocks, device=device)[:, None, None] * self.window + self.key - self.query
        i = torch.arange(self.window, device=device)[:, None]
        j = torch.arange(self.span, device=device)[None, :] - self.window + 1  # counted from the block's start
        in_window = (i - j).abs() < self.window
        if self.causal:
            in_window = in_window & (j <= i)
        in_text = (start + j >= 0) & (start + j < self.key)  # (blocks, 1, span)
        visible = (in_window & in_text)[:, None].expand(batch, -1, -1, -1, -1)  # (batch, blocks, 1, window, span)
        if self.visible_keys is not None:
            visible = visible & self._key_blocks(self.visible_keys[:, None, :, None]).transpose(-1, -2)
        return visible.flatten(0, 1)

    def fold(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, heads, time, size) -> (batch · blocks, heads, window or span, size)."""
        padded = F.pad(query, (0, 0, 0, self.blocks * self.window - self.query))
        query_blocks = padded.unflatten(2, (self.blocks, self.window)).transpose(1, 2)
        return query_blocks.flatten(0, 1), self._key_blocks(key).flatten(0, 1), self._key_blocks(value).flatten(0, 1)

    def unfold(self, heads: Tensor) -> Tensor:
        """(batch · blocks, heads, window, size) -> (batch, heads, query, size)"""
        return heads.unflatten(0, (-1, self.blocks)).transpose(1, 2).flatten(2, 3)[:, :, : self.query]

    def _key_blocks(self, x: Tensor) -> Tensor:
        """(batch, heads, key, size) -> (batch, blocks, heads, span, size): the keys that each block reaches."""
        first = self.key - self.query - self.window + 1  # where the keys of the first block begin; may lie before 0
        length = (self.blocks - 1) * self.window + self.span
        x = x[:, :, max(first, 0) : first + length]
        before = max(-first, 0)
        x = F.pad(x, (0, 0, before, length - before - x.shape[2]))
        return x.unfold(2, self.span, self.window).permute(0, 2, 1, 4, 3)
