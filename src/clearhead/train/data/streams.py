"""Running text for models that carry a state: rows that go on, from batch to batch, where they stopped.

All documents, one after the other, are cut into as many streams as a batch has rows. Step by step every stream is read
on by one window, so that what a row has read before is what stands before it in the text. How long a window is changes
from step to step (Merity et al. 2017): about `length`, one in twenty half as long, so that texts are not cut at the
same places in every epoch. Windows and the order of the documents are drawn from (seed, epoch).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np

from clearhead.errors import InputError
from clearhead.train.data.order import Order
from clearhead.train.data.table import Table
from clearhead.train.data.types import Example

SPREAD = 5.0  # tokens: the standard deviation of a window's length
HALVED = 0.05  # of the windows are half as long
SHORTEST = 5
WINDOWS = 10  # of a stream of held-out text, at least, where it is cut into several


class EpochLayout(NamedTuple):
    """
    windows     where the windows of an epoch begin in every stream, and where the last ends
    documents   in their order, and where each `ends`
    """

    windows: np.ndarray
    documents: np.ndarray
    ends: np.ndarray


class Streams:
    """`streams[n]` is a window of a stream; n = step · rows + stream, counted over all epochs.

    rows      how many streams there are
    length    of a window: on average where it is jittered, always where it is not
    jitter    windows differ in length, and documents change places every epoch: for training
    """

    def __init__(
        self,
        table: Table,
        rows: int,
        length: int,
        *,
        seed: int = 0,
        jitter: bool = False,
        column: str = "input_ids",
        name: str = "The data",
    ) -> None:
        self.table, self.rows, self.length, self.seed, self.jitter, self.column = (
            table, rows, length, seed, jitter, column,
        )  # fmt: skip
        self.name = name
        self._lengths, self._ends = table.lengths(column), table.ends(column)
        tokens = int(self._ends[-1]) if len(self._ends) else 0
        self.stream_length = (tokens - 1) // rows  # the last token is only guessed
        if self.stream_length < 1:
            raise InputError(
                f"{name} has {tokens:,} tokens, too few for {rows} rows to read side by side. Give more text, or lower "
                "batch.size."
            )
        self._first_steps = [0]  # of each epoch that was looked at, and of the one after it
        self._epochs: dict[int, EpochLayout] = {}  # the last ones that were looked at
        self._lock = threading.RLock()  # a thread may make batches while another asks how long a window is

    def __reduce__(self) -> Any:
        return _again, (self.table, self.rows, self.length, self.seed, self.jitter, self.column, self.name)

    def __len__(self) -> int:
        """Of the first epoch."""
        return self.rows * self.steps_per_epoch(0)

    def steps_per_epoch(self, epoch: int = 0) -> int:
        if not self.jitter:
            return -(-self.stream_length // self.length)
        with self._lock:
            while len(self._first_steps) <= epoch + 1:
                windows = len(self._draw_windows(len(self._first_steps) - 1)) - 1
                self._first_steps.append(self._first_steps[-1] + windows)
        return self._first_steps[epoch + 1] - self._first_steps[epoch]

    def place(self, step: int) -> tuple[int, int]:
        """The epoch of a step, and which of its windows it is."""
        if not self.jitter:
            return divmod(step, self.steps_per_epoch())
        while step >= self._first_steps[-1]:
            self.steps_per_epoch(len(self._first_steps) - 1)
        epoch = bisect_right(self._first_steps, step) - 1
        return epoch, step - self._first_steps[epoch]

    def window(self, step: int) -> tuple[int, int]:
        """Where the window of a step begins and ends, in every stream."""
        epoch, n = self.place(step)
        if not self.jitter:
            return n * self.length, min((n + 1) * self.length, self.stream_length)
        windows = self._layout(epoch).windows
        return int(windows[n]), int(windows[n + 1])

    def __getitem__(self, number: int) -> Example:
        step, stream = divmod(number, self.rows)
        begin, end = self.window(step)
        start = stream * self.stream_length
        tokens = self._tokens(self.place(step)[0], start + begin, start + end + 1)
        return {
            self.column: tokens[:-1],
            "next_ids": tokens[1:],
            "stream": stream,
            "streams": self.rows,
            "begins": begin == 0,
        }

    def _tokens(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Tokens of the whole text, as its documents are ordered in an epoch."""
        if not self.jitter:
            return self.table.view(self.column, start, stop).astype(np.int64)
        layout, parts = self._layout(epoch), []
        n = int(np.searchsorted(layout.ends, start, side="right"))
        while start < stop:
            end = int(layout.ends[n])
            here = min(stop, end)
            shift = int(self._ends[layout.documents[n]]) - end  # from this order to that of the table
            parts.append(self.table.view(self.column, start + shift, here + shift))
            start, n = here, n + 1
        return np.concatenate(parts).astype(np.int64)

    def _layout(self, epoch: int) -> EpochLayout:
        with self._lock:
            if epoch not in self._epochs:
                documents = self._generator(epoch, 1).permutation(len(self._lengths))
                ends = np.cumsum(np.asarray(self._lengths)[documents])
                kept = {n: layout for n, layout in self._epochs.items() if abs(n - epoch) == 1}
                self._epochs = kept | {epoch: EpochLayout(self._draw_windows(epoch), documents, ends)}
            return self._epochs[epoch]

    def _draw_windows(self, epoch: int) -> np.ndarray:
        draw = self._generator(epoch, 0)
        most = self.stream_length // SHORTEST + 1
        base = np.where(draw.random(most) < HALVED, self.length / 2, self.length)
        lengths = np.maximum(draw.normal(base, SPREAD).astype(np.int64), SHORTEST)
        ends = np.cumsum(lengths)
        return np.array([0, *ends[ends < self.stream_length], self.stream_length])

    def _generator(self, *key: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, *key])))


def rows_for(table: Table, rows: int, length: int, column: str = "input_ids") -> int:
    """How many streams to measure held-out text in: where there is little, fewer than asked for, so that each has some
    windows behind it."""
    ends = table.ends(column)
    tokens = int(ends[-1]) if len(ends) else 0
    return max(min(rows, tokens // (WINDOWS * length)), 1)


def _again(*given: Any) -> Streams:
    table, rows, length, seed, jitter, column, name = given
    return Streams(table, rows, length, seed=seed, jitter=jitter, column=column, name=name)


class StreamOrder(Order):
    """Every step, the next window of every stream. Long windows move the weights by more, short ones by less."""

    def __init__(self, streams: Streams) -> None:
        super().__init__(len(streams), batch_size=streams.rows, seed=streams.seed, shuffle=streams.jitter)
        self.streams = streams

    def steps_per_epoch(self, epoch: int = 0) -> int:
        return self.streams.steps_per_epoch(epoch)

    def at(self, step: int) -> tuple[int, np.ndarray]:
        rows = self.streams.rows
        return self.streams.place(step)[0], np.arange(step * rows, (step + 1) * rows)

    def rate(self, step: int) -> float:
        begin, end = self.streams.window(step)
        return (end - begin) / self.streams.length
