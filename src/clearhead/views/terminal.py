"""Findings in the terminal, in the colours they have everywhere: queries violet, keys orange, values blue."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from clearhead.explain.next_token import NextTokens
from clearhead.explain.walk import Step, Vector, Walk

COLOURS = {"query": "#9b7be0", "key": "#e08f3c", "value": "#4a8fd8", "plain": ""}
# Tokens take turns, so that neighbours can be told apart.
TOKEN_COLOURS = ("#7a4fd0", "#b5651d", "#2f74c0", "#3f9b5f", "#c0447f")
_BAR = 24


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


def draw_walk(walk: Walk, console: Console) -> None:
    head = Text()
    head.append(walk.model, style="bold")
    head.append(f"  layer {walk.layer} of {walk.layers}, head {walk.head} of {walk.heads}, counted from 0\n")
    for n, token in enumerate(walk.tokens):
        head.append(chip(show_spaces(token)), style="bold reverse" if n == walk.position else "dim")
        head.append(" ")
    console.print(head, "")
    for n, step in enumerate(walk.steps, start=1):
        console.print(_draw_step(n, step, walk, console.width))


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
    for n, token in enumerate(walk.tokens):
        cells = []
        share = 0.0
        for column in step.columns:
            value = column.numbers[n]
            cells.append("hidden" if value is None else f"{value:.3f}")
            share = value or 0.0 if column.is_share else share
        style = "bold" if n == walk.position else ""
        table.add_row(Text(show_spaces(token), style=style), *cells, Text(bar(share), style=COLOURS["query"]))
    return table


def draw_guesses(guesses: list[tuple[str, float]]) -> Table:
    """Candidates with their chances, as a number and as a bar against the best."""
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    best = max((chance for _, chance in guesses), default=1.0) or 1.0
    for token, chance in guesses:
        table.add_row(show_spaces(token), f"{chance:7.2%}", Text(bar(chance / best), style=COLOURS["value"]))
    return table


def draw_next(
    found: NextTokens, console: Console, *, numbered: bool = False, added: int = 0, first: bool = True
) -> None:
    """The text so far, and under it what may come next.

    numbered   with numbers to choose by          added   how many characters at the end were chosen on the way
    first      with a title, and how to read it; the same figure further on goes without
    """
    edge = len(found.text) - added
    head = Text.assemble((found.model, "bold"), "  what may come next\n") if first else Text()
    if found.source is not None:
        head.append(f"{_one_line(found.source)} → ", style="dim")
    head.append(_one_line(found.text[:edge]), style="dim")
    head.append(_one_line(found.text[edge:]), style="bold")
    head.append("▁", style=COLOURS["value"])
    console.print(head)
    console.print(_ranked(found, console.width, numbered))
    says = (
        f"These {len(found.candidates)} hold {found.shown:.1%} of all chances. Entropy {found.entropy:.1f} bits: as "
        f"unsure as a fair choice among {found.as_many:,.0f} of the {found.vocabulary:,} tokens."
    )
    short = f"{found.shown:.1%} of all chances; entropy {found.entropy:.1f} bits"
    console.print(f"Bars: against the likeliest. {says}\n" if first else f"{short}\n", style="dim")


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
    return text.replace("\n", "⏎").replace("\t", "⇥")
