"""Attention weights, one head from close by, the steps of a layer, and ablation, as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.units import Unit, WrittenUnit
from clearhead.views.terminal.elements import (
    ACCENT,
    BAR_WIDTH,
    COLOURS,
    HEADS,
    MINUS,
    bar,
    candidate_table,
    fit_right,
    footnote,
    heading,
    matrix,
    row_labels,
    shade,
    show_spaces,
    signed_cell,
    step_words,
    unit_names,
)


def draw_attention(finding: Any, width: int) -> Iterator[RenderableType]:
    layer, head = telling_head(finding)
    rows = finding.weights[layer, head]
    names, colour = unit_names(finding.tokens), HEADS[finding.heads[head] % 10]
    about = f"layer {finding.layers[layer]}, head {finding.heads[head]}"
    yield heading(finding, "over the encoder's states" if finding.of_states else about)
    labels = row_labels(finding.tokens, width)
    yield from matrix(labels, len(finding.keys), lambda q, k: (shade(float(rows[q, k])), colour), width)
    best = [(float(rows[q, k]), q, k) for q, k in zip(range(len(names)), rows.argmax(1).tolist(), strict=True)]
    keys = unit_names(finding.keys)
    links = ", ".join(f"{names[q]} → {keys[k]} {fraction:.0%}" for fraction, q, k in sorted(best, reverse=True)[:4])
    columns = "the same tokens, left to right" if names == keys else " ".join(keys)
    heads = len(finding.layers) * len(finding.heads)
    writes = isinstance(finding.tokens[0], WrittenUnit)
    yield footnote(
        ("Each row writes the token beside it, having just read the dim one, and" if writes else "Each row")
        + f" looks at the columns: {columns}. Denser is more, a row sums to 1. Strongest: {links}. "
        + f"The {'best aligned' if finding.side == 'cross' else 'most telling'} of {heads} heads is shown."
        + (f" {step_words(finding.tokens[-1])}" if writes and finding.tokens[-1].guessed else "")
    )


def telling_head(finding: Any) -> tuple[int, int]:
    """The head (its places in the finding) with most to show: across two texts the one that aligns them best; else
    sharp, and not only on the first token or a neighbour."""
    if finding.side == "cross":
        best = finding.sorted_by("alignment")[0]
        return finding.layers.index(best.layer), finding.heads.index(best.head)
    queries, keys = finding.weights.shape[2:]
    counts = np.ones((queries, keys), dtype=bool)
    counts[:2], counts[:, 0] = False, False
    counts[:, [unit.special for unit in finding.keys]] = False
    counts &= ~(np.eye(queries, keys, dtype=bool) | np.eye(queries, keys, -1, dtype=bool))
    scores = (np.nan_to_num(finding.weights) ** 2 * counts).sum((2, 3))
    layer, head = np.unravel_index(scores.argmax(), scores.shape)
    return int(layer), int(head)


def draw_query_key(finding: Any, width: int) -> Iterator[RenderableType]:
    own = show_spaces(finding.tokens[finding.position].text)
    yield heading(finding, f"{own}, layer {finding.layer}, head {finding.head}")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("key", no_wrap=True, style=COLOURS["key"])
    table.add_column("products", no_wrap=True)
    for name in ("score", "weight"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    cells = max(4, min(len(finding.query), width - 60))
    most = float(np.abs(finding.products).max())
    for n, name in enumerate(unit_names(finding.keys)):
        parts = np.array_split(finding.products[n], cells)
        strip = Text.assemble(
            *((signed_cell(float(part.sum()), most)[0][0], signed_cell(float(part.sum()), most)[1]) for part in parts)
        )
        weight = "hidden" if finding.hidden[n] else f"{finding.weights[n]:.1%}"
        table.add_row(
            name,
            strip,
            f"{finding.scores[n]:.3f}",
            weight,
            Text(bar(float(finding.weights[n]), 16), style=COLOURS["query"]),
        )
    yield table
    note = "Query times key, number by number (teal above zero, red below); their scaled sum is the score."
    yield footnote(_with_step(note, finding.tokens[finding.position]))


def draw_attention_steps(finding: Any, width: int) -> Iterator[RenderableType]:
    queries, keys = finding.weights.shape[1:]
    far = np.ones((queries, keys), dtype=bool)
    far[:, [unit.special for unit in finding.keys]] = False
    if finding.side != "cross":
        far &= ~(np.eye(queries, keys, dtype=bool) | np.eye(queries, keys, -1, dtype=bool))
    head, query, _ = np.unravel_index((finding.weights * far).argmax(), finding.weights.shape)
    size = finding.query.shape[-1]
    own = show_spaces(finding.tokens[query].text)
    yield heading(finding, f"{own}, layer {finding.layer}, head {head}")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("key", no_wrap=True, style=COLOURS["key"])
    for name in ("query · key", "score", "weight"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    products = finding.key[head] @ finding.query[head, query]
    for name, product, score, weight in zip(
        unit_names(finding.keys), products, finding.scores[head, query], finding.weights[head, query], strict=True
    ):
        weight_bar = Text(bar(float(weight), max(4, min(BAR_WIDTH, width - 44))), style=COLOURS["query"])
        table.add_row(name, f"{product:.3f}", f"{score:.3f}", f"{weight:.1%}" if weight else "hidden", weight_bar)
    yield table
    heads, wide = len(finding.query), finding.output.shape[-1]
    note = (
        f"Query and key of {size} numbers make a score (× {finding.scale:.4g}), softmax a weight. The values, so "
        f"weighted, are the head's answer; {heads} answers side by side, times one more matrix, are the {wide} numbers "
        "that leave."
    )
    yield footnote(_with_step(note, finding.tokens[query]))


def _with_step(note: str, query_unit: Unit) -> str:
    """Across two texts, it is said first which step of writing is looked at."""
    return f"{step_words(query_unit)} {note}" if isinstance(query_unit, WrittenUnit) else note


def draw_alignment_steps(finding: Any, width: int) -> Iterator[RenderableType]:
    when = "before" if finding.before else "after"
    yield heading(finding, f"{finding.score}, scored with the state {when} the step")
    names = unit_names(finding.keys)
    for unit, scores, weights, words in zip(
        finding.tokens, finding.scores, finding.weights, finding.words, strict=True
    ):
        yield Text(step_words(unit), style="bold")
        best = weights.argsort()[::-1][:4]
        for k in best:
            line = Text.assemble(
                (f"{fit_right(names[k], 16)}  score {scores[k]:7.2f}  ", ""), (f"{weights[k]:6.1%} ", "bold")
            )
            yield line + Text(bar(float(weights[k])), style=COLOURS["query"])
        yield Text("  →  " + "   ".join(f"{show_spaces(word)} {chance:.0%}" for word, chance in words[:4]), style="dim")
    yield footnote("At each step the four encoder states with the largest weights, and the likeliest words.")


def draw_ablation(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, finding.metric)
    most = float(np.nanmax(np.abs(finding.effect)))
    yield Text(" " * 10 + "".join(f"{head:>7}" for head in finding.heads), style="dim")
    order = list(reversed(range(len(finding.layers))))  # layers run from bottom to top
    rows = [f"layer {finding.layers[n]}" for n in order]

    def cell(r: int, k: int) -> tuple[str, str]:
        value = float(finding.effect[order[r], k])
        fraction = abs(value) / (most or 1.0)
        style = "dim" if fraction < 0.15 else MINUS if value < 0 else ACCENT
        return f"{value:7.3f}", f"bold {style}" if fraction > 0.6 else style

    yield from matrix([f"{row:>8}" for row in rows], len(finding.heads), cell, width)
    for title, list_ in (
        (" with all heads", finding.before),
        (" without layer {}, head {}".format(*finding.strongest), finding.after),
    ):
        yield Text(f"\n{title.strip()}", style="dim")
        yield candidate_table([(one.token, one.probability) for one in list_[:5]])
