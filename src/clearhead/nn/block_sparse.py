"""BigBird's attention: the text is cut into blocks, and a block sees a few others, so that the cost grows with length.

Block i of n sees the first and the last block, its neighbours i - 1, i, i + 1, and some blocks drawn at random; the
first and the last block see everything. A block that comes up twice counts twice in the softmax, as published.
While training, the random blocks are drawn as the published code draws them, from numpy's generator seeded with the
number of the layer. At rest it draws nothing and takes block 0 for each of them, so the first block counts 1 + r times.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from clearhead.errors import ConfigError, InputError
from clearhead.nn.attention import Attention, attention_weights
from clearhead.nn.masks import BoundMask
from clearhead.nn.tracing import is_watched, tap

PAPER_LENGTHS = (1024, 3072, 4096)  # lengths with a plan of their own, the one of the first experiments
PAPER_REACH = 1024  # in that plan, random blocks lie in the first so many positions
ROWS = 32  # query blocks at a time: what is gathered for them is all the memory that the pattern costs


@lru_cache(maxsize=256)
def random_plan(blocks: int, size: int, count: int, heads: int, seed: int, max_positions: int) -> Tensor:
    """(heads, blocks - 2, count): the random blocks that each block but the first and the last sees in training.

    blocks, size   how many blocks the text has, of how many positions
    max_positions  the most positions that the model has: the paper's plan is drawn for all of them and then cut
    """
    draw = np.random.RandomState(seed)
    if blocks * size in PAPER_LENGTHS:
        plan = np.stack([_paper_plan(draw, max_positions // size, size, count) for _ in range(heads)])
    else:
        within = 2 * count + 5  # random blocks are among the first so many
        plan = np.zeros((heads, blocks - 2, count), dtype=np.int64)
        for row in range(1, blocks - 1):
            excluded = {0, row - 1, row, row + 1, within - 1}
            excluded |= {within - 2} if row == 1 else {1} if row == within - 2 else set()
            for head in range(heads):
                order = draw.permutation(within)
                plan[head, row - 1] = [block for block in order if block not in excluded][:count]
    if plan.shape[1] < blocks - 2:
        raise InputError(f"A text of {blocks} blocks of {size} is longer than the model's {max_positions} positions.")
    return torch.from_numpy(plan[:, : blocks - 2])


def _paper_plan(draw: np.random.RandomState, total: int, size: int, count: int) -> np.ndarray:
    """(total - 2, count) for one head. What it leaves out near the edges is as published, slips included."""
    middle = np.arange(1, total - 1)
    last = PAPER_REACH // size - 1 if 2 * size < PAPER_REACH else total - 1
    plan = np.zeros((total - 2, count), dtype=np.int64)
    for row in range(1, total - 1):
        if row <= 2:
            choice = middle[row + 1 : last]
        elif row >= total - 3 or row - 2 > last:
            choice = middle[:last]
        else:
            choice = np.concatenate((middle[: row - 2], middle[row + 1 : last]))
        if count and not len(choice):
            raise ConfigError(
                f"With blocks of {size} there is no block left to draw at random in the first {PAPER_REACH} positions: "
                "choose a smaller block_size, or num_random_blocks = 0."
            )
        plan[row - 1] = draw.permutation(choice)[:count]
    return plan


class BlockSparseAttention(Attention):
    """Self-attention to blocks: see the head of this file. Short texts, and any with a cache, get full attention.

    block_size, random_blocks   the size of a block, and how many random blocks each one sees
    seed                        the number of the layer: what the random blocks are drawn from
    max_positions               the most positions that the model has

    A text of up to (5 + 2 · random_blocks) blocks is short. Longer ones are filled up to whole blocks with hidden
    positions. Hidden positions have no output (zeros). There is no dropout of weights here, as published.
    When a trace asks for scores or weights they are computed as whole squares: scores of all pairs, also of those
    that blocks never look at; weights of the pairs that are seen, zeros elsewhere, a block seen twice with both its
    weights, so that rows sum to one.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        block_size: int,
        random_blocks: int,
        seed: int,
        max_positions: int,
        bias: bool = True,
        out_bias: bool | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, bias=bias, out_bias=out_bias, dropout=dropout)
        self.block_size, self.random_blocks = block_size, random_blocks
        self.seed, self.max_positions = seed, max_positions

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: BoundMask, bias: Tensor | None) -> Tensor:
        time, size = query.shape[2], self.block_size
        if key.shape[2] != time or time <= (5 + 2 * self.random_blocks) * size:
            return super().attend(query, key, value, mask, bias)
        visible_keys = mask.visible  # (batch or 1, 1, 1, time), True = may be seen
        bidirectional = not mask.is_causal and mask.added is None and bias is None
        if not bidirectional or (visible_keys is not None and visible_keys.shape[1:] != (1, 1, time)):
            raise InputError(
                f"Block-sparse attention sees both ways and takes a mask of the shape (batch, time) only. This text of "
                f"{time} positions is too long for full attention in its place: set attention_type to original_full."
            )
        blocks = -(-time // size)
        plan = None  # at rest, each random block is block 0
        if self.training and self.random_blocks:
            plan = random_plan(blocks, size, self.random_blocks, self.heads, self.seed, self.max_positions).to(
                query.device
            )
        # hidden queries (batch, 1, time, 1) give zeros
        fully_masked = None if visible_keys is None else ~visible_keys.transpose(-1, -2)
        if fully_masked is not None and mask.fully_masked is not None:
            fully_masked = fully_masked | mask.fully_masked
        if is_watched(self, "scores", "weights"):
            log_counts = self._log_counts(blocks, plan, query)[:, :, :time, :time]
            if visible_keys is not None:
                log_counts = log_counts.masked_fill(~visible_keys, _lowest_score(query))
            square = BoundMask(added=log_counts, fully_masked=fully_masked)
            weights = attention_weights(self, query, key, square, scale=self.scale)
            return tap(self, "heads", weights @ value)
        if blocks * size > time:
            padding = blocks * size - time
            query, key, value = (F.pad(x, (0, 0, 0, padding)) for x in (query, key, value))
            if visible_keys is None:
                visible_keys = query.new_ones(1, 1, 1, time, dtype=torch.bool)
            visible_keys = F.pad(visible_keys, (0, padding))
        heads = self._attend_by_blocks(query, key, value, visible_keys, plan, blocks)[:, :, :time]
        return tap(self, "heads", heads if fully_masked is None else heads.masked_fill(fully_masked, 0.0))

    def _visible_blocks(self, blocks: int, plan: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor]:
        """Which blocks the middle ones see: (rows, heads or 1, slots). What is added to their scores: (rows, slots).

        A neighbour that is the first or last block itself is hidden: it has its slot already.
        """
        device, dtype = like.device, torch.promote_types(like.dtype, torch.float32)
        row = torch.arange(1, blocks - 1, device=device)
        first, last = torch.zeros_like(row), torch.full_like(row, blocks - 1)
        visible = torch.stack((first, row - 1, row, row + 1, last), dim=-1)
        added = torch.zeros(visible.shape, dtype=dtype, device=device)
        added[0, 1] = added[-1, 3] = -torch.inf
        if plan is None:
            added[:, 0] = math.log(1 + self.random_blocks)
            return visible[:, None], added
        visible = torch.cat((visible[:, None].expand(-1, self.heads, -1), plan.transpose(0, 1)), dim=-1)
        return visible, F.pad(added, (0, self.random_blocks))

    def _log_counts(self, blocks: int, plan: Tensor | None, like: Tensor) -> Tensor:
        """(1, heads or 1, time, time): the logarithm of how often each pair is seen; -inf: never."""
        visible, added = self._visible_blocks(blocks, plan, like)
        counts = added.new_zeros(visible.shape[1], blocks, blocks)
        counts[:, 0] = counts[:, -1] = 1.0
        times = added.exp()[:, None].expand(visible.shape)
        counts[:, 1:-1].scatter_add_(2, visible.transpose(0, 1), times.transpose(0, 1))
        by_position = counts.log().repeat_interleave(self.block_size, 1).repeat_interleave(self.block_size, 2)
        return by_position[None]

    def _attend_by_blocks(
        self, query: Tensor, key: Tensor, value: Tensor, visible_keys: Tensor | None, plan: Tensor | None, blocks: int
    ) -> Tensor:
        """(batch, heads, time, head_dim), without any (query, key) square; time is a multiple of the block size."""
        batch, heads, _, width = query.shape
        size = self.block_size
        first_and_last = torch.cat((query[:, :, :size], query[:, :, -size:]), dim=2)
        ends = F.scaled_dot_product_attention(first_and_last, key, value, attn_mask=visible_keys, scale=self.scale)

        visible, added = self._visible_blocks(blocks, plan, query)
        # Every block of every head a row, so that blocks can be picked by number: (batch, heads · blocks, size · width)
        keys, values = (x.reshape(batch, heads * blocks, size * width) for x in (key, value))
        picks = visible + torch.arange(heads, device=query.device)[:, None] * blocks  # (rows, heads, slots)
        queries = query.unflatten(2, (blocks, size)).transpose(1, 2)  # (batch, blocks, heads, size, width)
        visible_in_block = None if visible_keys is None else visible_keys.view(-1, blocks, size)

        def middle_blocks(queries: Tensor, keys: Tensor, values: Tensor, start: int, stop: int) -> Tensor:
            rows = stop - start
            pick = picks[start:stop].flatten()
            shape = (batch * rows, heads, -1, width)
            k, v = (x.index_select(1, pick).view(shape) for x in (keys, values))
            bias = added[start:stop, None, :, None].expand(-1, -1, -1, size)  # (rows, 1, slots, size)
            if visible_in_block is not None:
                picked = visible_in_block[:, visible[start:stop]]  # (batch or 1, rows, heads or 1, slots, size)
                bias = bias.masked_fill(~picked, _lowest_score(query))
            bias = bias.flatten(-2).expand(batch, rows, -1, -1).flatten(0, 1)[:, :, None]
            q = queries[:, 1 + start : 1 + stop].flatten(0, 1)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype), scale=self.scale)
            return out.unflatten(0, (batch, rows))

        # The gathered keys and values are several times the text: gather them again for the gradient, keep none.
        recompute = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
        parts = []
        for start in range(0, blocks - 2, ROWS):
            arguments = (queries, keys, values, start, min(start + ROWS, blocks - 2))
            if recompute:
                parts.append(checkpoint(middle_blocks, *arguments, use_reentrant=False, preserve_rng_state=False))
            else:
                parts.append(middle_blocks(*arguments))
        middle = torch.cat(parts, dim=1).transpose(1, 2).flatten(2, 3)  # (batch, heads, time - 2 · size, width)
        return torch.cat((ends[:, :, :size], middle, ends[:, :, size:]), dim=2)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, block_size={self.block_size}, random_blocks={self.random_blocks}"


def _lowest_score(like: Tensor) -> float:
    """What hides a position: finite, so that a hidden query, which may see hidden ones only, has finite gradients."""
    return torch.finfo(like.dtype).min / 2
