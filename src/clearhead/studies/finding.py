"""What a study gives back: rows of numbers with their names, as a table for people and for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

Watch = Callable[[str, int, int], None]  # hears what is being done, how much of it is done, and how much there is


@dataclass(frozen=True)
class Finding:
    """A subclass has `rows`, dataclasses of one kind, and whatever else it wants to say."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_csv(self) -> str:
        """The rows, one a line, under the names of their fields."""
        rows: Sequence[Any] = getattr(self, "rows")  # noqa: B009 (a field of every subclass)
        out = io.StringIO()
        writer = csv.DictWriter(out, [field.name for field in fields(rows[0])], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
        return out.getvalue()


def silent(said: str, done: int, of: int) -> None:
    """For those who do not watch."""
