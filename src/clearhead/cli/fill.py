"""clearhead fill: guess hidden words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.batch_job import BatchJob, Read
from clearhead.cli.loading import MASKED, LoadOptions
from clearhead.cli.options import with_group
from clearhead.cli.predictions import check_out
from clearhead.cli.style import MODEL_HELP, out
from clearhead.cli.texts import TEXTS_HELP, FileArguments, TextRows, read_texts
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.pipeline import MaskFill, TextPipeline


@with_group("loading")
@with_group("files")
def command(
    *,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT …", help=f"With [MASK] where a word is hidden. {TEXTS_HELP}")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = MASKED,
    top_k: Annotated[int, typer.Option(min=1, help="How many guesses for each gap.")] = 5,
    files: FileArguments,
    loading: LoadOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Guess the words behind [MASK], with a masked language model such as BERT.

    Examples:

      clearhead fill "The [MASK] sat on his throne."

      clearhead fill "The capital of France is [MASK]." -m google-bert/bert-base-uncased

      clearhead fill --file gaps.txt --out filled.csv
    """
    rows = read_texts(texts, files, "fill", example='"The cat [MASK] on the mat."')
    check_out(files, rows)
    pipe = loading.load(model, fallback=MASKED)

    _check_gaps(rows, pipe)

    def predict(read: list[Read], _: list[int]) -> list[Any]:
        return pipe.fill([text for (text,) in read], top_k=top_k)

    job = BatchJob("fill", "Filling", model, pipe, rows, predict, _plain, {"top_k": top_k})
    job.run(files, as_json, _cells, lambda gaps: {"gaps": gaps}, _show)


def _check_gaps(rows: TextRows, pipe: TextPipeline) -> None:
    """Before the first is filled: whether all of them have something to fill."""
    mask = pipe.tokenizer.mask_token
    for number, read in enumerate(rows.inputs(), 1):
        if rows.count > 1 and mask is not None and read and mask not in read[0]:
            raise InputError(f"There is no gap in row {number} of {rows.name}. Write {mask} where a word is hidden.")


def _plain(gaps: list[list[MaskFill]]) -> list[list[dict[str, Any]]]:
    return [[asdict(guess) for guess in gap] for gap in gaps]


def _cells(gaps: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The likeliest word of each gap, and all guesses."""
    return {"token": " ".join(gap[0]["token"] for gap in gaps), "gaps": gaps}


def _show(read: Read, gaps: list[list[MaskFill]], many: bool) -> None:
    from clearhead.views.terminal.elements import candidate_table

    if many:
        out().print(read[0], style="dim", markup=False)
    for n, gap in enumerate(gaps, start=1):
        if len(gaps) > 1:
            out().print(f"gap {n}", style="dim")
        out().print(candidate_table([(guess.token, guess.probability) for guess in gap]))
        out().print(gap[0].text, style="italic", markup=False)
