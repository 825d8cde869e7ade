"""clearhead tag: the entities of a text, or the tag of every word."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from clearhead.cli.batch_job import BatchJob, Read
from clearhead.cli.loading import LoadOptions, named
from clearhead.cli.options import with_group
from clearhead.cli.predictions import check_out
from clearhead.cli.style import MODEL_HELP, out
from clearhead.cli.texts import TEXTS_HELP, FileArguments, read_texts


@with_group("loading")
@with_group("files")
def command(
    *,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT …", help=TEXTS_HELP)] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} None ships.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Every word with its tag, not the entities alone.")] = False,
    files: FileArguments,
    loading: LoadOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print labels, scores and places as JSON.")] = False,
) -> None:
    """Find the names in a text, or whatever a model was trained to tag.

    A word has the tag of its first piece; words of one label in a row are one
    entity (B-PER, I-PER). Train a tagger of your own with

      clearhead train tagging data.train=train.conll

    Examples:

      clearhead tag "Ada Lovelace was born in London." -m runs/tagging/model

      clearhead tag "Ada Lovelace was born in London." -m dslim/bert-base-NER

      clearhead tag --file articles.jsonl --column body --out names.jsonl -m runs/tagging/model
    """
    name = named(model, "tagger", "tagging", "data.train=train.conll", "dslim/bert-base-NER")
    rows = read_texts(texts, files, "tag", example='"Ada Lovelace was born in London."')
    check_out(files, rows)
    pipe = loading.load(name)

    def predict(read: list[Read], _: list[int]) -> list[Any]:
        return pipe.tag([text for (text,) in read], words=words)

    def cells(entities: list[dict[str, Any]]) -> dict[str, Any]:
        return {"words" if words else "entities": entities}

    def show(read: Read, entities: list[Any], many: bool) -> None:
        from clearhead.views.terminal.results import draw_entities, draw_words

        out().print(draw_words(entities) if words else draw_entities(read[0], entities, out().is_terminal))
        if many:
            out().print()

    job = BatchJob("tag", "Tagging", name, pipe, rows, predict, _plain, {"words": words})
    job.run(files, as_json, cells, cells, show)


def _plain(entities: list[Any]) -> list[dict[str, Any]]:
    return [asdict(entity) for entity in entities]
