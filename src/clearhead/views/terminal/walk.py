"""The walk of one token through one layer, as a terminal shows it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from clearhead.explain.token_path import Vector, WalkStep
from clearhead.explain.walk import Walk
from clearhead.views.terminal.elements import COLOURS, bar, candidate_table, chip, show_spaces, step_words


def draw_walk(walk: Walk, width: int) -> Iterator[RenderableType]:
    head = Text()
    head.append(walk.model, style="bold")
    of_head = f", head {walk.head} of {walk.heads}" if walk.heads else ""
    head.append(f"  layer {walk.layer} of {walk.layers}{of_head}, counted from 0\n")
    if walk.source and walk.side == "decoder":
        head.append(" ".join(map(show_spaces, walk.source)) + " →\n", style="dim")
    for n, token in enumerate(walk.tokens):
        head.append(chip(show_spaces(token)), style="bold reverse" if n == walk.position else "dim")
        head.append(" ")
    if walk.written is not None:
        head.append(f"\n{step_words(walk.written)}", style="dim")
    yield Group(head, "")
    for n, step in enumerate(walk.steps, start=1):
        yield _draw_step(n, step, walk, width)


def _draw_step(number: int, step: WalkStep, walk: Walk, width: int) -> RenderableType:
    title = Text.assemble((f"{number}. {step.title}", "bold"), ("   " + step.tap, "dim"))
    parts: list[RenderableType] = [title, Text(step.explanation, style="italic")]
    if step.vectors:
        parts.append(_vectors(step.vectors, width))
    if step.columns:
        parts.append(_columns(step, walk))
    if step.guesses:
        parts.append(candidate_table(step.guesses))
    return Padding(Group(*parts), (0, 0, 1, 0))


def _vectors(vectors: list[Vector], width: int) -> Text:
    """A line each, with as many numbers as fit beside the longest label."""
    label = max(len(vector.label) for vector in vectors)
    fitting = max(1, (width - label - len("  … 12,288")) // 8)
    lines = []
    for vector in vectors:
        shown = "".join(f"{v:8.3f}" for v in vector.numbers[:fitting])
        style = COLOURS[vector.role]
        more = f"  … {vector.length:,}" if vector.length > min(fitting, len(vector.numbers)) else ""
        lines.append(Text.assemble((f"{vector.label:{label}}", style), (shown, style), (more, "dim")))
    return Text("\n").join(lines)


def _columns(step: WalkStep, walk: Walk) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("looks at", no_wrap=True)
    for column in step.columns:
        table.add_column(column.label, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    own = step.tokens is None
    for n, token in enumerate(step.tokens or walk.tokens):
        cells = []
        fraction = 0.0
        for column in step.columns:
            value = column.numbers[n]
            cells.append("hidden" if value is None else f"{value:.3f}")
            fraction = value or 0.0 if column.is_probability else fraction
        style = "bold" if own and n == walk.position else ""
        table.add_row(Text(show_spaces(token), style=style), *cells, Text(bar(fraction), style=COLOURS["query"]))
    return table
