"""clearhead translate: texts in another language."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from clearhead.cli import writing
from clearhead.cli.batch_job import BatchJob
from clearhead.cli.loading import TRANSLATOR, LoadOptions
from clearhead.cli.options import SourceLanguage, TargetLanguage, with_fields, with_group
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
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = TRANSLATOR,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    files: FileArguments,
    options: dict[str, Any],
    loading: LoadOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Translate texts with an encoder–decoder.

    Three translators ship: translate-en-de, translate-en-fr and
    translate-en-zh, from English, for short and simple sentences. Train one of
    your own with

      clearhead train translation data.train.source=a.en data.train.target=a.de

    Examples:

      clearhead translate "Two dogs are playing in the snow."

      clearhead translate "Two dogs are playing." -m translate-en-fr --num-beams 5

      clearhead translate --file captions.csv --column english --out german.csv

      clearhead translate "Hello" -m facebook/m2m100_418M --src-lang en --tgt-lang zh
    """
    writing.check_options(options)
    rows = read_texts(texts, files, "translate", example='"Two dogs are playing."')
    check_out(files, rows)
    pipe = loading.load(model, TRANSLATOR)
    writing.check_options(options, pipe.model.generation)
    given_options = {name: value for name, value in options.items() if value is not None}
    given_options |= {name: code for name, code in (("src_lang", src_lang), ("tgt_lang", tgt_lang)) if code is not None}
    predict = writing.writer(pipe.translate, given_options)
    job = BatchJob("translate", "Translating", model, pipe, rows, predict, list, given_options, writing.FIRST_CHUNK)
    writing.run(job, files, as_json, "translation", "translations")
