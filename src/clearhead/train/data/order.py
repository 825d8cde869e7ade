"""Which examples make up which step: known from the seed and the number of the step, so a run can go on anywhere.

An epoch is a permutation drawn from (seed, epoch). It is cut into batches of so many examples; or, for examples of
many lengths, into batches of like lengths that stay within so many tokens, padding included. The batches are those of
all devices together: how many there are changes nothing but who gets which share.
"""

from __future__ import annotations

import threading

import numpy as np

from clearhead.errors import InputError

WINDOW = 100  # batches' worth of shuffled examples that are sorted by length together


class Order:
    """
    examples       how many there are; or the length of each, in tokens
    batch_size     examples in a batch, at most
    batch_tokens   rows x longest row of a batch, at most; needs lengths. One of the two, or both
    shuffle        a new order every epoch; otherwise always that of the data
    bucket         put like lengths together: sort within windows of shuffled examples, then shuffle the batches.
                   By default where batch_tokens is given
    """

    def __init__(
        self,
        examples: int | np.ndarray,
        *,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        bucket: bool | None = None,
        window: int | None = None,
    ) -> None:
        self.lengths = None if isinstance(examples, int) else np.asarray(examples)
        self.count = len(self.lengths) if self.lengths is not None else int(examples)
        self.batch_size, self.batch_tokens = batch_size, batch_tokens
        self.seed, self.shuffle = seed, shuffle
        self.bucket = batch_tokens is not None if bucket is None else bucket
        if not self.count:
            raise InputError("There are no examples to make batches of.")
        if (batch_size or batch_tokens) is None or min(batch_size or 1, batch_tokens or 1) < 1:
            raise InputError("Batches need a size: batch.size in examples or batch.tokens, at least 1.")
        if self.lengths is None and (self.bucket or batch_tokens):
            raise InputError("Batches by length need the length of every example, not only how many there are.")
        if self.lengths is not None and batch_tokens:
            longest = int(self.lengths.argmax())
            if self.lengths[longest] > batch_tokens:
                raise InputError(
                    f"Example {longest} has {self.lengths[longest]} tokens, and a batch may hold {batch_tokens}. "
                    "Raise batch.tokens, or lower batch.length."
                )
        self._fixed_size = not self.bucket and batch_tokens is None  # batches of one size, cut from the permutation
        self._window = window or WINDOW * self._typical_rows()
        self._lock = threading.RLock()  # a thread may make batches while another asks how many there are
        self._steps: list[int] = []  # of the epochs looked at so far
        self._epoch = -1  # the one that is kept:
        self._numbers = np.zeros(0, np.uint32)  # its examples, batch after batch
        self._batch_starts = np.zeros(1, np.int64)  # where its batches begin, and the end of the last
        self._batch_order: np.ndarray | None = None  # which batch comes when; None: as they lie

    def _typical_rows(self) -> int:
        if self.lengths is None or not self.batch_tokens:
            return self.batch_size or 1
        rows = int(self.batch_tokens / max(float(self.lengths.mean()), 1.0)) or 1
        return min(rows, self.batch_size or rows)

    def steps_per_epoch(self, epoch: int = 0) -> int:
        """How many batches an epoch has. By length, epochs differ a little, and each has to be laid out to know."""
        if self._fixed_size:
            assert self.batch_size is not None
            return -(-self.count // self.batch_size)
        if not self.shuffle:
            epoch = 0
        with self._lock:
            while len(self._steps) <= epoch:
                self._build_epoch(len(self._steps))
                self._steps.append(len(self._batch_starts) - 1)
        return self._steps[epoch]

    def steps_in(self, epochs: float) -> int:
        """How many steps so many epochs make; of a broken one its share."""
        full_epochs = int(epochs)
        rest = epochs - full_epochs
        steps = sum(self.steps_per_epoch(epoch) for epoch in range(full_epochs))
        return steps + (max(round(rest * self.steps_per_epoch(full_epochs)), 1) if rest else 0)

    def at(self, step: int) -> tuple[int, np.ndarray]:
        """The epoch of a step, counted from 0, and the numbers of its examples."""
        epoch = 0
        if self._fixed_size:
            epoch, step = divmod(step, self.steps_per_epoch())
        else:
            while step >= (steps := self.steps_per_epoch(epoch)):
                step, epoch = step - steps, epoch + 1
        with self._lock:
            if self._epoch != (epoch if self.shuffle else 0):
                self._build_epoch(epoch if self.shuffle else 0)
            if self._fixed_size:
                assert self.batch_size is not None
                start, stop = step * self.batch_size, min((step + 1) * self.batch_size, self.count)
            else:
                batch = step if self._batch_order is None else int(self._batch_order[step])
                start, stop = self._batch_starts[batch], self._batch_starts[batch + 1]
            return epoch, self._numbers[start:stop].astype(np.int64)

    def rate(self, step: int) -> float:
        """What multiplies the learning rate of a step, for what it reads."""
        return 1.0

    def _build_epoch(self, epoch: int) -> None:
        """Draw the permutation of an epoch and cut it into batches."""
        if self._epoch == epoch:
            return
        draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, epoch])))
        kind = np.uint32 if self.count <= 2**32 else np.int64
        numbers: np.ndarray = np.arange(self.count, dtype=kind)
        if self.shuffle:
            draw.shuffle(numbers)
        begins, batch_order = [0], None
        if not self._fixed_size:
            assert self.lengths is not None
            for start in range(0, self.count, self._window):
                inside = numbers[start : start + self._window]
                lengths = np.maximum(self.lengths[inside].astype(np.int64), 1)
                if self.bucket:
                    longest_first = np.argsort(-lengths, kind="stable")  # ties stay shuffled
                    inside[:], lengths = inside[longest_first], lengths[longest_first]
                begins.extend(start + end for end in self._cuts(lengths))
            if self.shuffle and self.bucket:
                batch_order = draw.permutation(len(begins) - 1)
        self._epoch = -1  # while it changes, it is none
        self._numbers, self._batch_starts, self._batch_order = numbers, np.array(begins), batch_order
        self._epoch = epoch

    def _cuts(self, lengths: np.ndarray) -> list[int]:
        """Where batches end when each takes as many of these rows as fit, in order."""
        ends, start = list[int](), 0
        while start < len(lengths):
            rows = self.batch_size or len(lengths)
            if self.batch_tokens:
                rows = min(rows, self.batch_tokens // int(lengths[start]))
                longest = np.maximum.accumulate(lengths[start : start + rows])
                rows = int((longest * np.arange(1, len(longest) + 1) <= self.batch_tokens).sum())
            start = min(start + rows, len(lengths))
            ends.append(start)
        return ends


def rank_shard(numbers: np.ndarray, rank: int, world: int) -> np.ndarray:
    """What one of several devices gets of a batch: a stretch of it, as long as the others' or one longer."""
    return np.array_split(numbers, world)[rank]


def micro_batches(numbers: np.ndarray, parts: int) -> list[np.ndarray]:
    """A device's share in so many parts, one after the other; where there are fewer rows, some are empty."""
    return np.array_split(numbers, parts)
