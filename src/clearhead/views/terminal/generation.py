"""Next tokens, sampling, beam search and the KV cache, as a terminal shows them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.explain.next_token import NextTokens
from clearhead.views.terminal.elements import ACCENT, BAR_WIDTH, COLOURS, bar, footnote, heading, one_line, show_spaces


def print_next_tokens(
    finding: NextTokens, console: Console, *, numbered: bool = False, added: int = 0, first: bool = True
) -> None:
    """The text so far, and under it what may come next.

    numbered   with numbers to choose by          added   how many characters at the end were chosen on the way
    first      with a title, and how to read it; the same figure further on goes without
    """
    for part in draw_next_tokens(finding, console.width, numbered, added, first):
        console.print(part)


def draw_next_tokens(
    finding: NextTokens, width: int, numbered: bool = False, added: int = 0, first: bool = True
) -> Iterator[RenderableType]:
    edge = len(finding.text) - added
    head = (
        Text.assemble((finding.model, "bold"), "  next-token probabilities: what may come next\n") if first else Text()
    )
    if finding.source is not None:
        head.append(f"{one_line(finding.source)} → ", style="dim")
    head.append(one_line(finding.text[:edge]), style="dim")
    head.append(one_line(finding.text[edge:]), style="bold")
    head.append("▁", style=COLOURS["value"])
    yield head
    yield _ranked(finding, width, numbered)
    says = (
        f"These {len(finding.candidates)} hold {finding.shown:.1%} of all probability. Entropy {finding.entropy:.1f} "
        f"bits: as unsure as a fair choice among {finding.as_many:,.0f} of the {finding.vocabulary:,} tokens."
    )
    short = f"{finding.shown:.1%} of all probability; entropy {finding.entropy:.1f} bits"
    yield Text(f"Bars: against the likeliest. {says}\n" if first else f"{short}\n", style="dim")


def _ranked(finding: NextTokens, width: int, numbered: bool) -> Table:
    """A row each: number, token, probability, bar. The bar takes what is left of the width."""
    words = [show_spaces(candidate.token) for candidate in finding.candidates]
    percentages = [f"{candidate.probability:.2%}" for candidate in finding.candidates]
    number = len(str(len(words))) + 2 if numbered else 0
    longest = max(6, min(max(map(cell_len, words)), width // 2 - number))
    bar_width = min(BAR_WIDTH * 2, width - number - longest - 2 - max(map(len, percentages)) - 2)
    table = Table.grid(padding=(0, 2, 0, 0))
    if numbered:
        table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", width=longest)
    table.add_column(justify="right", no_wrap=True)
    if bar_width >= 4:
        table.add_column(no_wrap=True)
    best = finding.candidates[0].probability or 1.0
    for n, (word, percentage, candidate) in enumerate(
        zip(words, percentages, finding.candidates, strict=True), start=1
    ):
        row: list[RenderableType] = [str(n)] if numbered else []
        row += [Text(word), percentage]
        if bar_width >= 4:
            row.append(Text(bar(candidate.probability / best, bar_width), style=COLOURS["value"]))
        table.add_row(*row)
    return table


def draw_sampling(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding)
    yield Text(f"{one_line(finding.source)} → " if finding.source else one_line(finding.text), style="dim")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("token", no_wrap=True)
    for name in ("before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    highest = max(candidate.after for candidate in finding.candidates) or 1.0
    for candidate in finding.candidates[:16]:
        probability_bar = Text(
            bar(candidate.after / highest, max(4, min(BAR_WIDTH, width - 44))), style=COLOURS["value"]
        )
        after = f"{candidate.after:.2%}" if candidate.after else "cut"
        table.add_row(
            Text(show_spaces(candidate.token), "" if candidate.after else "dim"),
            f"{candidate.before:.2%}",
            after,
            probability_bar,
        )
    yield table
    for stage in finding.stages:
        cut = (
            ""
            if stage.name == "temperature"
            else f" cuts {stage.removed_mass:.1%} of the probability, {stage.remaining:,} tokens left"
        )
        yield Text(f"{stage.name} {stage.value:g}{cut}", style="dim")
    yield footnote("Drawn, by seed: " + " ".join(f"{draw.seed}:{show_spaces(draw.token)}" for draw in finding.draws))


def draw_beams(finding: Any, width: int) -> Iterator[RenderableType]:
    greedy = finding.beams == 1
    if greedy:
        yield heading(finding, "one beam, which is greedy decoding: what was taken, and what stood next in line")
    else:
        yield heading(finding)
    if finding.source or finding.text:
        yield Text(one_line(finding.source or finding.text) + (" →" if finding.source else ""), style="dim")
    best = set(finding.answers[0].nodes) if finding.answers else set()
    for step in range(1, finding.steps + 1):
        line = Text(f"{step:>3}  ", style="dim")
        for node in (node for node in finding.nodes if node.step == step):
            percentage = f" {math.exp(node.log_prob):.0%}"
            style = f"bold {ACCENT}" if node.id in best else "dim strike" if node.status == "dropped" else ""
            end = "■" if node.status == "finished" else ""
            part = Text.assemble((show_spaces(node.token), style), (percentage + end, "dim"), "  ")
            if line.cell_len + part.cell_len > width:
                break
            line += part
        yield line
    yield Text()
    for answer in finding.answers:
        score = "" if answer.score is None else f"{answer.score:8.3f}  "
        line = Text.assemble((f"{answer.rank:>3}  {score}", "dim"), one_line(answer.text))
        line.truncate(width, overflow="ellipsis")
        yield line
    yield footnote(
        "A line for each new token: its candidates, the likeliest text first; struck out: dropped; ■: a text ends."
        + ("" if greedy else f" Answers by log-probability / length ^ {finding.length_penalty:g}.")
    )


def draw_caching(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding)
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("writes", no_wrap=True, max_width=16, overflow="ellipsis")
    for name in ("has read", "computed", "without it", "with it"):
        table.add_column(name, justify="right", no_wrap=True)
    bar_width = max(0, min(BAR_WIDTH, width - 62))
    table.add_column("")
    highest = max(step.macs_without_cache for step in finding.steps)
    for step in finding.steps:
        filled, rest = bar(step.macs / highest, bar_width), round(step.macs_without_cache / highest * bar_width)
        line = Text.assemble((filled, COLOURS["key"]), ("░" * max(0, rest - cell_len(filled)), "dim"))
        numbers = (str(step.length), str(step.computed), _amount(step.macs_without_cache), _amount(step.macs))
        table.add_row(show_spaces(step.token), *numbers, line)
    yield table
    cached = finding.steps[-1].cached_values
    yield footnote(
        "Multiply-adds, counted. Without a cache every step computes keys and values of all tokens again; with it, "
        f"only of the new one. It saves {finding.saved:.0%}, and keeps {cached:,} numbers "
        f"({cached * finding.bytes_per_value / 2**20:.2g} MiB)."
    )


def _amount(value: float) -> str:
    """A large number in three places: 12.3 M."""
    for size, sign in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " K")):
        if value >= size:
            return f"{value / size:.{0 if value >= 99.5 * size else 1 if value >= 9.95 * size else 2}f}{sign}"
    return f"{value:g}"
