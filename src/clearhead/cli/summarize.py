"""clearhead summarize: a long text in few words."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from clearhead.cli import writing
from clearhead.cli.batch_job import BatchJob
from clearhead.cli.loading import LoadOptions, named
from clearhead.cli.options import with_fields, with_group
from clearhead.cli.predictions import check_out
from clearhead.cli.style import MODEL_HELP
from clearhead.cli.texts import TEXTS_HELP, FileArguments, read_texts
from clearhead.generation_options import COMMAND_LINE, GROUPS


@with_group("loading")
@with_group("files")
@with_fields(COMMAND_LINE, GROUPS)
def command(
    *,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT …", help=TEXTS_HELP)] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} None ships.")] = None,
    files: FileArguments,
    options: dict[str, Any],
    loading: LoadOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Sum up texts with an encoder–decoder that was trained for it, such as BART, PEGASUS or T5.

    Train one of your own on pairs of texts and summaries: JSON lines with
    source and target, in the recipe `translation` with model.start=….

    Examples:

      clearhead summarize "$(cat article.txt)" -m facebook/bart-large-cnn

      clearhead summarize --file articles.jsonl --column body --out short.jsonl -m google/pegasus-xsum
    """
    data = "data.train=pairs.jsonl model.start=facebook/bart-base"
    name = named(model, "model for summaries", "translation", data, "facebook/bart-large-cnn")
    writing.check_options(options)
    rows = read_texts(texts, files, "summarize", example='"$(cat article.txt)"')
    check_out(files, rows)
    pipe = loading.load(name)
    writing.check_options(options, pipe.model.generation)
    given_options = {key: value for key, value in options.items() if value is not None}
    predict = writing.writer(pipe.summarize, given_options)
    job = BatchJob("summarize", "Summing up", name, pipe, rows, predict, list, given_options, writing.FIRST_CHUNK)
    writing.run(job, files, as_json, "summary", "summaries")
