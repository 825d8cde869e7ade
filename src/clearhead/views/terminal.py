"""Findings in the terminal, in the colours they have everywhere: queries violet, keys orange, values blue."""

from __future__ import annotations

import io
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from clearhead.explain.finding import Finding
from clearhead.explain.next_token import NextTokens
from clearhead.explain.walk import Step, Vector, Walk

COLOURS = {"query": "#9b7be0", "key": "#e08f3c", "value": "#4a8fd8", "plain": ""}
# Tokens take turns, so that neighbours can be told apart.
TOKEN_COLOURS = ("#7a4fd0", "#b5651d", "#2f74c0", "#3f9b5f", "#c0447f")
_BAR = 24
_LABELS = 10  # of a classifier, before the rest is summed up
ACCENT, WARM, PLUS, MINUS = "#8a6ff0", (232, 145, 47), "#2f9d95", "#cf5c48"
HEADS = ("#4f86d0", "#d9772b", "#2f9d6b", "#d0555c", "#8f70d6", "#9c7452", "#d065a5", "#7f8c97", "#a39a2a", "#2aa0b0")
_SHADES = " ·░▒▓█"  # from nothing to everything
_LEVELS = "▁▂▃▄▅▆▇█"


def show_spaces(token: str) -> str:
    """A token with its spaces and line breaks made visible."""
    shown = token.replace("▁", "␣").replace(" ", "␣").replace("\r", "␍").replace("\n", "⏎").replace("\t", "⇥")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def bar(share: float, width: int = _BAR) -> str:
    """A bar of eighths: `share` of `width` cells."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def chip(text: str) -> str:
    """Text that a terminal does not break inside: its spaces are hard ones."""
    return f" {text} ".replace(" ", "\u00a0")


def _walk(walk: Walk, width: int) -> Iterator[RenderableType]:
    head = Text()
    head.append(walk.model, style="bold")
    head.append(f"  layer {walk.layer} of {walk.layers}, head {walk.head} of {walk.heads}, counted from 0\n")
    if walk.source and walk.side == "decoder":
        head.append(" ".join(map(show_spaces, walk.source)) + " →\n", style="dim")
    for n, token in enumerate(walk.tokens):
        head.append(chip(show_spaces(token)), style="bold reverse" if n == walk.position else "dim")
        head.append(" ")
    yield Group(head, "")
    for n, step in enumerate(walk.steps, start=1):
        yield _draw_step(n, step, walk, width)


def _draw_step(number: int, step: Step, walk: Walk, width: int) -> RenderableType:
    title = Text.assemble((f"{number}. {step.title}", "bold"), ("   " + step.tap, "dim"))
    parts: list[RenderableType] = [title, Text(step.says, style="italic")]
    if step.vectors:
        parts.append(_vectors(step.vectors, width))
    if step.columns:
        parts.append(_columns(step, walk))
    if step.guesses:
        parts.append(draw_guesses(step.guesses))
    return Padding(Group(*parts), (0, 0, 1, 0))


def _vectors(vectors: list[Vector], width: int) -> Text:
    """A line each, with as many numbers as fit beside the longest label."""
    label = max(len(vector.label) for vector in vectors)
    room = max(1, (width - label - len("  … 12,288")) // 8)
    lines = []
    for vector in vectors:
        shown = "".join(f"{v:8.3f}" for v in vector.numbers[:room])
        style = COLOURS[vector.role]
        more = f"  … {vector.length:,}" if vector.length > min(room, len(vector.numbers)) else ""
        lines.append(Text.assemble((f"{vector.label:{label}}", style), (shown, style), (more, "dim")))
    return Text("\n").join(lines)


def _columns(step: Step, walk: Walk) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("looks at", no_wrap=True)
    for column in step.columns:
        table.add_column(column.label, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    own = step.tokens is None
    for n, token in enumerate(step.tokens or walk.tokens):
        cells = []
        share = 0.0
        for column in step.columns:
            value = column.numbers[n]
            cells.append("hidden" if value is None else f"{value:.3f}")
            share = value or 0.0 if column.is_share else share
        style = "bold" if own and n == walk.position else ""
        table.add_row(Text(show_spaces(token), style=style), *cells, Text(bar(share), style=COLOURS["query"]))
    return table


def draw_guesses(guesses: list[tuple[str, float]], tokens: bool = True) -> Table:
    """Candidates with their chances, as a number and as a bar against the best. Of tokens, spaces are shown."""
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    best = max((chance for _, chance in guesses), default=1.0) or 1.0
    for token, chance in guesses:
        name = Text(show_spaces(token) if tokens else token)
        table.add_row(name, f"{chance:7.2%}", Text(bar(chance / best), style=COLOURS["value"]))
    return table


def draw_next(
    found: NextTokens, console: Console, *, numbered: bool = False, added: int = 0, first: bool = True
) -> None:
    """The text so far, and under it what may come next.

    numbered   with numbers to choose by          added   how many characters at the end were chosen on the way
    first      with a title, and how to read it; the same figure further on goes without
    """
    for part in _next(found, console.width, numbered, added, first):
        console.print(part)


def _next(
    found: NextTokens, width: int, numbered: bool = False, added: int = 0, first: bool = True
) -> Iterator[RenderableType]:
    edge = len(found.text) - added
    head = Text.assemble((found.model, "bold"), "  what may come next\n") if first else Text()
    if found.source is not None:
        head.append(f"{_one_line(found.source)} → ", style="dim")
    head.append(_one_line(found.text[:edge]), style="dim")
    head.append(_one_line(found.text[edge:]), style="bold")
    head.append("▁", style=COLOURS["value"])
    yield head
    yield _ranked(found, width, numbered)
    says = (
        f"These {len(found.candidates)} hold {found.shown:.1%} of all chances. Entropy {found.entropy:.1f} bits: as "
        f"unsure as a fair choice among {found.as_many:,.0f} of the {found.vocabulary:,} tokens."
    )
    short = f"{found.shown:.1%} of all chances; entropy {found.entropy:.1f} bits"
    yield Text(f"Bars: against the likeliest. {says}\n" if first else f"{short}\n", style="dim")


def _ranked(found: NextTokens, width: int, numbered: bool) -> Table:
    """A row each: number, token, chance, bar. The bar takes what is left of the width."""
    words = [show_spaces(candidate.token) for candidate in found.candidates]
    chances = [f"{candidate.probability:.2%}" for candidate in found.candidates]
    number = len(str(len(words))) + 2 if numbered else 0
    longest = max(6, min(max(map(cell_len, words)), width // 2 - number))
    room = min(_BAR * 2, width - number - longest - 2 - max(map(len, chances)) - 2)
    table = Table.grid(padding=(0, 2, 0, 0))
    if numbered:
        table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", width=longest)
    table.add_column(justify="right", no_wrap=True)
    if room >= 4:
        table.add_column(no_wrap=True)
    best = found.candidates[0].probability or 1.0
    for n, (word, chance, candidate) in enumerate(zip(words, chances, found.candidates, strict=True), start=1):
        row: list[RenderableType] = [str(n)] if numbered else []
        row += [Text(word), chance]
        if room >= 4:
            row.append(Text(bar(candidate.probability / best, room), style=COLOURS["value"]))
        table.add_row(*row)
    return table


def _one_line(text: str) -> str:
    shown = text.replace("\n", "⏎").replace("\t", "⇥")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


# ---- any finding


def drawn(finding: Finding) -> RenderableType:
    """The finding as something `rich` prints, as wide as the terminal is."""
    return _Drawing(finding)


def text_of(finding: Finding) -> str:
    """The same as a string: with colours where the output is a terminal, else without."""
    colour = sys.stdout is not None and sys.stdout.isatty()
    width = min(shutil.get_terminal_size((100, 40)).columns, 160)
    console = Console(file=io.StringIO(), width=width, force_terminal=colour, highlight=False)
    console.print(drawn(finding))
    return console.file.getvalue().rstrip("\n")  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Drawing:
    finding: Finding

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        way = _WAYS.get(self.finding.kind)
        if way is None:
            yield Text(f"{self.finding.kind}: no picture for the terminal; see .to_dict() or .save(…).")
        else:
            yield from way(self.finding, options.max_width)


def _title(finding: Any, question: str) -> Text:
    return Text.assemble((str(getattr(finding, "model", "")), "bold"), f"  {question}\n")


def _note(text: str) -> Text:
    return Text(f"\n{text}", style="dim")


def _names(tokens: Sequence[Any]) -> list[str]:
    return [show_spaces(token if isinstance(token, str) else token.text) for token in tokens]


def _shade(share: float) -> str:
    """Two cells of ink."""
    level = 0 if not share > 0.004 else 1 + min(int(share * (len(_SHADES) - 1)), len(_SHADES) - 2)
    return _SHADES[level] * 2


def _matrix(
    rows: Sequence[str], columns: int, cell: Callable[[int, int], tuple[str, str]], width: int, most: int = 40
) -> Iterator[RenderableType]:
    """Shaded cells (text, style) behind the names of their rows; what does not fit is cut and said."""
    label = min(max((cell_len(row) for row in rows), default=1), max(8, width // 4))
    room = max(1, (width - label - 2) // len(cell(0, 0)[0]))
    for n, row in enumerate(rows[:most]):
        line = Text(row)
        line.truncate(label, overflow="ellipsis")
        line = Text(" " * (label - line.cell_len)) + line + Text("  ")
        for k in range(min(columns, room)):
            text, style = cell(n, k)
            line.append(text, style=style)
        yield line
    left = [
        f"{len(rows) - most} more rows" if len(rows) > most else "",
        f"{columns - room} more columns" if columns > room else "",
    ]
    if any(left):
        yield Text(f'… {" and ".join(filter(None, left))}: see .save("….html").', style="dim")


def _highlighted(
    names: Sequence[str], shares: Sequence[float], numbers: bool = True, ink: tuple[int, int, int] = WARM
) -> Text:
    """A text with a highlight behind each token, as strong as its share of the largest."""
    high = max((share for share in shares if share == share), default=0.0) or 1.0
    line = Text()
    for name, share in zip(names, shares, strict=True):
        strength = share / high if share == share else -1.0
        number = f" {share:.0%}" if numbers and share >= 0.005 else ""
        if strength < 0:
            style = "dim"
        elif strength < 0.12:
            style = ""
        else:
            style = "#1c1b19 on #" + "".join(f"{round(245 + (part - 245) * strength):02x}" for part in ink)
        line.append(chip(name + number), style=style)
        line.append(" ")
    return line


def _signed(value: float, most: float) -> tuple[str, str]:
    share = abs(value) / (most or 1.0) if value == value else 0.0
    return _shade(share), MINUS if value < 0 else PLUS


def _attention(found: Any, width: int) -> Iterator[RenderableType]:
    layer, head = telling_head(found)
    rows = found.weights[layer, head]
    names, colour = _names(found.tokens), HEADS[found.heads[head] % 10]
    yield _title(found, f"who looks at whom: layer {found.layers[layer]}, head {found.heads[head]}")
    yield from _matrix(names, len(found.keys), lambda q, k: (_shade(float(rows[q, k])), colour), width)
    best = [(float(rows[q, k]), q, k) for q, k in zip(range(len(names)), rows.argmax(1).tolist(), strict=True)]
    keys = _names(found.keys)
    links = ", ".join(f"{names[q]} → {keys[k]} {share:.0%}" for share, q, k in sorted(best, reverse=True)[:4])
    yield _note(
        f"Each row looks at the columns: the same tokens, left to right. Denser is more, a row sums to 1. "
        f"Strongest: {links}. The most telling of {len(found.layers) * len(found.heads)} heads is shown."
        if names == keys
        else f"Each row looks at the columns: {' '.join(keys)}. Denser is more, a row sums to 1. Strongest: {links}."
    )


def telling_head(found: Any) -> tuple[int, int]:
    """The head (its places in the finding) with most to show: sharp, and not only on the first token or a neighbour."""
    queries, keys = found.weights.shape[2:]
    counts = np.ones((queries, keys), dtype=bool)
    counts[:2], counts[:, 0] = False, False
    counts[:, [token.word is None for token in found.keys]] = False
    if found.side != "cross":
        counts &= ~(np.eye(queries, keys, dtype=bool) | np.eye(queries, keys, -1, dtype=bool))
    scores = (np.nan_to_num(found.weights) ** 2 * counts).sum((2, 3))
    layer, head = np.unravel_index(scores.argmax(), scores.shape)
    return int(layer), int(head)


def _query_key(found: Any, width: int) -> Iterator[RenderableType]:
    own = show_spaces(found.tokens[found.position].text)
    yield _title(found, f"how {own} chooses where to look: layer {found.layer}, head {found.head}")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("key", no_wrap=True, style=COLOURS["key"])
    table.add_column("products", no_wrap=True)
    for name in ("score", "weight"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    room = max(4, min(len(found.query), width - 60))
    most = float(np.abs(found.products).max())
    for n, name in enumerate(_names(found.keys)):
        parts = np.array_split(found.products[n], room)
        strip = Text.assemble(
            *((_signed(float(part.sum()), most)[0][0], _signed(float(part.sum()), most)[1]) for part in parts)
        )
        weight = "hidden" if found.hidden[n] else f"{found.weights[n]:.1%}"
        table.add_row(
            name,
            strip,
            f"{found.scores[n]:.3f}",
            weight,
            Text(bar(float(found.weights[n]), 16), style=COLOURS["query"]),
        )
    yield table
    yield _note("Query times key, number by number (teal above zero, red below); their scaled sum is the score.")


def _attention_steps(found: Any, width: int) -> Iterator[RenderableType]:
    queries, keys = found.weights.shape[1:]
    far = np.ones((queries, keys), dtype=bool)
    far[:, [token.word is None for token in found.keys]] = False
    if found.side != "cross":
        far &= ~(np.eye(queries, keys, dtype=bool) | np.eye(queries, keys, -1, dtype=bool))
    head, query, _ = np.unravel_index((found.weights * far).argmax(), found.weights.shape)
    size = found.query.shape[-1]
    own = show_spaces(found.tokens[query].text)
    yield _title(found, f"what {own} takes from each token: layer {found.layer}, head {head}")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("key", no_wrap=True, style=COLOURS["key"])
    for name in ("query · key", "score", "weight"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    products = found.key[head] @ found.query[head, query]
    for name, product, score, weight in zip(
        _names(found.keys), products, found.scores[head, query], found.weights[head, query], strict=True
    ):
        share = Text(bar(float(weight), max(4, min(_BAR, width - 44))), style=COLOURS["query"])
        table.add_row(name, f"{product:.3f}", f"{score:.3f}", f"{weight:.1%}" if weight else "hidden", share)
    yield table
    heads, wide = len(found.query), found.output.shape[-1]
    yield _note(
        f"Query and key of {size} numbers make a score (× {found.scale:.4g}), softmax a weight. The values, so "
        f"weighted, are the head's answer; {heads} answers side by side, times one more matrix, are the {wide} numbers "
        "that leave."
    )


def _ablation(found: Any, width: int) -> Iterator[RenderableType]:
    yield _title(found, f"which heads matter here: {found.what}")
    most = float(np.nanmax(np.abs(found.effect)))
    yield Text(" " * 10 + "".join(f"{head:>7}" for head in found.heads), style="dim")
    order = list(reversed(range(len(found.layers))))  # layers run from bottom to top
    rows = [f"layer {found.layers[n]}" for n in order]

    def cell(r: int, k: int) -> tuple[str, str]:
        value = float(found.effect[order[r], k])
        share = abs(value) / (most or 1.0)
        style = "dim" if share < 0.15 else MINUS if value < 0 else ACCENT
        return f"{value:7.3f}", f"bold {style}" if share > 0.6 else style

    yield from _matrix([f"{row:>8}" for row in rows], len(found.heads), cell, width)
    for title, list_ in (
        (" with all heads", found.before),
        (" without layer {}, head {}".format(*found.strongest), found.after),
    ):
        yield Text(f"\n{title.strip()}", style="dim")
        yield draw_guesses([(one.token, one.probability) for one in list_[:5]])


def _saliency(found: Any, width: int) -> Iterator[RenderableType]:
    yield _title(found, f"which words did it come from: {found.method.replace('-x-', ' × ').replace('-', ' ')}")
    names = _names(found.tokens)
    few = found.outputs if len(found.outputs) <= 8 else found.outputs[:8]
    for output, scores in zip(few, found.scores, strict=False):
        against = f" rather than {show_spaces(output.against)}" if output.against else ""
        chance = f"  {output.probability:.1%}" if output.probability is not None else ""
        yield Text.assemble((show_spaces(output.text), "bold"), (against + chance, "dim"))
        yield _highlighted(names, [float(score) for score in scores])
    rest = len(found.outputs) - len(few)
    yield _note(
        "Each line sums to 100 %; stronger is more." + (f" {rest} more outputs are in the finding." if rest else "")
    )


def _rank_style(rank: int) -> str:
    strength = max(0.1, 0.95 - float(np.log10(max(rank, 1))) * 0.27)
    ground = tuple(round(235 + (part - 235) * strength) for part in (51, 32, 143))
    return f"{'#ffffff' if strength > 0.45 else '#1c1b19'} on #{ground[0]:02x}{ground[1]:02x}{ground[2]:02x}"


def _layer_rows(layers: Sequence[int]) -> list[tuple[int, str]]:
    """From the last layer down to the embedding, as in the stacks of the papers."""
    return [(n, "embedding" if layers[n] == 0 else f"layer {layers[n]}") for n in reversed(range(len(layers)))]


def _hidden_states(found: Any, width: int) -> Iterator[RenderableType]:
    yield _title(found, "when did the model make up its mind")
    across = max(1, (width - 10) // 13)
    for first in range(0, min(len(found.positions), across * 4), across):
        places = range(first, min(first + across, len(found.positions)))
        yield Text(" " * 10 + "".join(_fit(show_spaces(found.chosen[p].text), 12) + " " for p in places), style="bold")
        for n, name in _layer_rows(found.layers):
            line = Text(f"{name:>9} ", style="dim")
            for p in places:
                rank = int(found.ranks[n, p])
                line.append(
                    _fit(show_spaces(found.top[n][p][0][0]), 11 - len(str(rank))) + f" {rank}", style=_rank_style(rank)
                )
                line.append(" ")
            yield line
        yield Text()
    yield Text(
        "The best guess after each layer, and the rank of the token above the column. Darkest: rank 1.", style="dim"
    )


def _fit(text: str, width: int) -> str:
    """Exactly so many cells."""
    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line.plain + " " * (width - line.cell_len)


def _comparison(found: Any, width: int) -> Iterator[RenderableType]:
    names = [show_spaces(one.text) for one in found.candidates]
    yield _title(found, f"which one does it lean to: {' or '.join(names)}")
    yield Text(" " * 10 + "".join(_fit(name, 10) + " " for name in names), style="bold")
    for n, name in _layer_rows(found.layers):
        line = Text(f"{name:>9} ", style="dim")
        for rank in found.ranks[n].tolist():
            line.append(f"{rank:>9,} ", style=_rank_style(rank)).append(" ")
        yield line
    yield _note("The rank of each candidate after each layer. Darkest: rank 1.")


def _neurons(found: Any, width: int) -> Iterator[RenderableType]:
    yield _title(found, "what do these neurons answer to")
    most = float(np.nanmax(np.abs(found.activations))) or 1.0
    clusters = getattr(found, "clusters", None)
    order = sorted(range(len(found.neurons)), key=lambda n: (clusters[n] if clusters else 0, n))
    rows = [(f"[{clusters[n]}] " if clusters else "") + "·".join(map(str, found.neurons[n])) for n in order]
    yield from _matrix(
        rows, len(found.tokens), lambda r, k: _signed(float(found.activations[order[r], k]), most), width
    )
    yield _note(f"layer·neuron over the tokens: {' '.join(_names(found.tokens))}")


def _factors(found: Any, width: int) -> Iterator[RenderableType]:
    yield _title(found, "what fires together")
    names = _names(found.tokens)
    for n, row in enumerate(found.factors):
        high = float(row.max()) or 1.0
        sparks = "".join(_LEVELS[min(7, int(value / high * 7.99))] for value in row.tolist())
        best = " ".join(names[k] for k in row.argsort()[::-1][:4].tolist() if row[k] > 0)
        line = Text.assemble((f"factor {n:<3}", "dim"), (sparks, ACCENT), "  ", best)
        line.truncate(width, overflow="ellipsis")
        yield line
    yield _note(f"A bar for each of the {len(names)} tokens, and where the factor is strongest.")


def _similarity(found: Any, width: int) -> Iterator[RenderableType]:
    one = found.a == found.b
    names = found.a if one else f"{found.a} and {found.b}"
    question = "which layers see alike" if one else "where do they see alike"
    measure = found.measure.upper() + (", unbiased" if found.unbiased else "")
    yield Text.assemble((names, "bold"), f"  {question}: {measure}\n")
    order = list(reversed(range(len(found.layers_a))))
    rows = [str(found.layers_a[n]) for n in order]

    def cell(r: int, k: int) -> tuple[str, str]:
        value = float(found.values[order[r], k])
        shown = "–" if value != value else f"{value:.2f}"
        return f"{shown:>6}", f"bold {ACCENT}" if value > 0.8 else ACCENT if value > 0.5 else "dim"

    yield from _matrix(rows, len(found.layers_b), cell, width)
    yield _header([str(layer) for layer in found.layers_b], max(map(len, rows)), 6, width)
    whose = "layers" if one else f"layers of {found.a}"
    columns = "the same" if one else f"layers of {found.b}"
    alike = "rotation" if found.measure == "cka" else "linear map of what is kept"
    yield _note(
        f"Rows: {whose}, bottom to top, 0 is the embedding. Columns: {columns}. 1 is the same up to a {alike}; tokens "
        f"in random order give {found.chance:.2f}. {found.count:,} {_COMPARED[found.aligned]}."
    )


_COMPARED = {
    "tokens": "tokens were compared",
    "stretches": "stretches of text were compared: what one model reads as several tokens is averaged",
}


def _header(names: Sequence[str], label: int, cell: int, width: int) -> Text:
    """Names of columns, as far as a matrix beside rows of this label reaches."""
    room = max(1, (width - label - 2) // cell)
    return Text(" " * (label + 2) + "".join(" " + _right(name, cell - 1) for name in names[:room]), style="dim")


def _right(text: str, width: int) -> str:
    fitted = _fit(text, width)
    return " " * (len(fitted) - len(fitted.rstrip(" "))) + fitted.rstrip(" ")


def _patching(found: Any, width: int) -> Iterator[RenderableType]:
    answer, other = (None if one is None else show_spaces(one) for one in found.answers)
    yield _title(found, f"where is {answer} decided: {found.tap}, {found.by} by {found.by}")
    best = found.corrupted_top[0].token
    for name, tokens, says in (
        ("clean", found.clean, answer),
        ("corrupted", found.corrupted, other or show_spaces(best)),
    ):
        line = Text(f"{name:>9}  ", style="dim")
        for own, one, two in zip(_names(tokens), found.clean, found.corrupted, strict=True):
            line.append(chip(own), style="bold reverse" if one.id != two.id else "")
            line.append(" ")
        yield line.append(f"→ {says}", style=COLOURS["value"])
    yield Text()
    places = found.heads if found.by == "head" else found.positions
    names = (
        [str(head) for head in places]
        if found.by == "head"
        else [" ".join(_names([found.corrupted[p] for p in group])) for group in places]
    )
    order = list(reversed(range(len(found.layers))))
    rows = [f"layer {found.layers[n]}" for n in order]
    label = max(map(len, rows))
    numbers = 7 * len(names) <= width - label - 2

    def cell(r: int, k: int) -> tuple[str, str]:
        value = float(found.effect[order[r], k])
        if not numbers:
            return _signed(value, max(1.0, float(np.abs(found.effect).max())))
        style = "dim" if abs(value) < 0.1 else MINUS if value < 0 else ACCENT
        return f"{round(value, 2) + 0.0:7.2f}", f"bold {style}" if abs(value) > 0.6 else style  # no -0.00

    yield from _matrix(rows, len(names), cell, width)
    if numbers:
        yield _header(names, label, 7, width)
    layer, column = found.strongest
    yield _note(
        f"Effect on the {found.what}: 1 brings the clean text's {found.clean_score:.2f} back, 0 leaves the corrupted "
        f"text's {found.corrupted_score:.2f}. Strongest: layer {found.layers[layer]}, {found.by} "
        f"{names[column]}, {found.effect[layer, column]:.2f}."
    )


def _top_tokens(found: Any, width: int) -> Iterator[RenderableType]:
    yield _title(found, f"what excites neuron {found.layer}·{found.neuron} most")
    for one in found.contexts:
        line = Text(f"{one.activation:8.3f}  ", style="dim")
        strongest = [max(0.0, value) for value in one.activations]
        yield line + _highlighted(_names(one.tokens), strongest, numbers=False, ink=(138, 111, 240))
    yield _note(
        f"Strongest over {found.texts:,} texts ({found.seen:,} tokens); above zero at {found.fires:.1%} of them."
    )


def _beams(found: Any, width: int) -> Iterator[RenderableType]:
    greedy = found.beams == 1
    yield _title(found, "what was taken, and what stood next in line" if greedy else "how the answer was searched")
    if found.source or found.text:
        yield Text(_one_line(found.source or found.text) + (" →" if found.source else ""), style="dim")
    best = set(found.answers[0].nodes) if found.answers else set()
    for step in range(1, found.steps + 1):
        line = Text(f"{step:>3}  ", style="dim")
        for node in (node for node in found.nodes if node.step == step):
            chance = f" {math.exp(node.log_prob):.0%}"
            style = f"bold {ACCENT}" if node.id in best else "dim strike" if node.fate == "dropped" else ""
            end = "■" if node.fate == "finished" else ""
            part = Text.assemble((show_spaces(node.token), style), (chance + end, "dim"), "  ")
            if line.cell_len + part.cell_len > width:
                break
            line += part
        yield line
    yield Text()
    for answer in found.answers:
        score = "" if answer.score is None else f"{answer.score:8.3f}  "
        line = Text.assemble((f"{answer.rank:>3}  {score}", "dim"), _one_line(answer.text))
        line.truncate(width, overflow="ellipsis")
        yield line
    yield _note(
        "A line for each new token: its candidates, the likeliest text first; struck out: dropped; ■: a text ends."
        + ("" if greedy else f" Answers by log-probability / length ^ {found.length_penalty:g}.")
    )


def _positions(found: Any, width: int) -> Iterator[RenderableType]:
    for scheme in found.schemes:
        side = f"{scheme.side}, " if scheme.side else ""
        yield _title(found, f"how it knows the order: {side}{scheme.way.replace('-', ' ')}, {scheme.where}")
        values = scheme.values
        if scheme.columns == "dimension":  # neighbouring dimensions share a cell where there are too many
            room = max(1, min(values.shape[1], (width - 8) // 2))
            values = np.stack([part.mean(1) for part in np.array_split(values, room, axis=1)], axis=1)
        chosen = list(range(0, len(scheme.rows), max(1, len(scheme.rows) // 24)))
        yield from _signed_matrix([str(scheme.rows[r]) for r in chosen], values[chosen], width)
        what = "distances (key - query)" if scheme.rows[0] < 0 else "positions"
        yield _note(f"Rows: {what}. Columns: {scheme.columns}s. Teal above zero, red below.")


def _signed_matrix(rows: Sequence[str], values: np.ndarray, width: int) -> Iterator[RenderableType]:
    most = float(np.abs(values).max()) or 1.0
    yield from _matrix(rows, values.shape[1], lambda r, k: _signed(float(values[r, k]), most), width)


def _parameters(found: Any, width: int) -> Iterator[RenderableType]:
    yield _title(found, f"where the {found.total:,} parameters live")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("part", overflow="fold")
    for name in ("parameters", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    sums: dict[tuple[str, str], int] = {}
    for piece in found.pieces:
        sums[piece.stack, piece.part] = sums.get((piece.stack, piece.part), 0) + piece.parameters
    room, most = max(4, min(_BAR, width - 52)), max(sums.values())
    for (stack, part), count in sums.items():
        name = part if stack in ("", "head") else f"{stack}: {part}"
        own = Text(bar(count / most, room), style=COLOURS["value"])
        table.add_row(name, f"{count:,}" if count else "shared", f"{count / found.total:.1%}", own)
    table.add_row("total", f"{found.total:,}", "100.0%", "", style="bold")
    yield table
    layers = " and ".join(f"{count}{' in the ' + stack if stack else ''}" for stack, count in found.layers.items())
    shared = " What several parts share is counted once." if any(piece.shared for piece in found.pieces) else ""
    yield _note(f"Layers: {layers}.{shared}")


def _prediction(found: Any, width: int) -> Iterator[RenderableType]:
    yield _title(found, f"what it answers: {found.task}")
    names = _names(found.tokens)
    for answer in found.answers:
        best = answer.choices[0]
        if answer.what in ("token-label", "replaced"):
            yield Text.assemble(
                f"{_fit(names[answer.position], 16)} ", (f"{best.probability:7.1%}  ", "dim"), best.label
            )
            continue
        if answer.position is not None:
            yield Text(" ".join(names[max(0, answer.position - 4) : answer.position + 5]), style="dim")
        if answer.what == "number":
            yield from (Text(f"{choice.label}  {choice.score:.4f}") for choice in answer.choices)
        else:
            shown = answer.choices[:_LABELS] if answer.what == "label" else answer.choices
            guesses = [(choice.label, choice.probability) for choice in shown]
            yield draw_guesses(guesses, tokens=answer.what == "word")
            if rest := answer.choices[len(shown) :]:
                yield _note(f"And {len(rest)} more, {sum(choice.probability for choice in rest):.1%} together.")


def _sampling(found: Any, width: int) -> Iterator[RenderableType]:
    yield _title(found, "how the next token is drawn")
    yield Text(f"{_one_line(found.source)} → " if found.source else _one_line(found.text), style="dim")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("token", no_wrap=True)
    for name in ("before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    most = max(one.after for one in found.candidates) or 1.0
    for one in found.candidates[:16]:
        share = Text(bar(one.after / most, max(4, min(_BAR, width - 44))), style=COLOURS["value"])
        after = f"{one.after:.2%}" if one.after else "cut"
        table.add_row(Text(show_spaces(one.token), "" if one.after else "dim"), f"{one.before:.2%}", after, share)
    yield table
    for stage in found.stages:
        cut = "" if stage.name == "temperature" else f" cuts {stage.cut:.1%} of the chances, {stage.left:,} tokens left"
        yield Text(f"{stage.name} {stage.value:g}{cut}", style="dim")
    yield _note("Drawn, by seed: " + " ".join(f"{draw.seed}:{show_spaces(draw.token)}" for draw in found.draws))


def _cache(found: Any, width: int) -> Iterator[RenderableType]:
    yield _title(found, "what the cache saves")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("writes", no_wrap=True, max_width=16, overflow="ellipsis")
    for name in ("has read", "computed", "without it", "with it"):
        table.add_column(name, justify="right", no_wrap=True)
    room = max(0, min(_BAR, width - 62))
    table.add_column("")
    most = max(step.without for step in found.steps)
    for step in found.steps:
        own, rest = bar(step.work / most, room), round(step.without / most * room)
        line = Text.assemble((own, COLOURS["key"]), ("░" * max(0, rest - cell_len(own)), "dim"))
        numbers = (str(step.length), str(step.computed), _amount(step.without), _amount(step.work))
        table.add_row(show_spaces(step.token), *numbers, line)
    yield table
    held = found.steps[-1].kept
    yield _note(
        "Multiply-adds, counted. Without a cache every step computes keys and values of all tokens again; with it, "
        f"only of the new one. It saves {found.saved:.0%}, and keeps {held:,} numbers "
        f"({held * found.bytes / 2**20:.2g} MiB)."
    )


def _amount(value: float) -> str:
    """A large number in three places: 12.3 M."""
    for size, sign in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " K")):
        if value >= size:
            return f"{value / size:.{0 if value >= 99.5 * size else 1 if value >= 9.95 * size else 2}f}{sign}"
    return f"{value:g}"


_WAYS: dict[str, Callable[[Any, int], Iterator[RenderableType]]] = {
    "walk": _walk,
    "next-tokens": _next,
    "attention": _attention,
    "query-key": _query_key,
    "attention-steps": _attention_steps,
    "ablation": _ablation,
    "saliency": _saliency,
    "hidden-states": _hidden_states,
    "comparison": _comparison,
    "neurons": _neurons,
    "factors": _factors,
    "similarity": _similarity,
    "patching": _patching,
    "top-tokens": _top_tokens,
    "beams": _beams,
    "positions": _positions,
    "parameters": _parameters,
    "prediction": _prediction,
    "sampling": _sampling,
    "cache": _cache,
}
