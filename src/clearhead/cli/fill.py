"""clearhead fill: guess a hidden word."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from clearhead.cli.style import MODEL_HELP, open_model, out, print_json


def command(
    text: Annotated[str, typer.Argument(help="A text with [MASK] where a word is hidden.")],
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = "google-bert/bert-base-uncased",
    top_k: Annotated[int, typer.Option(help="How many guesses for each gap.")] = 5,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Guess the words behind [MASK], with a masked language model such as BERT.

    Example:

      clearhead fill "The capital of France is [MASK]."
    """
    pipe = open_model(model, device=device, revision=revision)
    gaps = pipe.fill(text, top_k=top_k)
    if as_json:
        print_json({"model": model, "text": text, "gaps": [[asdict(g) for g in gap] for gap in gaps]})
        return
    from clearhead.views.terminal.elements import candidate_table

    for n, gap in enumerate(gaps, start=1):
        if len(gaps) > 1:
            out().print(f"gap {n}", style="dim")
        out().print(candidate_table([(g.token, g.probability) for g in gap]))
        out().print(gap[0].text, style="italic", markup=False)
