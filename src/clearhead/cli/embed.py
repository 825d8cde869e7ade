"""clearhead embed: a vector for each text, and how alike the texts are."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from clearhead.cli.style import MODEL_HELP, open_model, out, print_json


def command(
    texts: Annotated[list[str], typer.Argument(help="The texts; '-' reads one per line from standard input.")],
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = "sentence-transformers/all-MiniLM-L6-v2",
    pooling: Annotated[str | None, typer.Option(help="mean, cls, max, lasttoken …; default: the model's own.")] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--raw", help="To unit length or not; default: the model's own.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the vectors as JSON.")] = False,
) -> None:
    """Turn texts into vectors, and show how alike they are (cosine).

    Works with Sentence-BERT folders, which say how to pool, and with any encoder or decoder.

    Example:

      clearhead embed "a cat" "a kitten" "stock prices"
    """
    if texts == ["-"]:
        texts = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    pipe = open_model(model, task="features", device=device, revision=revision)
    vectors = pipe.embed(texts, pooling=pooling, normalize=normalize).float().cpu()
    if as_json:
        rows = [{"text": text, "vector": vector.tolist()} for text, vector in zip(texts, vectors, strict=True)]
        print_json({"model": model, "embeddings": rows})
        return
    from rich.table import Table
    from torch.nn.functional import normalize as unit

    alike = unit(vectors, dim=-1) @ unit(vectors, dim=-1).T
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(f"cosine, {vectors.shape[1]} numbers each", overflow="ellipsis", max_width=48)
    for n in range(len(texts)):
        table.add_column(str(n + 1), justify="right", no_wrap=True)
    for n, text in enumerate(texts):
        table.add_row(f"{n + 1}  {text}", *(f"{value:.2f}" for value in alike[n].tolist()))
    out().print(table)
