"""What a model carries from one step of writing to the next: keys and values, segment memories, states of an LSTM.

One contract for all of them. `model.start_state(capacity)` starts one; every call of the model with it appends what
was read; a search reorders its rows; guesses that were wrong are cropped away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

from torch import Tensor

from clearhead.errors import InputError


class State(ABC):
    """
    length     how many positions have been read
    can_crop   whether it can go back to an earlier length; a state that was overwritten cannot
    """

    can_crop: ClassVar[bool] = True

    @property
    @abstractmethod
    def length(self) -> int: ...

    @abstractmethod
    def repeat(self, count: int) -> None:
        """Every row `count` times, side by side."""

    @abstractmethod
    def reorder(self, rows: Tensor, since: int = 0) -> None:
        """Keep these rows of the batch, in this order; a row may be taken more than once.

        since   beam search: rows that change places are copies of one text, the same before this position, so only
                what was read since then need move.
        """

    @abstractmethod
    def copy(self) -> Self:
        """One that shares nothing with this one, so that a text can be continued in two ways."""

    @abstractmethod
    def crop(self, length: int) -> None:
        """Forget positions from `length` on (negative: the last -length positions)."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """What it takes in memory."""

    def get_seq_length(self) -> int:
        """The name `transformers` users know."""
        return self.length

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.length} positions, {self.nbytes / 2**20:.1f} MiB)"


class TensorState(State):
    """A state that every step replaces: tensors whose second axis is the batch, None before the first step.

    An LSTM's h and c, (layers, batch, width) each; what Transformer-XL remembers, (remembered, batch, width) a layer.
    """

    can_crop = False  # what was read is in it for good

    def __init__(self, tensors: Sequence[Tensor] | None = None, length: int = 0) -> None:
        self.tensors, self._length = tensors, length

    @property
    def length(self) -> int:
        return self._length

    def replace(self, tensors: Sequence[Tensor], read: int) -> None:
        """The state after `read` more positions."""
        self.tensors, self._length = tensors, self._length + read

    def repeat(self, count: int) -> None:
        if self.tensors is not None:
            self.tensors = tuple(tensor.repeat_interleave(count, 1) for tensor in self.tensors)

    def reorder(self, rows: Tensor, since: int = 0) -> None:
        if self.tensors is not None:
            self.tensors = tuple(tensor[:, rows] for tensor in self.tensors)

    def copy(self) -> Self:
        return type(self)(self.tensors, self._length)  # tensors are replaced, never written to

    def crop(self, length: int) -> None:
        if length != self._length:
            raise InputError("A state that every step replaces cannot be cut back: what was read has moved on.")

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors or ())
