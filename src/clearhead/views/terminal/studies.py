"""Studies as a terminal shows them: a table under the model's name, and sentences that say what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from clearhead.views.terminal.elements import COLOURS, bar


def draw_sentiment(finding: Any, width: int) -> Iterator[RenderableType]:
    table = _table(finding.model, "features", "sentences", f"{finding.folds} folds", "standardised", "test file", "")
    table.add_row("commoner label", "", _percent(finding.majority), "", _percent(finding.majority_test), "")
    for row in finding.rows:
        accuracy = row.test if row.test is not None else row.accuracy
        cells = (_percent(row.accuracy, row.std), _percent(row.standardised), _percent(row.test))
        table.add_row(Text(row.features), f"{row.sentences:,}", *cells, _bar(accuracy or 0.0))
    yield table
    spent = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in finding.seconds.items())
    disk = " (the vectors were on disk)" if finding.cached else ""
    yield Text(f"Frozen encoder; logistic regression on its vectors, cross-validated. {spent}{disk}.", "dim")


def draw_features(finding: Any, width: int) -> Iterator[RenderableType]:
    names = [model.name for model in finding.models]
    first = ("model",) if len(names) > 1 else ()
    title = ", ".join(names)
    table = _table(title, *first, "features", "width", "F1", "precision", "recall", "words right", "")
    best = max(row.f1 for row in finding.rows) or 1.0
    said = ""
    for row in finding.rows:
        cells = map(_percent, (row.f1, row.precision, row.recall, row.accuracy))
        name = Text(row.features, style="bold" if row.f1 == best else "")
        own = [Text(row.model if row.model != said else "")] if first else []
        table.add_row(*own, name, f"{row.width:,}", *cells, _bar(row.f1 / best))
        said = row.model
    yield table
    for model in (model for model in finding.models if model.shares):
        shares = " + ".join(f"{share:.2f} · {n or 'words'}" for n, share in enumerate(model.shares))
        yield Text(f"{model.name} mixed for the task, by layers: {shares}.", "dim")
    reading = sum(model.seconds for model in finding.models)
    yield Text(
        f"Names in {finding.test_words:,} words, learned from {finding.train_words:,}; a linear tagger on each word's "
        f"frozen vector (not a BiLSTM). Calling no word a name gets {finding.outside:.1%} of words and no name. "
        f"Reading took {reading:.0f} s, fitting {sum(row.seconds for row in finding.rows):.0f} s.",
        "dim",
    )


def draw_similarity_study(finding: Any, width: int) -> Iterator[RenderableType]:
    more = ("same words",) if finding.built_in else ()
    table = _table(finding.model, "vectors", "alike", "unlike", "gap", "AUC", "Spearman", "any two", *more)
    for row in finding.rows:
        numbers = [row.alike, row.unlike, row.gap, row.auc, row.spearman, row.random, row.same_words]
        table.add_row(Text(row.vectors), *(f"{number:.2f}" for number in numbers if number is not None))
    yield table
    yield Text(
        f"Mean cosines of {finding.pairs} pairs. AUC: the probability that a pair that is alike has a higher cosine "
        "than one that is not; 0.50 is a guess.",
        "dim",
    )
    yield Text(finding.conclusion)


def _table(model: str, *columns: str) -> Table:
    """Under the model's name: words on the left, numbers on the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", title=Text(model, "bold"),
                  title_justify="left", title_style="")  # fmt: skip
    for n, name in enumerate(columns):
        table.add_column(name, justify="right" if n and name else "left")
    return table


def _percent(value: float | None, std: float | None = None) -> str:
    if value is None:
        return "–"
    return f"{value:.1%}" if std is None else f"{value:.1%} ± {100 * std:.1f}"


def _bar(fraction: float) -> Text:
    return Text(bar(fraction, 10), style=COLOURS["value"])
