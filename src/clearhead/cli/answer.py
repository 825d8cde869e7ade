"""clearhead answer: the place in a passage that answers a question."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.batch_job import BatchJob, Read
from clearhead.cli.loading import LoadOptions, named
from clearhead.cli.options import with_group
from clearhead.cli.predictions import check_out
from clearhead.cli.style import MODEL_HELP, out, print_json, waiting
from clearhead.cli.texts import STANDARD_INPUT, FileArguments, check_argument, read_texts
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.cli.passages import Passage
    from clearhead.pipeline import Answer


@with_group("loading")
@with_group("files")
def command(
    *,
    question: Annotated[
        str | None, typer.Argument(metavar="QUESTION", help="Left out, --file has a question in each row.")
    ] = None,
    passages: Annotated[
        list[str] | None,
        typer.Argument(metavar="PASSAGE …", help="Where the answer stands. Several: the best answer of all; '-' reads "
                       "lines of standard input, each a passage."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} None ships.")] = None,
    top_k: Annotated[int, typer.Option(min=1, help="How many answers.")] = 1,
    max_answer_len: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens.")] = 15,
    may_be_none: Annotated[
        bool | None,
        typer.Option("--may-be-none/--always-answer", help="Whether there may be none; default: as trained."),
    ] = None,
    files: FileArguments,
    passage_column: Annotated[str | None, typer.Option(help="Questions in --file: the passage's column.")] = None,
    loading: LoadOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print answers, scores and places as JSON.")] = False,
) -> None:  # fmt: skip
    """Find the answer to a question in a passage: the best span of its words.

    With a QUESTION, --file is a text file, a table (--column) or a folder to
    find the answer in. Without one, each row of --file has a question and a
    passage. Long passages are read in windows. Train a model of your own with

      clearhead train question-answering data.train=train-v1.1.json

    Examples:

      clearhead answer "Who wrote it?" "Ada wrote the first program." -m runs/question-answering/model

      clearhead answer "How do I resume a run?" --file docs/ --top-k 3 -m deepset/tinyroberta-squad2

      clearhead answer --file squad.jsonl --column question --passage-column context --out answers.csv -m …
    """
    name = named(
        model, "model for answers", "question-answering", "data.train=train-v1.1.json", "deepset/tinyroberta-squad2"
    )
    options: dict[str, Any] = {
        "top_k": top_k,
        "max_answer_len": max_answer_len,
        "handle_impossible_answer": may_be_none,
    }
    if question is None:
        _answer_rows(name, files, passage_column, options, loading, as_json)
        return
    contexts = _read_contexts(question, passages, files, passage_column)
    pipe = loading.load(name)
    with waiting("Reading …"):
        answers = _listed(pipe.answer(question, [passage.text for passage in contexts], **options))
    if as_json:
        print_json({"model": name, "question": question} | _full([_plain(answer, contexts) for answer in answers]))
        return
    for answer in answers:
        _draw(answer, contexts[answer.passage].text, contexts[answer.passage].place if len(contexts) > 1 else "")


def _read_contexts(
    question: str, passages: list[str] | None, files: FileArguments, passage_column: str | None
) -> list[Passage]:
    """Where to look for the answer to one question."""
    from clearhead.cli.passages import Passage, read_passages

    check_argument(question, "question")
    if files.out is not None or files.overwrite or passage_column is not None:
        option = "--passage-column" if passage_column is not None else "--out"
        raise InputError(f"{option} is for a file with a question in each row: leave QUESTION out.")
    if passages and files.file is not None:
        raise InputError("Give the passage or --file, not both.")
    if files.file is not None:
        return read_passages(str(files.file), files.column, files.encoding, whole_paragraphs=True)
    if not passages:
        raise InputError(
            'There is no passage to find the answer in: clearhead answer "Who sat?" "A cat sat." '
            "(or - for lines of standard input, or --file)."
        )
    if files.column is not None:
        raise InputError("--column names a column of a file: it goes with --file.")
    if passages == [STANDARD_INPUT]:
        return read_passages(STANDARD_INPUT, None, files.encoding)
    if files.encoding is not None:
        raise InputError("--encoding says how a file or standard input is written: it goes with --file or -.")
    return [Passage(check_argument(passage, "passage"), "passage", n) for n, passage in enumerate(passages, 1)]


def _answer_rows(
    name: str,
    files: FileArguments,
    passage_column: str | None,
    options: dict[str, Any],
    loading: LoadOptions,
    as_json: bool,
) -> None:
    """A question and a passage in each row of a file."""
    if files.file is None:
        raise InputError('There is no question. Ask: clearhead answer "Who sat?" "A cat sat."; or give --file.')
    rows = read_texts(
        None, files, "answer", meanings=("question", "context"), second=("--passage-column", passage_column)
    )
    check_out(files, rows)
    pipe = loading.load(name)

    def predict(read: list[Read], _: list[int]) -> list[Any]:
        questions, contexts = ([pair[n] for pair in read] for n in (0, 1))
        return [_listed(answers) for answers in pipe.answer(questions, contexts, **options)]

    def show(read: Read, answers: list[Answer], many: bool) -> None:
        out().print(read[0], style="dim", markup=False)
        for answer in answers:
            _draw(answer, read[1])

    def plain(answers: list[Answer]) -> list[dict[str, Any]]:
        return [_plain(pair) for pair in answers]

    job = BatchJob("answer", "Answering", name, pipe, rows, predict, plain, options)
    job.run(files, as_json, _full if options["top_k"] > 1 else _best, _full, show)


def _listed(answers: Any) -> list[Answer]:
    return answers if isinstance(answers, list) else [answers]


def _plain(answer: Answer, passages: list[Passage] | None = None) -> dict[str, Any]:
    row = asdict(answer)
    number = row.pop("passage")
    if passages is None:
        return row
    passage = passages[number]
    return row | {"passage": number, "context": passage.text, "source": passage.source, "line": passage.line}


def _best(answers: list[dict[str, Any]]) -> dict[str, Any]:
    best = dict(answers[0])
    return {"answer": best.pop("text")} | best


def _full(answers: list[dict[str, Any]]) -> dict[str, Any]:
    return _best(answers) | {"answers": answers}


def _draw(answer: Answer, passage: str, place: str = "") -> None:
    from clearhead.views.terminal.results import draw_answer

    out().print(draw_answer(answer, passage, place))
