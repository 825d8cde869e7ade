"""Pictures in the terminal: patches as a grid of shades, and texts × pictures as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.units import PatchUnit, Unit
from clearhead.views.terminal.elements import COLOURS, footnote, heading

_SHADES = " ░▒▓█"


def is_grid(units: Sequence[Unit]) -> bool:
    """Whether these are the patches of a picture, beside places that only mark something."""
    return any(isinstance(unit, PatchUnit) for unit in units) and all(
        isinstance(unit, PatchUnit) or unit.special for unit in units
    )


def patch_grid(units: Sequence[Unit], scores: Sequence[float]) -> Iterator[RenderableType]:
    """A shade for each patch, the strongest the darkest; what the marks have is said below."""
    cells: dict[tuple[int, int], float] = {}
    marks = []
    for unit, score in zip(units, scores, strict=True):
        if isinstance(unit, PatchUnit):
            cells[unit.row, unit.column] = score
        else:
            marks.append(f"{unit.text} {score:.1%}")
    strongest = max((score for score in cells.values() if np.isfinite(score)), default=0.0) or 1.0
    rows, columns = (max(place[n] for place in cells) + 1 for n in (0, 1))
    for row in range(rows):
        line = Text("  ")
        for column in range(columns):
            share = max(0.0, cells.get((row, column), 0.0)) / strongest
            line.append(_SHADES[min(len(_SHADES) - 1, int(share * len(_SHADES)))] * 2, style=COLOURS["value"])
        yield line
    if marks:
        yield Text("  " + "  ".join(marks), style="dim")


def draw_text_pictures(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, f"{len(finding.texts)} texts × {len(finding.pictures)} pictures")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", overflow="ellipsis", max_width=max(16, width // 3))
    for name in finding.pictures:
        table.add_column(name, justify="right", overflow="ellipsis", no_wrap=True, max_width=14)
    best = finding.probabilities.argmax(0)
    for n, text in enumerate(finding.texts):
        cells = [
            Text(f"{logit:.1f}  {share:4.0%}", style=f"bold {COLOURS['value']}" if best[k] == n else "dim")
            for k, (logit, share) in enumerate(zip(finding.logits[n], finding.probabilities[n], strict=True))
        ]
        table.add_row(Text(text), *cells)
    yield table
    yield footnote("The score, and how probable each text is for a picture: a column sums to 100 %.")
