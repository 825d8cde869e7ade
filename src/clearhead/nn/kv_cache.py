"""The KV cache: memory is set aside once, new positions are written in place, nothing is concatenated.

A cache holds values, not gradients: keys and values written in an earlier call are constants to a later one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.nn.state import State

BLOCK = 64  # positions are set aside in multiples of this


class LayerKVCache:
    """One layer's keys and values: its own positions (growing), and its view of an encoder (fixed).

    window   how far the layer sees. What lies further back is dropped, a block at a time; `dropped` counts it.
    """

    def __init__(self, capacity: int, window: int | None = None) -> None:
        self.length = 0  # positions seen, whether they are still held or not
        self.dropped = 0
        self.window = window
        self.memory: tuple[Tensor, Tensor] | None = None  # cross-attention keys and values, computed once
        self._limit = None if window is None else window + 2 * BLOCK
        self._at_first = capacity if self._limit is None else min(capacity, self._limit)
        self._keys: Tensor | None = None  # (batch, kv_heads, capacity, head_dim)
        self._values: Tensor | None = None

    @property
    def capacity(self) -> int:
        """How many positions fit before it has to grow."""
        return 0 if self._keys is None else self._keys.shape[2]

    @property
    def held(self) -> int:
        """How many positions are here to be looked at."""
        return self.length - self.dropped

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new positions; returns all that the layer may need to see of those so far."""
        new = key.shape[2]
        if self._keys is not None and self._keys.shape[0] != key.shape[0]:
            raise InputError(f"The cache holds {self._keys.shape[0]} texts; the input has {key.shape[0]}.")
        if self.window is not None and self._limit is not None and self.held + new > self._limit:
            return self._slide(key, value, self.window)
        start, stop = self.held, self.held + new
        if stop > self.capacity:
            self._keys, self._values = self._grown(self._keys, key, stop), self._grown(self._values, value, stop)
        assert self._keys is not None and self._values is not None
        self._keys[:, :, start:stop] = key.detach()
        self._values[:, :, start:stop] = value.detach()
        self.length += new
        if start == 0:
            return key, value  # the very tensors, so that a first call keeps its gradients
        if key.requires_grad or value.requires_grad:  # this call's own positions keep their gradients
            return torch.cat((self._keys[:, :, :start], key), 2), torch.cat((self._values[:, :, :start], value), 2)
        return self._keys[:, :, :stop], self._values[:, :, :stop]

    def _slide(self, key: Tensor, value: Tensor, window: int) -> tuple[Tensor, Tensor]:
        """The cache is full: look once more at everything, then keep a window and a block (to go back a little)."""
        if self._keys is not None and self._values is not None and self.held:
            key = torch.cat((self._keys[:, :, : self.held], key), 2)
            value = torch.cat((self._values[:, :, : self.held], value), 2)
        self.length = self.dropped + key.shape[2]
        kept = min(key.shape[2], window - 1 + BLOCK)
        self.dropped = self.length - kept
        if self.capacity < kept:
            self._keys, self._values = self._grown(None, key, kept), self._grown(None, value, kept)
        assert self._keys is not None and self._values is not None
        self._keys[:, :, :kept] = key[:, :, key.shape[2] - kept :].detach()
        self._values[:, :, :kept] = value[:, :, key.shape[2] - kept :].detach()
        return key, value

    def _grown(self, old: Tensor | None, like: Tensor, needed: int) -> Tensor:
        capacity = -(-max(needed, self._at_first if old is None else 2 * self.capacity) // BLOCK) * BLOCK
        batch, heads, _, head_dim = like.shape
        new = like.new_empty(batch, heads, capacity, head_dim)
        if old is not None:
            new[:, :, : self.held] = old[:, :, : self.held]
        return new

    def repeat(self, count: int) -> None:
        """Every row `count` times, side by side. The view of an encoder stays one for all copies of a row."""
        if self._keys is not None and self._values is not None:
            self._keys = self._keys.repeat_interleave(count, 0)
            self._values = self._values.repeat_interleave(count, 0)

    def reorder(self, rows: Tensor, since: int = 0) -> None:
        """As State.reorder; rows that were copies of one text share an encoder's view too."""
        if self._keys is not None and self._values is not None:
            if since:
                part = slice(max(since - self.dropped, 0), self.held)
                self._keys[:, :, part] = self._keys[rows, :, part]
                self._values[:, :, part] = self._values[rows, :, part]
            else:
                self._keys, self._values = self._keys[rows], self._values[rows]
        if self.memory is not None and not since:
            self.memory = (self.memory[0][rows], self.memory[1][rows])

    def copy(self) -> Self:
        new = copy.copy(self)
        if self._keys is not None and self._values is not None:
            new._keys, new._values = self._keys.clone(), self._values.clone()
        return new  # an encoder's view is never written to

    def crop(self, length: int) -> None:
        """Forget positions from `length` on (negative: the last -length positions)."""
        length = min(self.length, length) if length >= 0 else max(self.length + length, 0)
        if self.window is not None and self.dropped and length - self.dropped < self.window - 1:
            raise InputError(f"The cache has let go of what position {length} would need to see; it cannot go back.")
        self.length = length


class KVCache(State):
    """One LayerKVCache per layer. `capacity` is how many positions to set aside at first.

    windows   how far each layer sees (None: everything), for layers that may forget what lies further back
    """

    def __init__(self, layers: int, capacity: int = BLOCK, windows: Sequence[int | None] | None = None) -> None:
        self.layers = [LayerKVCache(capacity, window) for window in windows or [None] * layers]

    @property
    def length(self) -> int:
        return self.layers[0].length if self.layers else 0

    def repeat(self, count: int) -> None:
        for layer in self.layers:
            layer.repeat(count)

    def reorder(self, rows: Tensor, since: int = 0) -> None:
        for layer in self.layers:
            layer.reorder(rows, since)

    def copy(self) -> Self:
        new = copy.copy(self)
        new.layers = [layer.copy() for layer in self.layers]
        return new

    def crop(self, length: int) -> None:
        for layer in self.layers:
            layer.crop(length)

    @property
    def nbytes(self) -> int:
        held: list[Tensor | None] = []
        for layer in self.layers:
            held += [layer._keys, layer._values, *(layer.memory or ())]
        return sum(t.numel() * t.element_size() for t in held if t is not None)


class StaticLayerKVCache(LayerKVCache):
    """Place for `span` positions, all of them always in sight: a mask must hide what is empty. Shapes never change.

    The first call fills it from its start; each later one writes one position, where `position` (1,) says.
    """

    def __init__(self, span: int, position: Tensor) -> None:
        super().__init__(span)
        self._position = position
        self._span = span

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.length == 0:
            super().append(key, value)
            self.length = self._span - 1  # from now on: everything else, and the position that is written
            return key, value
        assert self._keys is not None and self._values is not None
        self._keys.index_copy_(2, self._position, key)
        self._values.index_copy_(2, self._position, value)
        return self._keys, self._values

    def _grown(self, old: Tensor | None, like: Tensor, needed: int) -> Tensor:
        batch, heads, _, head_dim = like.shape
        return like.new_zeros(batch, heads, self._span, head_dim)  # zeros: what is hidden must still be a number


class StaticKVCache(KVCache):
    """A cache whose shapes never change, so that a step with it can be recorded and replayed."""

    def __init__(self, layers: int, span: int, position: Tensor) -> None:
        super().__init__(0)
        self.layers = [StaticLayerKVCache(span, position) for _ in range(layers)]

    def empty(self) -> None:
        """Ready for another first call, in the same memory."""
        for layer in self.layers:
            layer.length = 0

    def filled(self) -> None:
        """Say that the first call has been made, where it was replayed and not run."""
        for layer in self.layers:
            layer.length = layer._span - 1  # type: ignore[attr-defined]
