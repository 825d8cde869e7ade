"""Attribution (saliency) and activation patching, as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from clearhead.views.terminal.elements import (
    ACCENT,
    COLOURS,
    MINUS,
    chip,
    footnote,
    header,
    heading,
    highlighted,
    matrix,
    show_spaces,
    signed_cell,
    unit_names,
)
from clearhead.views.terminal.pictures import is_grid, patch_grid


def draw_saliency(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, finding.method.replace("-x-", " × ").replace("-", " "))
    names = unit_names(finding.tokens)
    few = finding.outputs if len(finding.outputs) <= 8 else finding.outputs[:8]
    for output, scores in zip(few, finding.scores, strict=False):
        against = f" rather than {show_spaces(output.against)}" if output.against else ""
        probability = f"  {output.probability:.1%}" if output.probability is not None else ""
        yield Text.assemble((show_spaces(output.text), "bold"), (against + probability, "dim"))
        if is_grid(finding.tokens):
            yield from patch_grid(finding.tokens, [float(score) for score in scores])
        else:
            yield highlighted(names, [float(score) for score in scores])
    rest = len(finding.outputs) - len(few)
    yield footnote(
        "Each line sums to 100 %; stronger is more." + (f" {rest} more outputs are in the finding." if rest else "")
    )


def draw_patching(finding: Any, width: int) -> Iterator[RenderableType]:
    answer, other = (None if one is None else show_spaces(one) for one in finding.answers)
    yield heading(finding, f"{answer}, {finding.tap}, {finding.by} by {finding.by}")
    best = finding.corrupted_top[0].token
    for name, tokens, says in (
        ("clean", finding.clean, answer),
        ("corrupted", finding.corrupted, other or show_spaces(best)),
    ):
        line = Text(f"{name:>9}  ", style="dim")
        for own, one, two in zip(unit_names(tokens), finding.clean, finding.corrupted, strict=True):
            line.append(chip(own), style="bold reverse" if _differ(one, two) else "")
            line.append(" ")
        yield line.append(f"→ {says}", style=COLOURS["value"])
    yield Text()
    places = finding.heads if finding.by == "head" else finding.positions
    names = (
        [str(head) for head in places]
        if finding.by == "head"
        else [" ".join(unit_names([finding.corrupted[p] for p in group])) for group in places]
    )
    order = list(reversed(range(len(finding.layers))))
    rows = [f"layer {finding.layers[n]}" for n in order]
    label = max(map(len, rows))
    numbers = 7 * len(names) <= width - label - 2

    def cell(r: int, k: int) -> tuple[str, str]:
        value = float(finding.effect[order[r], k])
        if not numbers:
            return signed_cell(value, max(1.0, float(np.abs(finding.effect).max())))
        style = "dim" if abs(value) < 0.1 else MINUS if value < 0 else ACCENT
        return f"{round(value, 2) + 0.0:7.2f}", f"bold {style}" if abs(value) > 0.6 else style  # no -0.00

    yield from matrix(rows, len(names), cell, width)
    if numbers:
        yield header(names, label, 7, width)
    layer, column = finding.strongest
    yield footnote(
        f"Effect on the {finding.metric}: 1 brings the clean text's {finding.clean_score:.2f} back, 0 leaves the "
        f"corrupted text's {finding.corrupted_score:.2f}. Strongest: layer {finding.layers[layer]}, {finding.by} "
        f"{names[column]}, {finding.effect[layer, column]:.2f}."
    )


def _differ(a: Any, b: Any) -> bool:
    """Whether other tokens stand there; where they do in the text does not matter. Other units are places, and stay."""
    return getattr(a, "id", None) != getattr(b, "id", None)
