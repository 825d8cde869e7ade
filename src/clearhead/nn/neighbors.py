"""The neighbours of a text's chunks: which of them each position looks at, and what is kept of them while writing.

A text is cut into chunks of m tokens, counted from its first real token. The neighbours of a chunk are found with the
whole chunk, so they first act at its last token: position p looks at those of chunk (p + 1) // m - 1, and the first
m - 1 positions at none. The remainder after the last whole chunk has no neighbours of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import InputError
from clearhead.nn.kv_cache import BLOCK, KVCache, LayerKVCache

# (ids (texts, tokens), states of the chunk each of them is a neighbour of (texts, chunk, width)) -> (texts, tokens, …)
Encoder = Callable[[Tensor, Tensor], Tensor]


class ChunkedLayerKVCache(LayerKVCache):
    """Beside a layer's own keys and values: those of the neighbours that each row looks at now.

    chunks   the chunk whose neighbours these are, for every row
    """

    neighbor_memory: tuple[Tensor, Tensor] | None = None
    chunks: tuple[int, ...] = ()

    def repeat(self, count: int) -> None:
        super().repeat(count)
        if self.neighbor_memory is not None:
            key, value = self.neighbor_memory
            self.neighbor_memory = (key.repeat_interleave(count, 0), value.repeat_interleave(count, 0))
            self.chunks = tuple(chunk for chunk in self.chunks for _ in range(count))

    def reorder(self, rows: Tensor, since: int = 0) -> None:
        super().reorder(rows, since)
        if self.neighbor_memory is not None:
            self.neighbor_memory = (self.neighbor_memory[0][rows], self.neighbor_memory[1][rows])
            self.chunks = tuple(self.chunks[row] for row in rows.tolist())

    def crop(self, length: int) -> None:
        super().crop(length)
        self.neighbor_memory = None


class ChunkedKVCache(KVCache):
    """A KV cache with the encoded neighbours of finished chunks, and the states that a chunk in work needs at its end.

    states      of the first layer with chunked attention, in place of keys; there are no values
    encoded     (batch, chunks, k, tokens, width); None while there are none
    visible     (batch, chunks, 1 + k · tokens) bool: whether the chunk has neighbours, and which of their tokens count
    retrieves   whether neighbours were given in any call
    """

    def __init__(self, layers: int, capacity: int = BLOCK) -> None:
        self.layers = [ChunkedLayerKVCache(capacity) for _ in range(layers)]
        self.states = LayerKVCache(capacity)
        self.encoded: Tensor | None = None
        self.visible: Tensor | None = None
        self.retrieves = False

    def append_states(self, x: Tensor) -> Tensor:
        """(batch, new, width) -> the states of all positions so far."""
        return self.states.append(x[:, None], x[:, None, :, :0])[0][:, 0]

    def repeat(self, count: int) -> None:
        super().repeat(count)
        self.states.repeat(count)
        if self.encoded is not None and self.visible is not None:
            self.encoded, self.visible = (t.repeat_interleave(count, 0) for t in (self.encoded, self.visible))

    def reorder(self, rows: Tensor, since: int = 0) -> None:
        super().reorder(rows, since)
        self.states.reorder(rows, since)
        if self.encoded is not None and self.visible is not None:
            self.encoded, self.visible = self.encoded[rows], self.visible[rows]

    def copy(self) -> Self:
        new = super().copy()  # encoded neighbours are replaced, never written to
        new.states = self.states.copy()
        return new

    def crop(self, length: int) -> None:
        super().crop(length)  # a chunk that is finished again gets its neighbours anew
        self.states.crop(length)

    @property
    def nbytes(self) -> int:
        held = [self.states._keys, self.encoded, self.visible]
        for layer in self.layers:
            held += getattr(layer, "neighbor_memory", None) or ()
        return super().nbytes + sum(t.numel() * t.element_size() for t in held if t is not None)


class NeighborReading:
    """What one call of a stack knows of neighbours.

    ids         (batch, chunks, k, tokens): those of the chunks that this call finishes, row by row; None: not given
    hidden_id   tokens that nobody sees: padding
    starts      the position of the call's first token in every row; negative where the row begins with padding
    on          whether the layers with chunked attention look at anything
    folds       how many chunks the call's positions lie in that look at neighbours; 0: none do
    width       positions to a chunk: chunk_size; 1 where the call has a single position
    """

    def __init__(
        self,
        encode: Encoder,
        ids: Tensor | None,
        *,
        chunk_size: int,
        hidden_id: int | None,
        batch: int,
        time: int,
        cache: ChunkedKVCache | None = None,
        attention_mask: Tensor | None = None,  # over cached and new positions
    ) -> None:
        self._encode, self._cache, self.chunk_size, self._hidden_id = encode, cache, chunk_size, hidden_id
        self._past, self._time = cache.length if cache is not None else 0, time
        self.starts = [self._past - padding for padding in _left_padding(attention_mask, batch)]
        self.on = ids is not None or (cache is not None and cache.retrieves)
        self._finished = max(self._after(start) - self._before(start) for start in self.starts)
        self._ids = None if ids is None else self._checked(ids, batch)
        self.width = 1 if time == 1 else chunk_size
        last = max(self._offset(start) + time for start in self.starts)  # slots in use
        self.folds = max(-(-last // chunk_size), 0)
        self._read = False
        self._encoded: Tensor | None = None
        self._visible: Tensor | None = None

    def _before(self, start: int) -> int:
        """How many chunks were finished before this call."""
        return max(start, 0) // self.chunk_size

    def _after(self, start: int) -> int:
        return max(start + self._time, 0) // self.chunk_size

    def _chunk(self, start: int) -> int:
        """The first chunk whose neighbours a position of this call looks at, or would if it came later."""
        return max((start + 1) // self.chunk_size - 1, 0)

    def _offset(self, start: int) -> int:
        """Where the call's first position stands in that row of chunks; negative: before it, looking at nothing."""
        return start + 1 - (self._chunk(start) + 1) * self.chunk_size

    def _checked(self, ids: Tensor, batch: int) -> Tensor:
        if not isinstance(ids, Tensor) or ids.ndim != 4 or ids.shape[0] != batch:
            shape = tuple(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
            raise InputError(f"neighbor_ids must be a tensor of the shape ({batch}, chunks, k, tokens), not {shape}.")
        most = max(-(-max(start + self._time, 0) // self.chunk_size) - self._before(start) for start in self.starts)
        if ids.shape[1] > most:
            raise InputError(
                f"neighbor_ids holds neighbours for {ids.shape[1]} chunks of {self.chunk_size} tokens, but the input "
                f"has {most}. Give one row of neighbours for every chunk."
            )
        return ids[:, : self._finished]  # those of a chunk that is not whole yet could not act

    def _by_row(self, rows: Tensor, part: Callable[[Tensor, int], Tensor]) -> Tensor:
        """The same for all rows that begin at the same position, else one row after the other."""
        if len(set(self.starts)) == 1:
            return part(rows, self.starts[0])
        return torch.cat([part(rows[n : n + 1], start) for n, start in enumerate(self.starts)])

    def read(self, x: Tensor) -> None:
        """Encode the neighbours of the chunks that this call finishes, with their states x (batch, time, width).

        Done once: later layers look at what the first one had encoded.
        """
        if self._read:
            return
        self._read = True
        states = x if self._cache is None else self._cache.append_states(x)
        encoded, visible = self._encode_finished(states) if self._ids is not None else (None, None)
        if self._cache is None:
            self._encoded, self._visible = encoded, visible
            return
        cache = self._cache
        if self._finished and self.on:
            cache.encoded = self._merged(cache.encoded, encoded)
            cache.visible = self._merged(cache.visible, visible)
        cache.retrieves = cache.retrieves or self.on
        self._encoded, self._visible = cache.encoded, cache.visible

    def _encode_finished(self, states: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """(batch, finished, k, tokens, width) and (batch, finished, 1 + k · tokens)."""
        assert self._ids is not None
        batch, chunks, k, _ = self._ids.shape
        if not self._ids.numel():
            return None, None
        size = self.chunk_size

        def finished(rows: Tensor, start: int) -> Tensor:
            first = self._past - start + self._before(start) * size  # padding stands before the row's first position
            return _padded(rows[:, first : first + chunks * size], chunks * size)

        chunk_states = self._by_row(states, finished).unflatten(1, (chunks, size))
        memory = chunk_states[:, :, None].expand(-1, -1, k, -1, -1).flatten(0, 2)  # (batch · chunks · k, size, width)
        encoded = self._encode(self._ids.flatten(0, 2), memory).unflatten(0, (batch, chunks, k))
        visible = torch.ones_like(self._ids, dtype=torch.bool) if self._hidden_id is None else (
            self._ids != self._hidden_id
        )  # fmt: skip
        visible = F.pad(visible.flatten(2), (1, 0), value=True)
        return _padded(encoded, self._finished), _padded(visible, self._finished)

    def _merged(self, old: Tensor | None, new: Tensor | None) -> Tensor | None:
        """What is kept of earlier chunks, and then the new ones, (batch, chunks, …)."""
        if old is None and new is None:
            return None
        like = old if old is not None else new
        assert like is not None
        old = like.new_zeros(len(like), 0, *like.shape[2:]) if old is None else old
        new = like.new_zeros(len(like), self._finished, *like.shape[2:]) if new is None else new
        if old.shape[2:] != new.shape[2:]:
            raise InputError("All chunks of a text must have as many neighbours, with as many tokens each. Pad them.")
        held = max(old.shape[1], *(self._before(start) for start in self.starts), 0)
        chunks = max(self._after(start) for start in self.starts)

        def merged(rows: Tensor, start: int) -> Tensor:
            before, after = self._before(start), self._after(start)
            return _padded(torch.cat((rows[:, :before], rows[:, held : held + after - before]), 1), chunks)

        return self._by_row(torch.cat((_padded(old, held), new), 1), merged)

    @property
    def encoded(self) -> tuple[Tensor, Tensor] | None:
        """What the positions of this call look at: (batch, folds, k, tokens, width), and what counts of it,
        (batch, folds, 1 + k · tokens)."""
        if self._encoded is None or self._visible is None or not self.folds:
            return None

        def seen(rows: Tensor, start: int) -> Tensor:
            first = self._chunk(start)
            return _padded(rows[:, first : first + self.folds], self.folds)

        return self._by_row(self._encoded, seen), self._by_row(self._visible, seen)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The chunk that the call's first position looks at, of every row; -1 for none."""
        return tuple(max((start + 1) // self.chunk_size, 0) - 1 for start in self.starts)

    def slots(self, device: torch.device) -> Tensor:
        """(batch or 1, width): the place of every folded position in its chunk; 0 is the one that ends the chunk."""
        if self.width > 1:
            return torch.arange(self.width, device=device)[None]
        return torch.tensor([(start + 1) % self.chunk_size for start in self.starts], device=device)[:, None]

    def fold(self, x: Tensor) -> Tensor:
        """(batch, time, …) -> (batch, folds, width, …): positions laid beside the chunk that they look at."""
        if self.width == 1:
            return x[:, None]

        def fold(rows: Tensor, start: int) -> Tensor:
            offset = self._offset(start)
            rows = rows[:, max(-offset, 0) :]
            return _padded(_padded(rows, rows.shape[1] + max(offset, 0), before=True), self.folds * self.width)

        return self._by_row(x, fold).unflatten(1, (self.folds, self.width))

    def unfold(self, x: Tensor) -> Tensor:
        """The way back; positions that look at nothing get zeros."""

        def unfold(rows: Tensor, start: int) -> Tensor:
            offset = self._offset(start)
            if self.width == 1:
                return rows if offset >= 0 else torch.zeros_like(rows)
            rows = rows[:, max(offset, 0) : max(offset + self._time, 0)]
            return _padded(rows, self._time, before=True)

        return self._by_row(x.flatten(1, 2), unfold)


def _padded(x: Tensor, length: int, before: bool = False) -> Tensor:
    """(batch, time, …) with zeros up to this length."""
    missing = length - x.shape[1]
    if missing <= 0:
        return x
    zeros = x.new_zeros(x.shape[0], missing, *x.shape[2:])
    return torch.cat((zeros, x) if before else (x, zeros), 1)


def _left_padding(attention_mask: Tensor | None, batch: int) -> list[int]:
    """How many hidden positions every row begins with."""
    if attention_mask is None or attention_mask.ndim != 2 or torch.compiler.is_compiling():
        return [0] * batch
    padding: list[int] = (attention_mask.cumsum(-1) == 0).sum(-1).tolist()
    return padding
