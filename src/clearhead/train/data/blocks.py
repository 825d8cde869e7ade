"""Documents joined one after the other and cut into blocks of one length, without a copy of the text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from clearhead.errors import InputError
from clearhead.train.data.table import Table
from clearhead.train.data.types import Example


class Blocks:
    """`blocks[n]` is {column: the tokens, "starts": where in the block a document begins, other than at 0}.

    keep_last   the tokens that do not fill a block make a last, shorter one (to measure); otherwise they are left out
    name        what to call the data in a message
    """

    def __init__(
        self, table: Table, length: int, column: str = "input_ids", *, keep_last: bool = False, name: str = "The data"
    ) -> None:
        self.table, self.length, self.column, self.keep_last = table, length, column, keep_last
        self._ends = table.ends(column)  # of the documents, over all tokens
        self.tokens = int(self._ends[-1]) if len(self._ends) else 0
        self._count = -(-self.tokens // length) if keep_last else self.tokens // length
        if not self._count:
            raise InputError(
                f"{name} has {self.tokens:,} tokens, which do not fill one block of {length}. "
                "Give more text, or lower batch.length."
            )

    def __reduce__(self) -> Any:
        return partial(Blocks, keep_last=self.keep_last), (self.table, self.length, self.column)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, n: int) -> Example:
        if not -self._count <= n < self._count:
            raise IndexError(f"There are {self._count} blocks, so none has the number {n}.")
        start = n % self._count * self.length
        stop = min(start + self.length, self.tokens)
        first, last = np.searchsorted(self._ends, [start + 1, stop])
        starts = np.unique(self._ends[first:last]) - start  # a document begins where the one before it ends
        return {self.column: self.table.view(self.column, start, stop).astype(np.int64), "starts": starts}

    def __iter__(self) -> Iterator[Example]:
        return (self[n] for n in range(len(self)))
