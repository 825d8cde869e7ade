"""What every drawing is made of: colours, bars, shaded matrices, highlighted texts, tables of candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.messages import say
from clearhead.units import WrittenUnit

COLOURS = {"query": "#9b7be0", "key": "#e08f3c", "value": "#4a8fd8", "plain": ""}
# Tokens take turns, so that neighbours can be told apart.
TOKEN_COLOURS = ("#7a4fd0", "#b5651d", "#2f74c0", "#3f9b5f", "#c0447f")
BAR_WIDTH = 24
ACCENT, WARM, PLUS, MINUS = "#8a6ff0", (232, 145, 47), "#2f9d95", "#cf5c48"
HEADS = ("#4f86d0", "#d9772b", "#2f9d6b", "#d0555c", "#8f70d6", "#9c7452", "#d065a5", "#7f8c97", "#a39a2a", "#2aa0b0")
_SHADES = " ·░▒▓█"  # from nothing to everything


def show_spaces(token: str) -> str:
    """A token with its spaces and line breaks made visible."""
    shown = token.replace("▁", "␣").replace(" ", "␣").replace("\r", "␍").replace("\n", "⏎").replace("\t", "⇥")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def bar(fraction: float, width: int = BAR_WIDTH) -> str:
    """A bar of eighths: `share` of `width` cells."""
    eighths = round(max(0.0, min(1.0, fraction)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def chip(text: str) -> str:
    """Text that a terminal does not break inside: its spaces are hard ones."""
    return f" {text} ".replace(" ", "\u00a0")


def one_line(text: str) -> str:
    shown = text.replace("\n", "⏎").replace("\t", "⇥")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def fit(text: str, width: int) -> str:
    """Exactly so many cells."""
    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line.plain + " " * (width - line.cell_len)


def fit_right(text: str, width: int) -> str:
    fitted = fit(text, width)
    return " " * (len(fitted) - len(fitted.rstrip(" "))) + fitted.rstrip(" ")


def heading(finding: Any, about: str = "", model: str | None = None) -> Text:
    """The model (or models), the question as every list has it, and what of the finding is shown."""
    title = say(f"questions.{finding.kind}.title")
    model = finding.model if model is None else model
    return Text.assemble((model, "bold"), f"  {title}", (f"  {about}" if about else "", "dim"), "\n")


def footnote(text: str) -> Text:
    return Text(f"\n{text}", style="dim")


def unit_names(tokens: Sequence[Any]) -> list[str]:
    return [show_spaces(token if isinstance(token, str) else token.text) for token in tokens]


def row_labels(units: Sequence[Any], width: int) -> list[str | Text]:
    """The names of rows; of steps of writing, what is written, with what has just been read before it, dim."""
    names = unit_names(units)
    if not isinstance(units[0], WrittenUnit):
        return list(names)
    reads = [show_spaces(unit.read) for unit in units]
    most = max(8, width // 4)
    before, own = (min(max(map(cell_len, column)), room) for column, room in ((reads, most // 2), (names, most)))
    return [
        Text.assemble((fit_right(read, before), "dim"), "  ", (fit_right(name, own), "italic" if unit.guessed else ""))
        for unit, read, name in zip(units, reads, names, strict=True)
    ]


def step_words(unit: WrittenUnit) -> str:
    """The step of writing that a row stands for, as a sentence."""
    token, read = show_spaces(unit.text), show_spaces(unit.read)
    if unit.guessed:
        return f"The text ends with {read}; the model itself would write {token} next."
    return f"Having read {read}, the model writes {token}."


def candidate_table(guesses: list[tuple[str, float]], tokens: bool = True) -> Table:
    """Candidates with their probabilities, as a number and as a bar against the best. Of tokens, spaces are shown."""
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    best = max((probability for _, probability in guesses), default=1.0) or 1.0
    for token, probability in guesses:
        name = Text(show_spaces(token) if tokens else token)
        table.add_row(name, f"{probability:7.2%}", Text(bar(probability / best), style=COLOURS["value"]))
    return table


def shade(fraction: float) -> str:
    """Two cells of ink."""
    level = 0 if not fraction > 0.004 else 1 + min(int(fraction * (len(_SHADES) - 1)), len(_SHADES) - 2)
    return _SHADES[level] * 2


def signed_cell(value: float, most: float) -> tuple[str, str]:
    fraction = abs(value) / (most or 1.0) if value == value else 0.0
    return shade(fraction), MINUS if value < 0 else PLUS


def matrix(
    rows: Sequence[str | Text], columns: int, cell: Callable[[int, int], tuple[str, str]], width: int, most: int = 40
) -> Iterator[RenderableType]:
    """Shaded cells (text, style) behind the names of their rows; what does not fit is cut and said. A name that is a
    Text has its width already."""
    label = min(max((cell_len(row) for row in rows if isinstance(row, str)), default=1), max(8, width // 4))
    label = max([label, *(row.cell_len for row in rows if isinstance(row, Text))])
    fitting = max(1, (width - label - 2) // len(cell(0, 0)[0]))
    for n, row in enumerate(rows[:most]):
        line = Text(row) if isinstance(row, str) else row.copy()
        line.truncate(label, overflow="ellipsis")
        line = Text(" " * (label - line.cell_len)) + line + Text("  ")
        for k in range(min(columns, fitting)):
            text, style = cell(n, k)
            line.append(text, style=style)
        yield line
    left = [
        f"{len(rows) - most} more rows" if len(rows) > most else "",
        f"{columns - fitting} more columns" if columns > fitting else "",
    ]
    if any(left):
        yield Text(f'… {" and ".join(filter(None, left))}: see .save("….html").', style="dim")


def signed_matrix(rows: Sequence[str], values: np.ndarray, width: int) -> Iterator[RenderableType]:
    most = float(np.abs(values).max()) or 1.0
    yield from matrix(rows, values.shape[1], lambda r, k: signed_cell(float(values[r, k]), most), width)


def ink_matrix(rows: Sequence[str], values: np.ndarray, width: int) -> Iterator[RenderableType]:
    """Numbers between zero and one."""
    yield from matrix(rows, values.shape[1], lambda r, k: (shade(float(values[r, k])), ACCENT), width)


def header(names: Sequence[str], label: int, cell: int, width: int) -> Text:
    """Names of columns, as far as a matrix beside rows of this label reaches."""
    fitting = max(1, (width - label - 2) // cell)
    return Text(" " * (label + 2) + "".join(" " + fit_right(name, cell - 1) for name in names[:fitting]), style="dim")


def highlighted(
    names: Sequence[str], fractions: Sequence[float], numbers: bool = True, ink: tuple[int, int, int] = WARM
) -> Text:
    """A text with a highlight behind each token, as strong as its share of the largest."""
    high = max((fraction for fraction in fractions if fraction == fraction), default=0.0) or 1.0
    line = Text()
    for name, fraction in zip(names, fractions, strict=True):
        strength = fraction / high if fraction == fraction else -1.0
        number = f" {fraction:.0%}" if numbers and fraction >= 0.005 else ""
        if strength < 0:
            style = "dim"
        elif strength < 0.12:
            style = ""
        else:
            style = "#1c1b19 on #" + "".join(f"{round(245 + (part - 245) * strength):02x}" for part in ink)
        line.append(chip(name + number), style=style)
        line.append(" ")
    return line


def layer_rows(layers: Sequence[int]) -> list[tuple[int, str]]:
    """From the last layer down to the embedding, as in the stacks of the papers."""
    return [(n, "embedding" if layers[n] == 0 else f"layer {layers[n]}") for n in reversed(range(len(layers)))]
