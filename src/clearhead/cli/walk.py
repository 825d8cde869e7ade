"""clearhead walk: follow one token through one layer, with the actual numbers."""

from __future__ import annotations

from typing import Annotated

import typer

from clearhead.cli.findings import AsCsv, AsJson, Browse, Overwrite, Save, check_target, show_finding
from clearhead.cli.style import DEFAULT, MODEL_HELP, open_pipeline
from clearhead.cli.texts import check_argument


def command(
    text: Annotated[str, typer.Argument(help="The text to run.")],
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = DEFAULT,
    layer: Annotated[int, typer.Option(help="Which layer to look into, counted from 0.")] = 0,
    head: Annotated[int, typer.Option(help="Which attention head, counted from 0.")] = 0,
    position: Annotated[
        int | None, typer.Option(help="Which token, counted from 0; negative from the end. Default: the last word.")
    ] = None,
    numbers: Annotated[int, typer.Option(min=1, help="How many numbers of each vector to show.")] = 6,
    top_k: Annotated[int, typer.Option(min=1, help="How many guesses to show at the end.")] = 10,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; default: as stored.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    save: Save = None,
    overwrite: Overwrite = False,
    browse: Browse = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Follow one token through the forward pass of one layer of a real model, step by step.

    Embedding, query, key and value, scores, mask, softmax, weighted sum, feed-forward, and the scores of every
    word: the numbers shown are the model's own, and each step names the tap that keeps them in Python.

    Example:

      clearhead walk "A robot must obey the orders given it" -m openai-community/gpt2 --layer 5 --head 3
    """
    check_argument(text)
    check_target(save, overwrite, browse, as_json, as_csv)
    pipe = open_pipeline(model, dtype=dtype, device=device, revision=revision)
    from clearhead.explain import walk

    finding = walk(pipe, text, layer=layer, head=head, position=position, numbers=numbers, top_k=top_k)
    show_finding(finding, as_json, as_csv, save, browse)
