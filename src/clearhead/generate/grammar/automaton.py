"""One small automaton over bytes, which every grammar becomes, worked out only where it is walked.

A part says which texts it takes. What is still to be read is a stack of parts; a state is a set of such stacks, because
a text may be read in more than one way. States are numbered as they are met, and the step from each by every byte is
kept as a row of one table, so that a whole vocabulary can be walked through it with array operations.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise

import numpy as np

DEAD = -1  # the state that takes nothing
_NEVER = 1 << 30  # the length of what cannot be written

Ranges = Sequence[tuple[int, int]]  # characters or bytes, from and to (both taken)


class Expression:
    """What a text may be. `shortest` is the number of bytes of the shortest one; parts are shared, never changed."""

    shortest: int = _NEVER

    @property
    def possible(self) -> bool:
        return self.shortest < _NEVER


class Byte(Expression):
    """One byte of a range."""

    shortest = 1

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high


class Concatenation(Expression):
    """One part after the other."""

    def __init__(self, parts: Sequence[Expression]) -> None:
        self.parts = parts
        self.shortest: int = min(sum(part.shortest for part in parts), _NEVER)


class Alternation(Expression):
    """One of these. Without any, nothing can be written."""

    def __init__(self, parts: Sequence[Expression]) -> None:
        self.parts = [part for part in parts if part.possible]
        self.shortest = min((part.shortest for part in self.parts), default=_NEVER)


class Repetition(Expression):
    """The same part, at least and at most so many times; `maximum` None has no end."""

    def __init__(self, part: Expression, minimum: int = 0, maximum: int | None = None) -> None:
        if not part.possible and minimum == 0:
            maximum = 0
        self.part, self.minimum, self.maximum = part, minimum, maximum
        self.shortest = min(part.shortest * minimum, _NEVER) if minimum else 0
        self._rest: Repetition | None = None

    @property
    def rest(self) -> Repetition:
        """What is left of it after one."""
        if self.minimum == 0 and self.maximum is None:
            return self
        if self._rest is None:
            self._rest = Repetition(
                self.part, max(self.minimum - 1, 0), None if self.maximum is None else self.maximum - 1
            )
        return self._rest


EMPTY = Concatenation(())
NOTHING = Alternation(())


@cache
def byte(low: int, high: int | None = None) -> Byte:
    return Byte(low, low if high is None else high)


def literal(text: str | bytes) -> Expression:
    """Exactly this."""
    return Concatenation([byte(value) for value in (text.encode("utf-8") if isinstance(text, str) else text)])


def optional(part: Expression) -> Expression:
    return Alternation([EMPTY, part])


# ---- characters


def characters(ranges: Ranges) -> Expression:
    """One character of these ranges, as its UTF-8 bytes."""
    rows: list[Expression] = []
    for low, high in ranges:
        # within each of these all characters have the same number of bytes; halves of UTF-16 pairs have none
        for first, last in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)):
            if max(low, first) <= min(high, last):
                start, stop = chr(max(low, first)).encode(), chr(min(high, last)).encode()
                rows += [Concatenation([byte(*pair) for pair in row]) for row in _byte_rows(start, stop)]
    return rows[0] if len(rows) == 1 else Alternation(rows)


def _byte_rows(low: bytes, high: bytes) -> list[list[tuple[int, int]]]:
    """Rows of byte ranges that are all the characters between two of the same length."""
    if len(low) == 1:
        return [[(low[0], high[0])]]
    if low[0] == high[0]:
        return [[(low[0], low[0]), *row] for row in _byte_rows(low[1:], high[1:])]
    lowest, highest = b"\x80" * (len(low) - 1), b"\xbf" * (len(low) - 1)
    first, last, rows = low[0], high[0], []
    if low[1:] != lowest:
        rows += [[(first, first), *row] for row in _byte_rows(low[1:], highest)]
        first += 1
    if high[1:] != highest:
        rows += [[(last, last), *row] for row in _byte_rows(lowest, high[1:])]
        last -= 1
    return rows + ([[(first, last), *[(0x80, 0xBF)] * len(lowest)]] if first <= last else [])


def merged(ranges: Ranges) -> list[tuple[int, int]]:
    """The same characters, in order and without overlap."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined


def complement(ranges: Ranges) -> list[tuple[int, int]]:
    """Every other character."""
    edges = [(-1, -1), *merged(ranges), (0x110000, 0x110000)]
    return [(left[1] + 1, right[0] - 1) for left, right in pairwise(edges) if left[1] + 1 < right[0]]


# ---- walking


class _Stack:
    """What is still to be read: a part, and then the rest. Equal stacks are one object."""

    __slots__ = ("part", "rest", "shortest")

    def __init__(self, part: Expression | None, rest: _Stack | None) -> None:
        self.part, self.rest = part, rest
        self.shortest: int = 0 if part is None or rest is None else min(part.shortest + rest.shortest, _NEVER)


