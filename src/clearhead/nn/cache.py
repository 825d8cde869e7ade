"""The key/value cache: room is set aside once, new positions are written in place, nothing is concatenated.

A cache holds values, not gradients: keys and values written in an earlier call are constants to a later one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.errors import InputError

BLOCK = 64  # positions are set aside in multiples of this


class LayerCache:
    """One layer's keys and values: its own positions (growing), and its view of an encoder (fixed)."""

    def __init__(self, capacity: int) -> None:
        self.length = 0
        self.memory: tuple[Tensor, Tensor] | None = None  # cross-attention keys and values, computed once
        self._capacity = capacity
        self._keys: Tensor | None = None  # (batch, kv_heads, room, head_dim)
        self._values: Tensor | None = None

    @property
    def room(self) -> int:
        return 0 if self._keys is None else self._keys.shape[2]

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new positions; returns views of all positions so far."""
        start, stop = self.length, self.length + key.shape[2]
        if self._keys is not None and self._keys.shape[0] != key.shape[0]:
            raise InputError(f"The cache holds {self._keys.shape[0]} texts; the input has {key.shape[0]}.")
        if stop > self.room:
            self._keys = self._grown(self._keys, key, stop)
            self._values = self._grown(self._values, value, stop)
        assert self._keys is not None and self._values is not None
        self._keys[:, :, start:stop] = key.detach()
        self._values[:, :, start:stop] = value.detach()
        self.length = stop
        if start == 0:
            return key, value  # the very tensors, so that a first call keeps its gradients
        if key.requires_grad or value.requires_grad:  # this call's own positions keep their gradients
            return torch.cat((self._keys[:, :, :start], key), 2), torch.cat((self._values[:, :, :start], value), 2)
        return self._keys[:, :, :stop], self._values[:, :, :stop]

    def _grown(self, old: Tensor | None, like: Tensor, needed: int) -> Tensor:
        room = -(-max(needed, self._capacity if old is None else 2 * self.room) // BLOCK) * BLOCK
        batch, heads, _, head_dim = like.shape
        new = like.new_empty(batch, heads, room, head_dim)
        if old is not None:
            new[:, :, : self.length] = old[:, :, : self.length]
        return new

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order (beam search reorders its hypotheses so)."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[rows], self._values[rows]
        if self.memory is not None:
            self.memory = (self.memory[0][rows], self.memory[1][rows])

    def crop(self, length: int) -> None:
        """Forget positions from `length` on (negative: the last -length positions)."""
        self.length = min(self.length, length) if length >= 0 else max(self.length + length, 0)


class Cache:
    """One LayerCache per layer. `capacity` is how many positions to set aside at first."""

    def __init__(self, layers: int, capacity: int = BLOCK) -> None:
        self.layers = [LayerCache(capacity) for _ in range(layers)]

    @property
    def length(self) -> int:
        return self.layers[0].length if self.layers else 0

    def get_seq_length(self) -> int:
        """The name `transformers` users know."""
        return self.length

    def select(self, rows: Tensor) -> None:
        for layer in self.layers:
            layer.select(rows)

    def crop(self, length: int) -> None:
        for layer in self.layers:
            layer.crop(length)

    def bytes(self) -> int:
        held: list[Tensor | None] = []
        for layer in self.layers:
            held += [layer._keys, layer._values, *(layer.memory or ())]
        return sum(t.numel() * t.element_size() for t in held if t is not None)

    def __repr__(self) -> str:
        return f"Cache({len(self.layers)} layers, {self.length} positions, {self.bytes() / 2**20:.1f} MiB)"
