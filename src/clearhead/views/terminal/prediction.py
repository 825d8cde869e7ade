"""What a head answers: labels, hidden words, spans, as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from clearhead.views.terminal.elements import candidate_table, fit, footnote, heading, unit_names

_LABELS = 10  # of a classifier, before the rest is summed up


def draw_prediction(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, finding.task)
    names = unit_names(finding.tokens)
    for answer in finding.answers:
        best = answer.choices[0]
        if answer.kind in ("token-label", "replaced"):
            yield Text.assemble(
                f"{fit(names[answer.position], 16)} ", (f"{best.probability:7.1%}  ", "dim"), best.label
            )
            continue
        if answer.position is not None:
            yield Text(" ".join(names[max(0, answer.position - 4) : answer.position + 5]), style="dim")
        if answer.kind == "number":
            yield from (Text(f"{choice.label}  {choice.score:.4f}") for choice in answer.choices)
        else:
            shown = answer.choices[:_LABELS] if answer.kind == "label" else answer.choices
            guesses = [(choice.label, choice.probability) for choice in shown]
            yield candidate_table(guesses, tokens=answer.kind == "word")
            if rest := answer.choices[len(shown) :]:
                yield footnote(f"And {len(rest)} more, {sum(choice.probability for choice in rest):.1%} together.")
