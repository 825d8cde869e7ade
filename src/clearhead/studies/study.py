"""What a study gives back: a finding whose rows are numbers with their names. views/terminal/studies.py draws it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from typing import Any

from clearhead.explain.finding import Finding

OnProgress = Callable[[str, int, int], None]  # hears what is being done, how much of it is done, and how much there is


def silent(doing: str, done: int, total: int) -> None:
    """Says nothing."""


class Study(Finding):
    """A subclass has `rows`, dataclasses of one kind."""

    @property
    def _rows(self) -> Sequence[Any]:
        rows: Sequence[Any] = getattr(self, "rows")  # noqa: B009 (a field of every subclass)
        return rows

    def table(self) -> Iterator[Iterable[Any]]:
        yield [field.name for field in fields(self._rows[0])]
        yield from map(astuple, self._rows)
