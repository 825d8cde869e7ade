"""What a model answers to texts: labels with bars, entities in their text, an answer in its sentence, ranked texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.views.terminal.elements import BAR_WIDTH, COLOURS, HEADS, bar, candidate_table, fit, one_line

_LABELS = 10  # before the rest is summed up
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_HIGHLIGHT = "bold #1c1b19 on #f0b871"


# ---- labels


def draw_labels(labels: Sequence[Any], numbers: bool = False) -> RenderableType:
    """Labels with their probabilities, best first. numbers: scores that are none, as a regression gives."""
    if numbers:
        return Text("\n".join(f"{label.label}  {label.score:.4f}" for label in labels))
    table = candidate_table([(label.label, label.score) for label in labels[:_LABELS]], tokens=False)
    rest = len(labels) - _LABELS
    return Group(table, Text(f"and {rest} more, see --json", style="dim")) if rest > 0 else table


def label_line(text: str, best: Any, label_width: int, width: int, numbers: bool = False) -> Text:
    """One text of many: its label, how sure the model is of it, and the text as far as it fits."""
    score = f"{best.score:9.4f}" if numbers else f"{best.score:7.2%}"
    line = Text.assemble((fit(best.label, label_width), "bold"), (f" {score}  ", "dim"), one_line(text))
    line.truncate(width, overflow="ellipsis")
    return line


# ---- entities


def draw_entities(text: str, entities: Sequence[Any], colours: bool = True) -> RenderableType:
    """The text with its entities underlined (without colours in brackets), each with its label behind it; under it a
    line for each label."""
    hues = {label: HEADS[n % len(HEADS)] for n, label in enumerate(sorted({entity.label for entity in entities}))}
    shown, position = Text(), 0
    for entity in sorted(entities, key=lambda entity: entity.start):
        shown.append(text[position : entity.start])
        shown.append("" if colours else "[")
        shown.append(text[entity.start : entity.end], style=f"underline {hues[entity.label]}")
        shown.append(f"\u00a0{entity.label}" + ("" if colours else "]"), style=f"dim {hues[entity.label]}")
        position = entity.end
    shown.append(text[position:])
    if not entities:
        return Group(shown, Text("no entities", style="dim"))
    legend = Table.grid(padding=(0, 2, 0, 0))
    for label, hue in hues.items():
        texts = [f"{entity.text} {entity.score:.1%}" for entity in entities if entity.label == label]
        legend.add_row(Text(label, style=f"bold {hue}"), Text("  ".join(map(one_line, texts)), style="dim"))
    return Group(shown, Text(), legend)


def draw_words(words: Sequence[Any]) -> RenderableType:
    """Every word with its tag, a line each."""
    table = Table.grid(padding=(0, 2, 0, 0))
    kinds = sorted({word.label.split("-", 1)[-1] for word in words} - {"O"})  # B-PER and I-PER have one hue
    for word in words:
        style = "dim" if word.label == "O" else HEADS[kinds.index(word.label.split("-", 1)[-1]) % len(HEADS)]
        table.add_row(Text(one_line(word.text)), Text(word.label, style=style), Text(f"{word.score:7.2%}", style="dim"))
    return table


# ---- answers


def draw_answer(answer: Any, passage: str, source: str = "") -> RenderableType:
    """How sure, the answer, and the sentence it stands in."""
    if not answer.text:
        return Text.assemble((f"{answer.score:7.2%}  ", "dim"), ("no answer in the passage", "italic"))
    start, end = sentence_around(passage, answer.start, answer.end)
    shown = Text.assemble(
        one_line(passage[start : answer.start].lstrip()),
        (one_line(passage[answer.start : answer.end]), _HIGHLIGHT),
        one_line(passage[answer.end : end].rstrip()),
    )
    first = Text.assemble((f"{answer.score:7.2%}  ", "dim"), (one_line(answer.text), "bold"))
    if source:
        first.append(f"  {source}", style="dim")
    return Group(first, _indented(shown, 9))


def _indented(text: Text, by: int) -> RenderableType:
    """Every line of it, also those that it is broken into."""
    grid = Table.grid()
    grid.add_column(width=by)
    grid.add_column()
    grid.add_row("", text)
    return grid


def sentence_around(text: str, start: int, end: int, max_length: int = 200) -> tuple[int, int]:
    """The sentence, or the line, that holds characters start to end; no more than so many characters either side."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    first = max((position for position in ends if position <= start), default=0)
    last = min((position for position in ends if position >= end), default=len(text))
    return max(first, start - max_length), min(last, end + max_length)


# ---- ranked texts


def draw_hits(hits: Sequence[tuple[float, str, str]], width: int) -> Iterator[RenderableType]:
    """(score, where it stands, text), best first: each with its place above it."""
    best = max((score for score, _, _ in hits), default=0.0)
    for n, (score, location, text) in enumerate(hits, 1):
        ink = bar(max(score, 0.0) / best if best > 0 else 0.0, 10)
        yield Text.assemble(
            (f"{n:>2} ", "dim"), f"{score:6.3f} ", (f"{ink:<10}", COLOURS["value"]), (f"  {location}", "dim")
        )
        line = Text(one_line(text))
        line.truncate(3 * max(20, width - 3), overflow="ellipsis")
        yield _indented(line, 3)


def draw_found(hits: Sequence[tuple[float, str]]) -> RenderableType:
    """(score, where it lies), best first, a line each."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for overflow in ("ellipsis", "ellipsis", "ellipsis", "fold"):  # a path is to be copied: whole
        table.add_column(overflow=overflow, no_wrap=overflow != "fold")
    best = max((score for score, _ in hits), default=0.0)
    for n, (score, location) in enumerate(hits, 1):
        ink = Text(bar(max(score, 0.0) / best if best > 0 else 0.0, 10), style=COLOURS["value"])
        table.add_row(Text(f"{n:>2}", style="dim"), f"{score:.3f}", ink, Text(location))
    return table


def draw_pairs(pairs: Sequence[tuple[float, str, str]], width: int) -> RenderableType:
    """Texts that are alike, two by two, the most alike first."""
    table = Table.grid(padding=(0, 2, 0, 0))
    text_width = max(10, (width - BAR_WIDTH // 2 - 12) // 2)
    best = max((score for score, _, _ in pairs), default=0.0)
    for score, first, second in pairs:
        ink = Text(bar(max(score, 0.0) / best if best > 0 else 0.0, BAR_WIDTH // 2), style=COLOURS["value"])
        cells = [Text(fit(one_line(text), text_width).rstrip()) for text in (first, second)]
        table.add_row(f"{score:5.2f}", ink, *cells)
    return table
