"""A training run as a person sees it: a loss curve and the newest numbers, drawn from the events of its log.

`history_of` reads the events (train/engine/log.py), `draw` shows them in a terminal,
`line_of` says one of them in a line.
Nothing here trains or waits: the same events give the same picture, live, later, or elsewhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Event = Mapping[str, Any]
Points = list[tuple[int, float]]  # (step, loss)

HELD_OUT = "#12908e"  # seen on white and on black; training is drawn in the terminal's own ink
QUARTERS = (("▘", "▖"), ("▝", "▗"))  # of a cell, by column and row: the mark of a held-out measurement
SAMPLE_LINES = 5
FRAME = 11  # lines around the curve: title, legend, axis, progress, and the empty ones between them
LEAST_ROWS = 4  # of the curve
MOST = 2048  # points that are kept of a line: more than any terminal can tell apart
LOW = 30  # a terminal with fewer lines shows fewer numbers
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a braille cell, by column and row


# ---- what happened


@dataclass
class RunHistory:
    """What a run has logged so far."""

    begin: dict[str, Any] = field(default_factory=dict)
    training: Points = field(default_factory=list)
    held_out: Points = field(default_factory=list)
    step: dict[str, Any] = field(default_factory=dict)  # the newest of each kind
    evaluation: dict[str, Any] = field(default_factory=dict)
    best: dict[str, Any] = field(default_factory=dict)
    sample: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """A run that was stopped and goes on begins again; what it does anew replaces what it did before."""
        kind, step = event.get("event"), int(event.get("step", 0))
        if kind == "begin":
            self.begin, self.end = dict(event), {}
            self.training = [point for point in self.training if point[0] <= step]
            self.held_out = [point for point in self.held_out if point[0] <= step]
        elif kind == "step":
            self.step = dict(event)
            self.training.append((step, float(event["loss"])))
            if len(self.training) > MOST:
                self.training = _thinned(self.training)
        elif kind == "evaluation":
            self.evaluation = dict(event)
            if event.get("best"):
                self.best = dict(event)
            if "loss" in event["metrics"]:
                self.held_out.append((step, float(event["metrics"]["loss"])))
        elif kind == "sample":
            self.sample = dict(event)
        elif kind == "end":
            self.end = dict(event)


def history_of(events: Iterable[Event]) -> RunHistory:
    history = RunHistory()
    for event in events:
        history.add(event)
    return history


def _thinned(points: Points) -> Points:
    """Half as many: neighbours become their mean, the newest stays."""
    *older, newest = points
    pairs = zip(older[::2], older[1::2], strict=True)
    return [*(((a[0] + b[0]) // 2, (a[1] + b[1]) / 2) for a, b in pairs), newest]


# ---- the picture


def draw(
    history: RunHistory, width: int, height: int = 40, idle_seconds: float = 0.0, footer: Text | None = None
) -> RenderableType:
    """
    width, height   of the terminal, in cells; the curve takes what is left of the height
    idle_seconds    seconds since the newest event, by which the clocks are moved on
    footer          a last line
    """
    inside = max(width - 4, 20)
    facts = _facts(history, inside, rows=1 if height < LOW else 3)
    below: list[RenderableType] = [_progress(history, inside, idle_seconds), Text(), *facts]
    rows_left = height - FRAME - 2 * len(facts) - LEAST_ROWS - (0 if footer is None else 1 + _lines(footer, inside))
    if history.evaluation and rows_left >= 4:
        below += [Text(), _evaluations(history, inside)]
        rows_left -= 4
    if history.sample and rows_left >= 4:
        lines = min(SAMPLE_LINES, rows_left - 2)
        below += [Text(), *_sample(history.sample, inside, lines)]
        rows_left -= lines + 2
    below += [] if footer is None else [Text(), footer]
    rows = max(LEAST_ROWS, min(inside // 6, 14, LEAST_ROWS + rows_left))
    parts = [_title(history.begin, inside), Text(), *curve(history.training, history.held_out, inside, rows)]
    return Padding(Group(*parts, Text(), *below), (1, 2, 0, 2))


def _lines(text: Text, width: int) -> int:
    return max(1, math.ceil(text.cell_len / width))


def _title(begin: Event, width: int) -> Text:
    title = Text.assemble((str(begin.get("family", "A model")), "bold"))
    facts = [str(begin.get("objective", "")), f"{amount(begin.get('parameters', 0))} parameters", _place(begin)]
    title.append("   " + "  ·  ".join(fact for fact in facts if fact), style="dim")
    out = str(begin.get("out", ""))
    space = width - len(title.plain) - len(out)
    if out and space >= 3:
        title.append(" " * space + out, style="dim")
    title.truncate(width, overflow="ellipsis")
    return title


def _place(begin: Event) -> str:
    """Where it is trained, and how exactly: cuda × 8, bf16."""
    devices = int(begin.get("devices", 1))
    return f"{begin.get('device', '?')}{f' × {devices}' if devices > 1 else ''}, {begin.get('precision', '?')}"


def curve(training: Points, held_out: Points, width: int, height: int) -> list[Text]:
    """The losses over the steps: a line of braille dots for training, a mark for each held-out measurement.

    Both axes start where the numbers do. The steep fall of the first steps may leave the frame at its top.
    """
    lines = [_legend(training, held_out), Text()]
    last = max([step for step, _ in (*training, *held_out)], default=0)
    if not training:
        return [*lines, *(Text() for _ in range(height)), Text("waiting for the first steps …", style="dim"), Text()]
    low, high = _frame(training, held_out, last)
    ticks = _ticks(low, high, max(3, height // 2))
    labels = {_row_of(value, low, high, height * 4) // 4: _tick(value, ticks) for value in ticks}
    margin = max(map(len, labels.values())) + 1
    columns = max(width - margin - 1, 8)
    grid = _dots(training, last, low, high, columns, height)
    marks = {}
    for step, loss in held_out:
        if low <= loss <= high:
            x, y = _column_of(step, last, columns * 2), _row_of(loss, low, high, height * 2)
            marks[y // 2, x // 2] = QUARTERS[x % 2][y % 2]
    for row in range(height):
        line = Text()
        line.append(f"{labels.get(row, ''):>{margin - 1}} ", style="dim")
        line.append("┤" if row in labels else "│", style="dim")
        for column, dots in enumerate(grid[row]):
            if (row, column) in marks:
                line.append(marks[row, column], style=HELD_OUT)
            else:
                line.append(chr(0x2800 + dots) if dots else " ")
        lines.append(line)
    return [*lines, *_steps_axis(last, margin, columns)]


def _legend(training: Points, held_out: Points) -> Text:
    legend = Text.assemble(("loss", "bold"), "   ⠤⠤ training")
    if training:
        legend.append(f" {number(training[-1][1])}", style="bold")
    if held_out:
        legend.append("   ■", style=HELD_OUT).append(" held out")
        legend.append(f" {number(held_out[-1][1])}", style="bold")
    return legend


def _frame(training: Points, held_out: Points, last: int) -> tuple[float, float]:
    """The lowest and the highest loss that are shown."""
    finite = [(step, loss) for step, loss in (*training, *held_out) if math.isfinite(loss)]
    later = [loss for step, loss in finite if step > 0.04 * last] if len(training) >= 20 else []
    shown = later or [loss for _, loss in finite] or [0.0]
    low, high = min(shown), max(shown)
    spare = (high - low) * 0.03 or max(abs(high) * 0.1, 1e-3)
    return low - spare, high + spare


def _dots(training: Points, last: int, low: float, high: float, columns: int, height: int) -> list[list[int]]:
    """The line through the mean of every column of dots, as the dots of braille cells: (height, columns)."""
    sums: dict[int, tuple[float, int]] = {}
    for step, loss in training:
        if math.isfinite(loss):
            x = _column_of(step, last, columns * 2)
            total, count = sums.get(x, (0.0, 0))
            sums[x] = (total + loss, count + 1)
    grid = [[0] * columns for _ in range(height)]
    before: tuple[int, int] | None = None
    for x in sorted(sums):
        total, count = sums[x]
        here = (x, _row_of(total / count, low, high, height * 4))
        for dot_x, dot_y in _line(before or here, here):
            if 0 <= dot_y < height * 4:
                grid[dot_y // 4][dot_x // 2] |= _DOTS[dot_x % 2][dot_y % 4]
        before = here
    return grid


def _line(start: tuple[int, int], end: tuple[int, int]) -> Iterable[tuple[int, int]]:
    """Every dot from one to another."""
    (x0, y0), (x1, y1) = start, end
    count = max(abs(x1 - x0), abs(y1 - y0), 1)
    return ((round(x0 + (x1 - x0) * n / count), round(y0 + (y1 - y0) * n / count)) for n in range(count + 1))


def _column_of(step: int, last: int, columns: int) -> int:
    return int(step / max(last, 1) * (columns - 1))


def _row_of(loss: float, low: float, high: float, rows: int) -> int:
    return math.floor((high - loss) / (high - low) * (rows - 1) + 0.5)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers between two others: as many as are not too many."""
    power_of_ten = math.floor(math.log10(high - low))
    chosen = [(low + high) / 2]
    for step in (size * 10.0**power for power in (power_of_ten, power_of_ten - 1) for size in (5, 2, 1)):
        ticks = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
        if len(ticks) > count:
            break
        chosen = ticks or chosen
    return chosen


