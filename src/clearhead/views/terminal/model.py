"""Position encodings, and where the parameters live, as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.views.terminal.elements import ACCENT, BAR_WIDTH, COLOURS, bar, footnote, heading, signed_matrix


def draw_positions(finding: Any, width: int) -> Iterator[RenderableType]:
    for scheme in finding.schemes:
        side = f"{scheme.side}, " if scheme.side else ""
        yield heading(finding, f"{side}{scheme.encoding.replace('-', ' ')}, {scheme.module}")
        values = scheme.values
        if scheme.columns == "dimension":  # neighbouring dimensions share a cell where there are too many
            fitting = max(1, min(values.shape[1], (width - 8) // 2))
            values = np.stack([part.mean(1) for part in np.array_split(values, fitting, axis=1)], axis=1)
        chosen = list(range(0, len(scheme.rows), max(1, len(scheme.rows) // 24)))
        yield from signed_matrix([str(scheme.rows[r]) for r in chosen], values[chosen], width)
        what = "distances (key - query)" if scheme.rows[0] < 0 else "positions"
        yield footnote(f"Rows: {what}. Columns: {scheme.columns}s. Teal above zero, red below.")


def draw_length_curve(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding)
    most = max(one.bleu for curve in finding.curves for one in curve.bins) or 1.0
    for curve in finding.curves:
        yield Text.assemble((curve.model, "bold"), (f"  BLEU {curve.bleu:.1f} over all", "dim"))
        for one in curve.bins:
            name = f"{one.first}–{one.last} words"
            line = Text(f"{name:>12}  {one.bleu:5.1f}  ")
            yield line + Text(bar(one.bleu / most), style=ACCENT) + Text(f"  {one.sentences} sentences", style="dim")
    yield footnote(f"{finding.data}; {finding.decoding}; {finding.metric}. Measured once, and kept beside the models.")


def draw_parameters(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, f"{finding.total:,}")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("part", overflow="fold")
    for name in ("parameters", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    sums: dict[tuple[str, str], int] = {}
    for piece in finding.pieces:
        sums[piece.stack, piece.part] = sums.get((piece.stack, piece.part), 0) + piece.parameters
    bar_width, most = max(4, min(BAR_WIDTH, width - 52)), max(sums.values())
    for (stack, part), count in sums.items():
        name = part if stack in ("", "head") else f"{stack}: {part}"
        own = Text(bar(count / most, bar_width), style=COLOURS["value"])
        table.add_row(name, f"{count:,}" if count else "shared", f"{count / finding.total:.1%}", own)
    table.add_row("total", f"{finding.total:,}", "100.0%", "", style="bold")
    yield table
    layers = " and ".join(f"{count}{' in the ' + stack if stack else ''}" for stack, count in finding.layers.items())
    shared = " What several parts share is counted once." if any(piece.shared for piece in finding.pieces) else ""
    yield footnote(f"Layers: {layers}.{shared}")
