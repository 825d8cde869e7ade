"""clearhead evaluate: how good a saved model is on new test data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from clearhead.cli.progress import progress
from clearhead.cli.style import MODEL_HELP, open_pipeline, out, print_json, table_of, waiting


def command(
    model: Annotated[str, typer.Argument(help=f"{MODEL_HELP} Or the folder of a run.", metavar="MODEL")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="Change what its recipe says: data.columns.label=category.", metavar="KEY=VALUE …"),
    ] = None,
    test: Annotated[
        str | None, typer.Option(help="The test data: a file, a folder, a pattern, or a table as in a recipe.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="By which recipe; default: the model's own, or what its head is made for.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure a saved model on new test data, as training did at its end.

    The folder of a run, or of a shipped model, knows its recipe: which
    metrics, which columns, how long. Of any other model the head decides:
    classes, tags, answers, translations, next or hidden words.

    Examples:

      clearhead evaluate runs/mine --test new.csv

      clearhead evaluate sentiment --test new.tsv data.columns='{text: 0, label: 1}'

      clearhead evaluate translate-en-de --test '{source: a.en, target: a.de}'

      clearhead evaluate some/folder --test new.txt --recipe language-model
    """
    from clearhead.errors import InputError
    from clearhead.train.recipe_files import parse_value

    if test is None:
        raise InputError("Say which data: --test new.csv")
    where = parse_value(test, "--test")
    pipe = open_pipeline(model, device=device)
    with waiting("Getting ready …"):
        from clearhead.train import evaluate
        from clearhead.views.training import number
    with progress() as watch:
        result = evaluate(pipe, where, recipe=recipe, overrides=settings or (), watch=watch)
    if as_json:
        print_json(asdict(result))
        return
    rows = {name.replace("_", " "): number(value) for name, value in result.metrics.items()}
    out().print(table_of({"objective": result.objective, "examples": f"{result.examples:,}"} | rows))
