"""Activations of neurons, what excites one most, and factors, as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from clearhead.views.terminal.elements import (
    ACCENT,
    footnote,
    heading,
    highlighted,
    matrix,
    signed_cell,
    unit_names,
)

_LEVELS = "▁▂▃▄▅▆▇█"


def draw_neurons(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding)
    most = float(np.nanmax(np.abs(finding.activations))) or 1.0
    clusters = getattr(finding, "clusters", None)
    order = sorted(range(len(finding.neurons)), key=lambda n: (clusters[n] if clusters else 0, n))
    rows = [(f"[{clusters[n]}] " if clusters else "") + "·".join(map(str, finding.neurons[n])) for n in order]
    yield from matrix(
        rows, len(finding.tokens), lambda r, k: signed_cell(float(finding.activations[order[r], k]), most), width
    )
    yield footnote(f"layer·neuron over the tokens: {' '.join(unit_names(finding.tokens))}")


def draw_top_tokens(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, f"neuron {finding.layer}·{finding.neuron}")
    for one in finding.contexts:
        line = Text(f"{one.activation:8.3f}  ", style="dim")
        strongest = [max(0.0, value) for value in one.activations]
        yield line + highlighted(unit_names(one.tokens), strongest, numbers=False, ink=(138, 111, 240))
    yield footnote(
        f"Strongest over {finding.texts:,} texts ({finding.token_count:,} tokens); "
        f"above zero at {finding.firing_rate:.1%} of them."
    )


def draw_factors(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding)
    names = unit_names(finding.tokens)
    for n, row in enumerate(finding.factors):
        high = float(row.max()) or 1.0
        sparks = "".join(_LEVELS[min(7, int(value / high * 7.99))] for value in row.tolist())
        best = " ".join(names[k] for k in row.argsort()[::-1][:4].tolist() if row[k] > 0)
        line = Text.assemble((f"factor {n:<3}", "dim"), (sparks, ACCENT), "  ", best)
        line.truncate(width, overflow="ellipsis")
        yield line
    yield footnote(f"A bar for each of the {len(names)} tokens, and where the factor is strongest.")
