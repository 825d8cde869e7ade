"""A model with a library, as a terminal shows it: the search, the passages, and what they are worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.views.terminal.elements import (
    ACCENT,
    MINUS,
    PLUS,
    bar,
    chip,
    fit,
    footnote,
    heading,
    highlighted,
    one_line,
    show_spaces,
    unit_names,
)

INK = (138, 111, 240)
LISTED = 10  # passages of a search
LINES = 24  # tokens of a table


def draw_store_map(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, f"{finding.store}, {finding.count:,} passages")
    near = [one for one in finding.passages if one.rank is not None][:LISTED]
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    best = max((one.score for one in near), default=1.0)
    worst = min((one.score for one in finding.passages), default=0.0)
    for one in near:
        share = (one.score - worst) / ((best - worst) or 1.0)
        table.add_row(str(one.rank + 1), f"{one.score:6.3f}", Text(bar(share, 12), style=ACCENT),
                      Text(fit(f"{one.document} · {one_line(one.text)}", max(20, width - 30))))  # fmt: skip
    yield table
    yield footnote(
        f"By {finding.metric} of vectors of {finding.width} numbers from {finding.encoder}; higher is more alike. The "
        'map itself is in .save("….html").'
    )


def draw_passages(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, finding.store)
    yield _text(finding)
    for one in finding.passages:
        score = "" if one.score is None else f"  {one.score:.3f}"
        place = "" if one.position is None else f", passage {one.position + 1}"
        yield Text.assemble(
            f"\nchunk {one.chunk + 1}, neighbour {one.rank + 1}  ", (one.document, "bold"), (f"{place}{score}", "dim")
        )
        yield highlighted(unit_names(one.tokens), _looked_at(finding, one), numbers=False, ink=INK)
        if one.agrees:
            runs = ["".join(unit.text for unit in one.tokens[a : a + n]).strip() for a, _, n in one.agrees]
            yield Text.assemble(("agrees with what was written: ", "dim"), ", ".join(map(show_spaces, runs)))
    yield Text()
    yield from _shares(finding)
    yield footnote(
        "Behind each token of a passage: how much the written tokens looked at it, over all layers and heads. Each row "
        "of the table is a written token: the share of each neighbour of its chunk"
        + (", and of the null key, which stands for none." if finding.null is not None else ".")
    )


def _text(finding: Any) -> Text:
    """What was given, dim, and what was written after it. What only fills a chunk up is one mark."""
    line = Text()
    if finding.filler:
        line.append(chip(f"{show_spaces(finding.tokens[0].text)} × {finding.filler}"), style="dim")
    for n, name in enumerate(unit_names(finding.tokens)):
        if n >= finding.filler:
            line.append(f" {name}" if n else name, style="bold" if n >= finding.begin else "dim")
    return line


def _looked_at(finding: Any, one: Any) -> list[float]:
    """For each of its tokens, the mean weight over all layers, heads and the tokens that it acts on."""
    rows = [n for n, row in enumerate(finding.rows) if row // finding.chunk_size - 1 == one.chunk]
    mean = finding.weights[:, :, rows, one.rank, : len(one.tokens)].mean((0, 1, 2))
    return [float(value) for value in mean]


def _shares(finding: Any) -> Iterator[RenderableType]:
    mean = finding.weights.sum(-1).mean((0, 1))  # (rows, passages)
    null = None if finding.null is None else finding.null.mean((0, 1))
    first = next((n for n, row in enumerate(finding.rows) if row >= finding.begin), 0)
    for n in range(first, min(len(finding.rows), first + LINES)):
        name = fit(show_spaces(finding.tokens[finding.rows[n]].text), 14)
        line = Text(f"{name}  ")
        for k, share in enumerate(mean[n]):
            line.append(f"{k + 1}: {share:4.0%} ", style="")
            line.append(fit(bar(float(share), 10), 10) + "  ", style=ACCENT)
        if null is not None:
            line.append(f"null: {null[n]:4.0%}", style="dim")
        yield line
    if len(finding.rows) > first + LINES:
        yield Text(f'… {len(finding.rows) - first - LINES} more tokens: see .save("….html").', style="dim")


def draw_retrieval_ablation(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, finding.store)
    yield _text(finding)
    yield Text()
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name, right in (("", False), ("likelier by", True), ("all words move", True), ("other words", True)):
        table.add_column(name, justify="right" if right else "left")
    for change in finding.changes:
        table.add_row(
            Text(_done(finding, change), style="" if change.how == "one" else "bold"),
            Text(f"{change.gain:+.2f} bits", style=PLUS if change.gain > 0 else MINUS),
            f"{change.moved:.2f} bits", f"{change.others} of {_affected(finding, change)}",
        )  # fmt: skip
    yield table
    yield Text()
    yield from _tokens(finding)
    if finding.alone is not None and finding.alone != finding.answer:
        yield Text(one_line(f"With the store it writes {finding.answer!r}; without it, {finding.alone!r}."))
    yield footnote(
        "A token is likelier by so many bits with the passages than after the change: one bit is twice as likely. All "
        "words move by the KL divergence. Other words: the likeliest one is another. Near 0 everywhere, the store does "
        "not matter to this text."
    )


def _done(finding: Any, change: Any) -> str:
    if change.how != "one":
        return {"all": "without any passage", "random": "with random passages"}[change.how]
    one = finding.passages[change.passage]
    return f"without chunk {one.chunk + 1}, neighbour {one.rank + 1}: {one.document}"


def _affected(finding: Any, change: Any) -> int:
    return int(np.isfinite(finding.gain[finding.changes.index(change)]).sum())


def _tokens(finding: Any) -> Iterator[RenderableType]:
    """The written tokens: what each would have been without the store."""
    n_all = next(n for n, change in enumerate(finding.changes) if change.how == "all")
    gain: Sequence[float] = finding.gain[n_all]
    first = next((n for n, row in enumerate(finding.rows) if row >= finding.begin), 0)
    most = max((abs(value) for value in gain[first:]), default=1.0) or 1.0
    for n in range(first, min(len(finding.rows), first + LINES)):
        value = float(gain[n])
        own = finding.tokens[finding.rows[n]].text
        line = Text(f"{fit(show_spaces(own), 14)}  {finding.probability[n]:6.1%}  {value:+6.2f} ")
        line.append(fit(bar(abs(value) / most, 12), 12), style=PLUS if value > 0 else MINUS)
        instead = finding.instead[n_all][n]
        if instead != own:
            line.append(f"  without: {show_spaces(instead)}", style="dim")
        yield line
