"""What a study gives back: a finding whose rows are numbers with their names, drawn as a table."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any, ClassVar

from clearhead.explain.finding import Finding

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

Watch = Callable[[str, int, int], None]  # hears what is being done, how much of it is done, and how much there is
WIDTH = 110  # of a table on a page, in characters


def silent(said: str, done: int, of: int) -> None:
    """For those who do not watch."""


class Study(Finding):
    """A subclass has `rows`, dataclasses of one kind, and says how they are `shown`."""

    kind: ClassVar[str] = "study"

    @property
    def _rows(self) -> Sequence[Any]:
        rows: Sequence[Any] = getattr(self, "rows")  # noqa: B009 (a field of every subclass)
        return rows

    def table(self) -> Iterator[Iterable[Any]]:
        yield [field.name for field in fields(self._rows[0])]
        yield from map(astuple, self._rows)

    def shown(self) -> Iterator[RenderableType]:
        """A table, and sentences that say what is in it."""
        raise NotImplementedError

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(*self.shown())

    def __repr__(self) -> str:
        return self._printed().export_text().rstrip("\n")

    def _page(self) -> str:
        return self._printed().export_html(inline_styles=True)

    def _repr_html_(self) -> str:
        return self._printed().export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _printed(self) -> Console:
        """A console that remembers the study, and shows it to nobody."""
        from rich.console import Console

        console = Console(file=io.StringIO(), width=WIDTH, record=True, highlight=False)
        console.print(self)
        return console


def empty_table(model: str, *columns: str) -> Table:
    """An empty table under the model's name: words on the left, numbers on the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", title=Text(model, "bold"),
                  title_justify="left", title_style="")  # fmt: skip
    for n, name in enumerate(columns):
        table.add_column(name, justify="right" if n and name else "left")
    return table


def percent(share: float | None, spread: float | None = None) -> str:
    if share is None:
        return "–"
    return f"{share:.1%}" if spread is None else f"{share:.1%} ± {100 * spread:.1f}"


def blocks(share: float) -> Text:
    """A share as a bar."""
    from rich.text import Text

    from clearhead.views.terminal import COLOURS, bar

    return Text(bar(share, 10), style=COLOURS["value"])
