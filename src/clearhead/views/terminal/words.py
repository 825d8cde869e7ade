"""Word vectors as a terminal shows them: neighbours with bars, words on a plane, and one word in its contexts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.views.terminal.elements import (
    BAR_WIDTH,
    COLOURS,
    MINUS,
    PLUS,
    bar,
    fit,
    fit_right,
    footnote,
    header,
    heading,
    matrix,
    one_line,
)

_ROWS = 18  # of the plane
_SQUARE = 14  # so many words are compared in a square


def draw_neighbours(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, one_line(finding.asked))
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    best = max((one.cosine for one in finding.nearest), default=1.0)
    for one in finding.nearest:
        ink = bar(max(one.cosine, 0.0) / best if best > 0 else 0.0, max(4, min(BAR_WIDTH, width - 40)))
        table.add_row(Text(one_line(one.word)), f"{one.cosine:6.3f}", Text(ink, style=COLOURS["value"]))
    yield table
    summed = "" if len(finding.terms) == 1 else ", with the mean of the unit vectors, each with its sign"
    yield footnote(f"The cosine of the vectors{summed}; of {finding.count:,} words, {finding.width} numbers each.")


def draw_word_map(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding)
    yield from _plane(finding.words, finding.places, width)
    yield _kept(finding.width, finding.explained)
    if len(finding.words) <= _SQUARE:
        yield from _square(finding.words, finding.cosines, width)
    arrows = ", ".join(f"{finding.words[a]} → {finding.words[b]}" for a, b in finding.arrows)
    lines = [f"Joined: {arrows}." if arrows else ""]
    lines += [f"The odd one out: {finding.odd_one_out}." if finding.odd_one_out is not None else ""]
    lines += [
        f"Before anything is learned, a word is a one among {finding.count:,} numbers (one-hot): any two have the "
        "cosine 0."
    ]
    yield footnote(" ".join(filter(None, lines)))


def draw_word_in_context(finding: Any, width: int) -> Iterator[RenderableType]:
    which = ", ".join(map(str, finding.layers))
    yield heading(finding, f"{one_line(finding.word)}, layer {which} of 0 to {finding.of_layers}")
    names = [str(n) for n in range(1, len(finding.uses) + 1)]
    groups = {use.group for use in finding.uses}
    for n, use in enumerate(finding.uses):
        line = Text(fit_right(names[n], 3) + "  ")
        if len(groups) > 1:
            line.append(f"{_letter(use.group)}  ", style="dim")
        line.append(one_line(use.sentence[: use.start]))
        line.append(one_line(use.sentence[use.start : use.end]), style=f"bold {COLOURS['value']}")
        yield line.append(one_line(use.sentence[use.end :]))
    yield Text("")
    marks = [
        f"{name}{_letter(use.group) if len(groups) > 1 else ''}" for name, use in zip(names, finding.uses, strict=True)
    ]
    yield from _plane(marks, finding.places, width)
    yield _kept(finding.vectors.shape[1], finding.explained)
    if len(names) <= _SQUARE:
        yield from _square(marks, finding.cosines, width)
    yield footnote(" ".join(filter(None, (_parted(finding), _one_row(finding), _left_only(finding)))))


def _letter(group: int) -> str:
    return chr(ord("a") + group % 26)


def _parted(finding: Any) -> str:
    if finding.across is None:
        return ""
    within = "" if finding.within is None else f"{finding.within:.2f} within a group, "
    home = f"{finding.at_home} of {len(finding.uses)} uses lie nearest to one of their own group."
    return f"Mean cosine {within}{finding.across:.2f} across groups; {home}"


def _one_row(finding: Any) -> str:
    row = finding.table_row
    if row is None:
        return ""
    near = ", ".join(one_line(one.word) for one in row.nearest[:5])
    return (
        f"In {row.model}'s table all uses are one row, number {row.terms[0].row + 1:,} of {row.count:,}, near {near}."
    )


def _left_only(finding: Any) -> str:
    return "" if finding.ahead else "This model reads from left to right: what follows the word changes nothing."


def _kept(width: int, explained: list[float]) -> Text:
    kept = f"{sum(explained):.0%}"
    return Text(f"Two directions of {width}: they keep {kept} of the differences (PCA).\n", style="dim")


def _plane(words: list[str], places: np.ndarray, width: int) -> Iterator[RenderableType]:
    """Each word behind its dot. A cell is twice as high as wide; where two would meet, one moves a line."""
    columns = min(width - 2, 96)
    low, high = places.min(0), places.max(0)
    wide = max(cell_len(one_line(word)) for word in words) + 2
    # cells per unit, the same in both directions as a person sees it
    unit = min((columns - wide) / max(high[0] - low[0], 1e-9), 2 * (_ROWS - 1) / max(high[1] - low[1], 1e-9))
    lines: list[list[tuple[int, str]]] = [[] for _ in range(_ROWS + 1)]
    for word, (x, y) in sorted(zip(words, places.tolist(), strict=True), key=lambda one: -one[1][1]):
        column = round((x - low[0]) * unit)
        row = round((high[1] - y) * unit / 2)
        label = f"• {one_line(word)}"
        free = (r for step in range(_ROWS) for r in (row + step, row - step) if 0 <= r < len(lines))
        row = next((r for r in free if not _meets(lines[r], column, cell_len(label))), min(row, _ROWS))
        lines[row].append((column, label))
    while lines and not lines[-1]:
        lines.pop()
    for marks in lines:
        line, at = Text(), 0
        for column, label in sorted(marks):
            line.append(" " * max(0, column - at))
            line.append("•", style=COLOURS["value"]).append(label[1:])
            at = max(at, column) + cell_len(label)
        yield line


def _meets(line: list[tuple[int, str]], column: int, wide: int) -> bool:
    return any(column < other + cell_len(label) + 1 and other < column + wide + 1 for other, label in line)


def _square(words: list[str], cosines: np.ndarray, width: int) -> Iterator[RenderableType]:
    names = [one_line(word) for word in words]
    label = min(max(map(cell_len, names)), max(8, width // 4))
    cell = max(6, min(10, max(map(cell_len, names)) + 1))

    def shown(row: int, column: int) -> tuple[str, str]:
        value = float(cosines[row, column])
        style = "dim" if row == column or abs(value) < 0.2 else MINUS if value < 0 else PLUS
        return fit_right(f"{value:.2f}", cell), f"bold {style}" if abs(value) > 0.6 and row != column else style

    yield header([fit(name, cell - 1).rstrip() for name in names], label, cell, width)
    yield from matrix(names, len(names), shown, width)