def _tick(value: float, ticks: Sequence[float]) -> str:
    gap = min((b - a for a, b in itertools.pairwise(ticks)), default=abs(value) or 1.0)
    places = max(0, min(6, -math.floor(math.log10(gap) + 1e-9)))
    return f"{value:,.{places}f}"


def _steps_axis(last: int, margin: int, columns: int) -> list[Text]:
    """The hairline under the curve and the steps under it."""
    ticks = [round(tick) for tick in _ticks(0, max(last, 1), max(2, columns // 12))]
    rule, names = ["─"] * columns, [" "] * (columns + margin + 1)
    free = 0
    for tick in dict.fromkeys(ticks):
        at, name = _column_of(tick, last, columns), f"{tick:,}"
        first = min(max(at + margin + 1 - len(name) // 2, 0), len(names) - len(name))
        if first < free:
            continue
        rule[at] = "┬"
        names[first : first + len(name)] = name
        free = first + len(name) + 2
    title = "step"  # at the end of the axis, where there is room
    if free + len(title) <= len(names):
        names[len(names) - len(title) :] = title
    return [Text(" " * margin + "└" + "".join(rule), style="dim"), Text("".join(names), style="dim")]


def _progress(history: RunHistory, width: int, idle_seconds: float) -> Group:
    """How far the run is: a bar, and the time that was spent and is left."""
    step, steps = int(history.step.get("step", history.begin.get("step", 0))), int(history.begin.get("steps", 0))
    done = step / steps if steps else 0.0
    running = not history.end and bool(history.step)
    elapsed = float(history.step.get("seconds", 0.0)) + (idle_seconds if running else 0.0)
    words = [f"step {step:,} of {steps:,}"]
    if history.step:
        words.append(duration(elapsed))
    if running and step < steps:
        words.append(f"about {roughly(max(float(history.step.get('eta', 0.0)) - idle_seconds, 0.0))} left")
    elif history.end:
        words.append("finished" if history.end.get("finished") else "stopped")
    if len("   ".join(words)) + 6 <= width:
        words[0] += f", {math.floor(done * 100)} %"
    full = round(done * width)
    bar = Text.assemble(("━" * full, "bold"), ("─" * (width - full), "dim"))
    text = Text("   ".join(words))
    text.truncate(width, overflow="ellipsis")
    return Group(bar, text)


def _numbers(history: RunHistory) -> list[tuple[str, str]]:
    """The newest numbers by name."""
    step, epoch = history.step, int(history.begin.get("steps_per_epoch", 0))
    if not step:
        return []
    units = f"{history.begin.get('unit', 'unit')}s"
    numbers = [(name.replace("_", " "), number(value)) for name, value in step.get("terms", {}).items()]
    numbers.append(("learning rate", power(step["lr"])))
    if "grad_norm" in step:
        numbers.append(("gradient norm", number(step["grad_norm"])))
    numbers.append((f"{units} a second", f"{step['units_per_second']:,.0f}"))
    if "mfu" in step:
        numbers.append(("MFU", f"{step['mfu']:.1%}"))
    numbers.append((f"{units} read", amount(step["units"])))
    if epoch:
        numbers.append(("epochs", f"{step['step'] / epoch:.2f}"))
    return numbers


def _facts(history: RunHistory, width: int, rows: int) -> list[RenderableType]:
    """Each number under its name, as many side by side as fit: a table for each row."""
    numbers, count = _numbers(history), max(2, width // 18)
    tables: list[RenderableType] = []
    for first in range(0, min(len(numbers), rows * count), count):
        table = Table.grid(padding=(0, 1, 0, 0))
        for _ in range(count):
            table.add_column(width=width // count - 1, no_wrap=True, overflow="ellipsis")
        row = numbers[first : first + count]
        table.add_row(*(Text(name, style="dim") for name, _ in row))
        table.add_row(*(Text(value) for _, value in row))
        tables.append(table)
    return tables


def _evaluations(history: RunHistory, width: int) -> Table:
    """The newest held-out measures, and the best."""
    rows = {"newest": history.evaluation, "best": history.best or history.evaluation}
    names = list(history.evaluation["metrics"])
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    table.add_column(Text.assemble(("■", HELD_OUT), (" held out", "dim")), no_wrap=True)
    table.add_column(Text("step", style="dim"), justify="right", no_wrap=True)
    columns_left = width - 10 - 2 - max(len(f"{row['step']:,}") for row in (*rows.values(), {"step": 1000}))
    for name in names:
        title = name.replace("_", " ")
        columns_left -= max(len(title), 7) + 2
        if columns_left < 0:
            break
        table.add_column(Text(title, style="dim"), justify="right", no_wrap=True)
    shown = names[: len(table.columns) - 2]
    for label, event in rows.items():
        cells = [number(event["metrics"][name]) if name in event["metrics"] else "" for name in shown]
        table.add_row(label, f"{event['step']:,}", *cells)
    return table


def _sample(event: Event, width: int, max_lines: int) -> list[RenderableType]:
    """What the model wrote, in so many lines that the picture keeps its height."""
    title = Text(f"The model writes, at step {int(event['step']):,}", style="dim")
    lines: list[Text] = []
    for line in str(event["text"]).splitlines():
        if line.strip():
            lines += Text(printable(line)).wrap(Console(width=width), width)
    if len(lines) > max_lines:
        lines = lines[:max_lines]
        lines[-1].append(" …")
        lines[-1].truncate(width, overflow="ellipsis")
    return [title, *lines, *(Text() for _ in range(max_lines - len(lines)))]


# ---- the same in words


def line_of(event: Event, unit: str = "unit") -> str | None:
    """An event in one line, for a file or a pipe; None for one that says nothing.

    unit   what the run counts, as its first event has it
    """
    kind, at = event.get("event"), f"step {int(event.get('step', 0)):,}"
    if kind == "begin":
        words = f"{event['family']}, {amount(event['parameters'])} parameters, {event['objective']}, {_place(event)}"
        words += f": {event['steps']:,} steps, {amount(event['examples'])} examples"
        return words + (f". Going on from {at}." if event["step"] else "")
    if kind == "step":
        parts = [f"{at} of {int(event['steps']):,}", f"loss {number(event['loss'])}"]
        parts.append(f"lr {power(event['lr'])}")
        parts += [f"grad norm {number(event['grad_norm'])}"] if "grad_norm" in event else []
        parts += [f"{event['units_per_second']:,.0f} {unit}s/s", f"{duration(event['eta'])} left"]
        return "  ".join(parts)
    if kind == "evaluation":
        return f"{at}  held out: {measures(event['metrics'])}" + ("  (best)" if event.get("best") else "")
    if kind == "sample":
        return f"{at}  the model writes: " + " ".join(printable(str(event["text"])).split())
    return str(event["text"]) if kind == "note" else None


def measures(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in metrics.items())


def printable(text: str) -> str:
    """Without what could move a terminal's cursor; what is no whole character yet stays a �."""
    return "".join(char if char.isprintable() or char.isspace() else "�" for char in text)


def number(value: float) -> str:
    """Three places where they say something."""
    size = abs(value)
    if not math.isfinite(value) or (0 < size < 1e-3) or size >= 1e6:
        return f"{value:.3g}"
    return f"{value:,.1f}" if size >= 100 else f"{value:.3f}"


def power(value: float) -> str:
    """A rate: 3.0e-4."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def amount(count: float) -> str:
    """A count: 950, 12,300, 124.4 M."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if count >= size:
            return f"{count / size:,.1f} {letter}"
    return f"{count:,.0f}"


def duration(seconds: float) -> str:
    """A time in its two largest units: 42 s, 3 min 20 s, 2 h 05 min, 3 d 4 h."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    minutes, rest = divmod(rounded, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def roughly(seconds: float) -> str:
    """A time as an estimate is told: minutes without their seconds."""
    return f"{round(seconds / 60)} min" if 60 <= seconds < 3570 else duration(seconds)