class Automaton:
    """The states of a grammar, found as they are met.

    table     (states, 256): the state after each byte; only rows that `ready` marks are worked out. The last is free
    accepts   (states,): whether the text may end here
    shortest  (states,): how many bytes are needed at least until it may
    """

    def __init__(self, part: Expression) -> None:
        self.table = np.full((64, 256), DEAD, dtype=np.int32)
        self.ready = np.arange(64) == 63
        self.accepts = np.zeros(64, dtype=bool)
        self.shortest = np.zeros(64, dtype=np.int32)
        self._end = _Stack(None, None)
        self._stacks: dict[tuple[Expression, _Stack], _Stack] = {}
        self._states: dict[frozenset[_Stack], int] = {}
        self._sets: list[frozenset[_Stack]] = []
        self._lock = threading.Lock()  # several generations may share a grammar
        self._root = self._push(part, self._end)
        self.start = self._number(frozenset([self._root]))
        self._starts_after_space: dict[bool, int] = {}

    def start_after_space(self, drops_space: bool) -> int:
        """A start at which one space more may come. drops_space: a first space is that one, never the text's own."""
        if drops_space not in self._starts_after_space:
            self.expand(self.start)
            with self._lock:
                stacks = frozenset([self._root, self._push(byte(0x20), self._root)])
                start = self._new(stacks) if drops_space else self._number(stacks)
                if drops_space:
                    self.table[start] = self.table[self.start]
                    self.table[start, 0x20] = self.start
                    self.ready[start] = True
                self._starts_after_space[drops_space] = start
        return self._starts_after_space[drops_space]

    def step(self, states: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The state after one byte more, for many at once; DEAD stays DEAD."""
        ready = self.ready[states]
        if not ready.all():
            for state in np.unique(states[~ready]).tolist():
                self.expand(state)
        return self.table.ravel()[states * 256 + values]  # DEAD, -1, is the last row: always free, so it takes nothing

    def row(self, state: int) -> np.ndarray:
        """The state after each of the 256 bytes."""
        if not self.ready[state]:
            self.expand(state)
        return self.table[state]

    def after(self, state: int, text: bytes) -> int:
        """The state after these bytes."""
        for value in text:
            if state == DEAD:
                break
            state = int(self.row(state)[value])
        return state

    def expand(self, state: int) -> None:
        """Fills the row of a state."""
        with self._lock:
            if self.ready[state]:
                return
            heads: dict[tuple[int, int], set[_Stack]] = {}
            for part, rest in self._heads(self._sets[state])[0]:
                heads.setdefault((part.low, part.high), set()).add(rest)
            row = np.full(256, DEAD, dtype=np.int32)
            cuts = sorted({low for low, _ in heads} | {high + 1 for _, high in heads})
            for low, stop in pairwise(cuts):
                following = [rest for (first, last), rest in heads.items() if first <= low <= last]
                if following:
                    row[low:stop] = self._number(frozenset().union(*following))
            self.table[state] = row
            self.ready[state] = True

    def _heads(self, stacks: Iterable[_Stack]) -> tuple[list[tuple[Byte, _Stack]], bool]:
        """The bytes that may come next, each with what is to be read after it; and whether the end may come."""
        heads: list[tuple[Byte, _Stack]] = []
        ends, seen, todo = False, set(stacks), list(stacks)
        while todo:
            stack = todo.pop()
            part, rest = stack.part, stack.rest
            new: list[_Stack] = []
            if part is None or rest is None:
                ends = True
            elif isinstance(part, Byte):
                heads.append((part, rest))
            elif isinstance(part, Concatenation):
                for item in reversed(part.parts):
                    rest = self._push(item, rest)
                new = [rest]
            elif isinstance(part, Alternation):
                new = [self._push(item, rest) for item in part.parts]
            elif isinstance(part, Repetition):
                new = [rest] if part.minimum == 0 else []
                if part.maximum != 0:
                    new.append(self._push(part.part, self._push(part.rest, rest)))
            todo += [stack for stack in new if stack not in seen]
            seen.update(new)
        return heads, ends

    def _push(self, part: Expression, rest: _Stack) -> _Stack:
        stack = self._stacks.get((part, rest))
        if stack is None:
            stack = self._stacks[part, rest] = _Stack(part, rest)
        return stack

    def _number(self, stacks: frozenset[_Stack]) -> int:
        number = self._states.get(stacks)
        if number is None:
            number = self._states[stacks] = self._new(stacks)
        return number

    def _new(self, stacks: frozenset[_Stack]) -> int:
        number = len(self._sets)
        if number == len(self.ready) - 1:
            self._grow()
        self._sets.append(stacks)
        self.accepts[number] = self._heads(stacks)[1]
        self.shortest[number] = min(stack.shortest for stack in stacks)
        return number

    def _grow(self) -> None:
        """Twice the capacity. Arrays are replaced, so whoever reads the old ones goes on reading what is right."""
        more = len(self.ready)
        self.table = np.concatenate([self.table, np.full((more, 256), DEAD, dtype=np.int32)])
        self.accepts = np.concatenate([self.accepts, np.zeros(more, dtype=bool)])
        self.shortest = np.concatenate([self.shortest, np.zeros(more, dtype=np.int32)])
        ready = np.concatenate([self.ready, np.arange(more) == more - 1])
        ready[more - 1] = False  # no longer the last
        self.ready = ready
