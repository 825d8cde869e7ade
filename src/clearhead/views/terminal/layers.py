"""The logit lens, candidates through the layers, and how alike layers are (CKA, CCA), as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from clearhead.views.terminal.elements import ACCENT, fit, footnote, header, heading, layer_rows, matrix, show_spaces


def draw_hidden_states(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding)
    across = max(1, (width - 10) // 13)
    for first in range(0, min(len(finding.positions), across * 4), across):
        positions = range(first, min(first + across, len(finding.positions)))
        yield Text(
            " " * 10 + "".join(fit(show_spaces(finding.chosen[p].text), 12) + " " for p in positions), style="bold"
        )
        for n, name in layer_rows(finding.layers):
            line = Text(f"{name:>9} ", style="dim")
            for p in positions:
                rank = int(finding.ranks[n, p])
                line.append(
                    fit(show_spaces(finding.top[n][p][0][0]), 11 - len(str(rank))) + f" {rank}", style=_rank_style(rank)
                )
                line.append(" ")
            yield line
        yield Text()
    yield Text(
        "The best guess after each layer, and the rank of the token above the column. Darkest: rank 1.", style="dim"
    )


def draw_comparison(finding: Any, width: int) -> Iterator[RenderableType]:
    names = [show_spaces(one.text) for one in finding.candidates]
    yield heading(finding, " or ".join(names))
    yield Text(" " * 10 + "".join(fit(name, 10) + " " for name in names), style="bold")
    for n, name in layer_rows(finding.layers):
        line = Text(f"{name:>9} ", style="dim")
        for rank in finding.ranks[n].tolist():
            line.append(f"{rank:>9,} ", style=_rank_style(rank)).append(" ")
        yield line
    yield footnote("The rank of each candidate after each layer. Darkest: rank 1.")


def _rank_style(rank: int) -> str:
    strength = max(0.1, 0.95 - float(np.log10(max(rank, 1))) * 0.27)
    ground = tuple(round(235 + (part - 235) * strength) for part in (51, 32, 143))
    return f"{'#ffffff' if strength > 0.45 else '#1c1b19'} on #{ground[0]:02x}{ground[1]:02x}{ground[2]:02x}"


def draw_similarity(finding: Any, width: int) -> Iterator[RenderableType]:
    same_model = finding.a == finding.b
    names = finding.a if same_model else f"{finding.a} and {finding.b}"
    yield heading(finding, finding.measure.upper() + (", unbiased" if finding.unbiased else ""), names)
    order = list(reversed(range(len(finding.layers_a))))
    rows = [str(finding.layers_a[n]) for n in order]

    def cell(r: int, k: int) -> tuple[str, str]:
        value = float(finding.values[order[r], k])
        shown = "–" if value != value else f"{value:.2f}"
        return f"{shown:>6}", f"bold {ACCENT}" if value > 0.8 else ACCENT if value > 0.5 else "dim"

    yield from matrix(rows, len(finding.layers_b), cell, width)
    yield header([str(layer) for layer in finding.layers_b], max(map(len, rows)), 6, width)
    whose = "layers" if same_model else f"layers of {finding.a}"
    columns = "the same" if same_model else f"layers of {finding.b}"
    alike = "rotation" if finding.measure == "cka" else "linear map of what is kept"
    yield footnote(
        f"Rows: {whose}, bottom to top, 0 is the embedding. Columns: {columns}. 1 is the same up to a {alike}; tokens "
        f"in random order give {finding.shuffled_baseline:.2f}. {finding.count:,} {_COMPARED[finding.aligned]}."
    )


_COMPARED = {
    "tokens": "tokens were compared",
    "stretches": "stretches of text were compared: what one model reads as several tokens is averaged",
}
