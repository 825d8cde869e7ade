"""Activations of neurons, what excites one most, and factors, as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from clearhead.views.terminal.elements import (
    ACCENT,
    bar,
    footnote,
    heading,
    highlighted,
    ink_matrix,
    matrix,
    signed_cell,
    signed_matrix,
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


def draw_neuron_probe(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, finding.property)
    for one in finding.neurons:
        name, right = f"{one.layer}·{one.neuron}", "" if one.accuracy is None else f"  right {one.accuracy:.0%}"
        line = Text.assemble(f"{name:>9}  r {one.correlation:+.2f}", (f"  chosen at {one.found:+.2f}{right}  ", "dim"))
        yield line + Text(bar(abs(one.correlation), 16), style=ACCENT)
    names = unit_names(finding.tokens)
    best = finding.activations[0] * (1 if finding.neurons[0].correlation >= 0 else -1)
    yield Text("")
    yield highlighted(names, (best - best.min()).tolist(), numbers=False, ink=(138, 111, 240))
    yield footnote(
        f"Of {finding.total:,} neurons, chosen on other texts, tried on {finding.texts:,} texts "
        f"({finding.token_count:,} tokens). The words: one of these, by the first neuron. r is the correlation with "
        f"{finding.property}."
    )


def draw_echo(finding: Any, width: int) -> Iterator[RenderableType]:
    whose = f"{finding.side}, " if finding.side else ""
    yield heading(finding, f"{whose}layer {finding.layer} of {finding.layers}, {finding.direction}")
    yield from ink_matrix(unit_names(finding.tokens), np.nan_to_num(np.clip(finding.echo, 0, 1)), width)
    yield footnote(
        "A row for each word, a column for each step: how much of the word is left in the state, 1 where it is read."
    )


def draw_gates(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, f"layer {finding.layer} of {finding.layers}, {finding.direction}")
    for part in finding.parts:
        yield Text(part.label, style="bold")
        rows = ["mean", *map(str, part.units[:8])]
        values = np.vstack([part.mean, part.values[:8]])
        yield from (ink_matrix if part.is_gate else signed_matrix)(rows, values, width)
    yield footnote(f"Units over the words: {' '.join(unit_names(finding.tokens))}. Gates: empty is shut, full is open.")
