"""clearhead study: small experiments from well-known articles, each one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.findings import AsCsv, AsJson, Browse, Overwrite, Save, check_target, show_finding
from clearhead.cli.loading import MASKED
from clearhead.cli.progress import progress
from clearhead.cli.style import MODEL_HELP, open_model
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.studies.study import OnProgress
    from clearhead.train.engine.log import Event, Watcher

app = typer.Typer(help="Small experiments from well-known articles, each one command.", no_args_is_help=True)

Model = Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, …")]


@app.command("sentiment")
def sentiment_command(
    train: Annotated[str, typer.Option(help="Labelled sentences, a table: sentence, label.")],
    test: Annotated[str | None, typer.Option(help="More of them, to be measured on and never fitted to.")] = None,
    model: Model = MASKED,
    sentences: Annotated[int, typer.Option(min=4, help="Use the first so many for the regression.")] = 2000,
    folds: Annotated[int, typer.Option(min=2, help="Parts of the cross-validation.")] = 5,
    text: Annotated[str | None, typer.Option(help="The sentence's column: a name, or a number from 0.")] = None,
    label: Annotated[str | None, typer.Option(help="The label's column; default: the second.")] = None,
    fine_tune: Annotated[bool, typer.Option("--fine-tune", help="Then fine-tune the encoder on all of them.")] = False,
    valid: Annotated[str | None, typer.Option(help="Fine-tuning: sentences that the best step is chosen by.")] = None,
    out_folder: Annotated[
        str | None, typer.Option("--out", help="Fine-tuning: the folder of the run; default: runs/sentiment.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Fine-tuning: key=value of a recipe.", metavar="KEY=VALUE")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Keep sentence vectors here; default: the user's cache.")] = None,
    device: Device = None,
    save: Save = None,
    overwrite: Overwrite = False,
    browse: Browse = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Sentiment from a frozen encoder, as in "A Visual Guide to Using BERT for the First Time".

    The first 2,000 sentences become vectors ([CLS], and the mean of all
    tokens); a logistic regression on each is cross-validated. With
    --fine-tune the encoder itself is trained on all sentences.

    Examples:

      clearhead study sentiment --train train.tsv --test test.tsv

      clearhead study sentiment --train train.tsv --test test.tsv --fine-tune --out runs/sst2
    """
    for option, value in (("--valid", valid), ("--out", out_folder), ("--set", settings)):
        if value and not fine_tune:
            raise InputError(f"{option} is about fine-tuning: it goes with --fine-tune.")
    check_target(save, overwrite, browse, as_json, as_csv)
    from clearhead.pipeline import as_text
    from clearhead.studies import sentiment
    from clearhead.studies.frozen import default_cache

    pipe = as_text(open_model(model, task="features", device=device, fallback=MASKED))

    named = text is not None or label is not None
    columns = {"text": _column(text or "0"), "label": _column(label or "1")} if named else None
    with progress() as on_progress:
        finding = sentiment(
            pipe, train, test, sentences=sentences, folds=folds, columns=columns, cache=cache or default_cache(),
            fine_tune=(out_folder or "runs/sentiment") if fine_tune else None, valid=valid, settings=settings or (),
            on_progress=on_progress, watchers=[_steps(on_progress)],
        )  # fmt: skip
    show_finding(finding, as_json, as_csv, save, browse)


@app.command("features")
def features_command(
    train: Annotated[str, typer.Option(help="Tagged sentences (CoNLL: a word and its tag in a line).")],
    test: Annotated[str, typer.Option(help="More of them, to be measured on.")],
    models: Annotated[
        list[str] | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} Given several times, all in one table.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Learn from so many sentences and no more.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Keep the vectors here (large); default: nowhere.")] = None,
    device: Device = None,
    save: Save = None,
    overwrite: Overwrite = False,
    browse: Browse = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Which layers' vectors to use: the six choices of "The Illustrated BERT", compared on finding names.

    The models stay as they are; a linear softmax on each word's vector does
    the tagging. (The BERT paper used a two-layer BiLSTM.) ELMo's layers are
    tried one by one and mixed, word vectors as they are.

    Examples:

      clearhead study features --train train.conll --test test.conll

      clearhead study features --train train.conll --test test.conll -m glove -m bert-mini
    """
    check_target(save, overwrite, browse, as_json, as_csv)
    pipes = [open_model(name, task="features", device=device, fallback=MASKED) for name in models or [MASKED]]
    from clearhead.studies import features

    with progress() as on_progress:
        finding = features(pipes, train, test, limit=limit, cache=cache, on_progress=on_progress)
    show_finding(finding, as_json, as_csv, save, browse)


@app.command("similarity")
def similarity_command(
    model: Model = MASKED,
    data: Annotated[
        str | None, typer.Option(help="Pairs, a table: sentence, sentence, score; default: a small set of our own.")
    ] = None,
    device: Device = None,
    save: Save = None,
    overwrite: Overwrite = False,
    browse: Browse = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Why raw vectors are poor for similarity: cosines of sentences that mean the same, and of others.

    Examples:

      clearhead study similarity

      clearhead study similarity --model google-bert/bert-base-uncased

      clearhead study similarity --model sentence-transformers/all-MiniLM-L6-v2
    """
    check_target(save, overwrite, browse, as_json, as_csv)
    from clearhead.pipeline import as_text
    from clearhead.studies import similarity

    pipe = as_text(open_model(model, task="features", device=device, fallback=MASKED))
    with progress() as on_progress:
        finding = similarity(pipe, data, on_progress=on_progress)
    show_finding(finding, as_json, as_csv, save, browse)


# ---- while it goes


def _steps(on_progress: OnProgress) -> Watcher:
    """Fine-tuning as one more part of the work."""

    def hear(event: Event) -> None:
        if event["event"] == "step":
            on_progress(f"Fine-tuning, loss {event['loss']:.2f}", event["step"], event["steps"])

    return hear


def _column(name: str) -> str | int:
    return int(name) if name.lstrip("-").isdecimal() else name
