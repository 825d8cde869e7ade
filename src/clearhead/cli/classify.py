"""clearhead classify: a label for each text, of those a model was trained on or of those that are given."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.batch_job import BatchJob, Read, Show
from clearhead.cli.loading import CLASSIFIER, MASKED, LoadOptions
from clearhead.cli.options import with_group
from clearhead.cli.picture_inputs import check_kind, classify_pictures, model_for_pictures
from clearhead.cli.predictions import check_out
from clearhead.cli.style import MODEL_HELP, out
from clearhead.cli.texts import TEXTS_HELP, FileArguments, check_argument, read_texts
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.pipeline import TextPipeline


@with_group("loading")
@with_group("files")
def command(
    *,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT …", help=TEXTS_HELP)] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help=f"{MODEL_HELP} Default: {CLASSIFIER}; with labels of your own {MASKED}."),
    ] = None,
    pair: Annotated[str | None, typer.Option(help="A second text, for models that judge two.", metavar="TEXT")] = None,
    labels: Annotated[
        str | None, typer.Option(help="Labels of your own, with commas between: any language model ranks them.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="The same, one at a time.", metavar="LABEL")] = None,
    template: Annotated[
        str | None, typer.Option(help="With labels of your own: the sentence that a label stands in, as {}.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="How many labels; default: all, and the best one in a file.")
    ] = None,
    files: FileArguments,
    pair_column: Annotated[str | None, typer.Option(help="With --file: the column of the second text.")] = None,
    loading: LoadOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print all labels and scores as JSON.")] = False,
) -> None:
    """Say which label fits a text or a picture, and how sure the model is.

    With a model that was trained to classify (clearhead train classification),
    or, with --labels, with any language model: it ranks the labels by how
    likely it finds them in a sentence after the text (zero-shot). A CLIP does
    the same for pictures, which are given by their paths.

    Examples:

      clearhead classify "A wonderful film, from beginning to end."

      clearhead classify "How long will it rain?" -m intents

      clearhead classify "The king rode away." --labels "a story,a recipe,news"

      clearhead classify photo.jpg --labels cat,dog -m openai/clip-vit-base-patch32

      clearhead classify --file reviews.csv --column text --out labelled.csv
    """
    if pair is not None and pair_column is not None:
        raise InputError("Give --pair, one second text for all, or --pair-column, one in each row; not both.")
    rows = read_texts(texts, files, "classify", second=("--pair-column", pair_column))
    check_out(files, rows)
    if pair is not None:
        check_argument(pair, "second text")
    custom_labels = _labels(labels, label)
    if template is not None and custom_labels is None:
        raise InputError("--template is the sentence for labels of your own: it goes with --labels or --label.")
    default = CLASSIFIER if custom_labels is None else MASKED
    name = model_for_pictures(texts, model) or default
    pipe = loading.load(name, default, pictures=True)
    check_kind(pipe, texts)
    options: dict[str, Any] = {"labels": custom_labels, "template": template}
    options = {key: value for key, value in options.items() if value is not None}

    def predict(read: list[Read], _: list[int]) -> list[Any]:
        first = [texts_of_row[0] for texts_of_row in read]
        second = (
            [texts_of_row[1] for texts_of_row in read]
            if len(rows.chosen) > 1
            else None
            if pair is None
            else [pair] * len(first)
        )
        if isinstance(pipe, ClipPipeline | PicturePipeline):
            return [scored[:top_k] for scored in classify_pictures(pipe, first, second, options)]
        return [scored[:top_k] for scored in pipe.classify(first, second, **options)]

    from clearhead.pipeline import ClipPipeline, PicturePipeline

    job = BatchJob(
        "classify", "Classifying", name, pipe, rows, predict, _plain, options | {"pair": pair, "top_k": top_k}
    )
    keeps_all = top_k is not None or _kind(pipe, custom_labels) == "multi_label_classification"
    full = partial(_cells, keep_all=True)
    job.run(files, as_json, full if keeps_all else _cells, full, _shown(pipe, custom_labels))


def _labels(joined: str | None, single: list[str] | None) -> list[str] | None:
    if joined is not None and single:
        raise InputError("Give --labels or --label, not both.")
    if joined is None:
        return single or None
    return [label.strip() for label in joined.split(",") if label.strip()]


def _kind(pipe: TextPipeline, custom_labels: list[str] | None) -> str | None:
    return pipe.model.config.problem_type if custom_labels is None else None


def _plain(labels: list[Any]) -> list[dict[str, Any]]:
    return [asdict(label) for label in labels]


def _cells(labels: list[dict[str, Any]], keep_all: bool = False) -> dict[str, Any]:
    """The best label; where several were asked for or may hold at once, all of them too."""
    return dict(labels[0]) | ({"labels": labels} if keep_all else {})


def _shown(pipe: TextPipeline, custom_labels: list[str] | None) -> Show:
    numbers = _kind(pipe, custom_labels) == "regression"
    widest = max(map(len, custom_labels or pipe.model.config.id2label.values()))

    def show(read: Read, labels: list[Any], many: bool) -> None:
        from clearhead.views.terminal.results import draw_labels, label_line

        console = out()
        if not many:
            console.print(draw_labels(labels, numbers))
        elif console.is_terminal:
            console.print(label_line(read[0], labels[0], min(widest, 24), console.width, numbers))
        else:
            print(labels[0].label, f"{labels[0].score:.4f}", *(" ".join(text.split()) for text in read), sep="\t")

    return show
