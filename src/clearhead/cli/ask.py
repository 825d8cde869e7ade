"""clearhead ask: a model looks passages up and answers, and shows what it has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.loading import LoadOptions
from clearhead.cli.options import with_group
from clearhead.cli.style import MODEL_HELP, note, out, print_json, waiting
from clearhead.cli.texts import STANDARD_INPUT, check_argument, standard_input_lines
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.pipeline.ask import RetrievedAnswer


@with_group("loading")
def command(
    *,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="Or '-': a question on each line of the input.")],
    store: Annotated[
        str | None, typer.Option("--store", "-s", help="A folder of `clearhead index build`, or a store that ships.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help=f"A RETRO. {MODEL_HELP} None ships yet.")] = None,
    neighbors: Annotated[int | None, typer.Option(min=1, help="How many passages it looks at; default: 2.")] = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="From the weights alone: nothing is looked up.")] = False,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="The longest answer.")] = 40,
    num_beams: Annotated[int, typer.Option(min=1, help="Beam search; 1: the likeliest token each time.")] = 1,
    loading: LoadOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer and its passages as JSON.")] = False,
) -> None:
    """Ask a model that looks passages up (RETRO): its answer, and the passages, with scores and where they are from.

    The facts are in the store, not in the model. Copy a store, change a passage,
    ask again: clearhead index copy facts mine.

    Examples:

      clearhead ask "What is the capital of Chad?" --store facts -m runs/retrofit

      clearhead ask "How many airports does Peru have?" --store facts -m runs/retrofit --json
    """
    questions = _read(question)
    if model is None:
        raise InputError(
            "No RETRO ships with Clearhead yet. Train one (clearhead train retrofit data.train=texts/ "
            "objective.store=STORE) and name it with --model runs/retrofit."
        )
    if store is None and not no_store:
        raise InputError(
            "There is no store to look in. Build one (clearhead index build STORE texts/) and name it with --store; or "
            "ask the weights alone: --no-store."
        )
    pipe = loading.load(model)
    options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "num_beams": num_beams}
    where = None if no_store else store
    if where is not None:
        options["neighbors"] = neighbors
        with waiting("Opening the store …"):
            from clearhead.pipeline.retrieval import open_store

            opened = open_store(where)
    with waiting("Reading …"):
        answers = pipe.ask(questions, store=None if where is None else opened, **options)
    if as_json:
        found = [_plain(model, where, *pair) for pair in zip(questions, answers, strict=True)]
        print_json(found if question == STANDARD_INPUT else found[0])
        return
    for asked, answer in zip(questions, answers, strict=True):
        _draw(asked, answer, len(answers) > 1)


def _read(question: str) -> list[str]:
    return standard_input_lines() if question == STANDARD_INPUT else [check_argument(question, "question")]


def _plain(model: str, store: str | None, question: str, answer: RetrievedAnswer) -> dict[str, Any]:
    passages = [
        {
            name: getattr(passage, name, None)
            for name in ("text", "continuation", "document", "position", "score", "source")
        }
        for passage in answer.passages
    ]
    return {"model": model, "store": store, "question": question, "answer": answer.answer, "passages": passages}


def _draw(question: str, answer: RetrievedAnswer, many: bool) -> None:
    from clearhead.views.terminal.results import draw_hits

    if many:
        out().print(question, style="dim", markup=False)
    out().print(answer.answer or "(it wrote nothing)", style="bold", markup=False)
    if not answer.passages:
        note("Nothing was looked up.")
    rows = [(hit.score, f"{hit.document} [{hit.position}]", hit.text) for hit in answer.passages]
    for line in draw_hits(rows, out().width):
        out().print(line)
