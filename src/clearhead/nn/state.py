"""What a model carries from one step of writing to the next: keys and values, segment memories, states of an LSTM.

One contract for all of them. `model.start_state(capacity)` starts one; every call of the model with it appends what
was read; a search reorders its rows; guesses that were wrong are cropped away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from torch import Tensor


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
