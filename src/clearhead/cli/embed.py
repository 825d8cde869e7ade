"""clearhead embed: a vector for each text, and which texts are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.batch_job import INTERRUPTED, BatchJob, Read
from clearhead.cli.loading import ENCODER, LoadOptions
from clearhead.cli.options import with_group
from clearhead.cli.picture_inputs import check_kind, embed_inputs, model_for_pictures
from clearhead.cli.predictions import check_out
from clearhead.cli.style import MODEL_HELP, note, out, print_json
from clearhead.cli.texts import TEXTS_HELP, FileArguments, read_texts

if TYPE_CHECKING:
    from torch import Tensor

SQUARE = 8  # so many texts are compared in a square; of more, the nearest pairs are listed
PAIRS = 15


@with_group("loading")
@with_group("files")
def command(
    *,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT …", help=TEXTS_HELP)] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} Default: {ENCODER}.", show_default=False)
    ] = None,
    pooling: Annotated[str | None, typer.Option(help="mean, cls, max, lasttoken …; default: the model's own.")] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--raw", help="To unit length or not; default: the model's own.")
    ] = None,
    files: FileArguments,
    loading: LoadOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print the vectors as JSON.")] = False,
) -> None:
    """Turn texts into vectors, and show which are alike (cosine).

    Works with Sentence-BERT folders, which say how to pool, and with any
    encoder or decoder; with a CLIP, for texts and for pictures, which are given
    by their paths. Up to eight are compared each with each; of more, the
    nearest pairs are shown.

    Examples:

      clearhead embed "a cat" "a kitten" "stock prices"

      clearhead embed photo.jpg "a cat" "a dog" -m openai/clip-vit-base-patch32

      clearhead embed - < sentences.txt

      clearhead embed --file notes.csv --column text --out vectors.jsonl
    """
    rows = read_texts(texts, files, "embed", example='"a cat" "a kitten"')
    check_out(files, rows)
    model = model_for_pictures(texts, model) or ENCODER
    pipe = loading.load(model, ENCODER, task="features", pictures=True)
    check_kind(pipe, texts, takes_texts=True)

    def predict(read: list[Read], _: list[int]) -> list[Any]:
        if isinstance(pipe, ClipPipeline | PicturePipeline):
            return list(embed_inputs(pipe, [text for (text,) in read], pooling, normalize).float().cpu())
        return list(pipe.embed([text for (text,) in read], pooling=pooling, normalize=normalize).float().cpu())

    from clearhead.pipeline import ClipPipeline, PicturePipeline

    options = {"pooling": pooling, "normalize": normalize}
    job = BatchJob("embed", "Embedding", model, pipe, rows, predict, _plain, options)
    if files.out is not None:
        job.write(files, lambda vector: {"vector": vector}, as_json)
        return
    found, stopped = job.collect()
    if as_json:
        entries = [{"text": "".join(read), "vector": None if row is None else row.tolist()} for read, row in found]
        print_json({"model": model, "embeddings": entries})
    elif kept := [(read[0], vector) for read, vector in found if vector is not None]:
        import torch

        _show([text for text, _ in kept], torch.stack([vector for _, vector in kept]))
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _plain(vector: Tensor) -> list[float]:
    """With the digits that a float32 has."""
    return [float(f"{value:.9g}") for value in vector.tolist()]


def _show(texts: list[str], vectors: Tensor) -> None:
    from torch.nn.functional import normalize

    unit = normalize(vectors, dim=-1)
    if len(texts) == 1:
        shown = "  ".join(f"{value:.3f}" for value in vectors[0, :6].tolist())
        out().print(f"{shown} …", markup=False)
        note(f"{vectors.shape[1]} numbers; all of them with --json. Give more texts to see which are alike.")
        return
    if len(texts) > SQUARE:
        from clearhead.views.terminal.results import draw_pairs

        pairs = [(score, texts[a], texts[b]) for score, a, b in nearest_pairs(unit, PAIRS)]
        note(f"{len(texts):,} texts, {vectors.shape[1]} numbers each. The most alike (cosine):")
        out().print(draw_pairs(pairs, out().width))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(f"cosine, {vectors.shape[1]} numbers each", overflow="ellipsis", max_width=48)
    for n in range(len(texts)):
        table.add_column(str(n + 1), justify="right", no_wrap=True)
    for n, (text, row) in enumerate(zip(texts, (unit @ unit.T).tolist(), strict=True)):
        table.add_row(Text(f"{n + 1}  {text}"), *(f"{value:.2f}" for value in row))
    out().print(table)


def nearest_pairs(unit: Tensor, most: int, block: int = 1024) -> list[tuple[float, int, int]]:
    """(cosine, first, second), the most alike first; unit (texts, width), each row of length one."""
    best: list[tuple[float, int, int]] = []
    for start in range(0, len(unit), block):
        rows = unit[start : start + block] @ unit.T  # (block, texts)
        rows = rows.masked_fill(_not_after(rows, start), -2.0)
        values, places = rows.flatten().topk(min(most, rows.numel()))
        found = zip(values.tolist(), places.tolist(), strict=True)
        pairs = ((value, start + at // len(unit), at % len(unit)) for value, at in found if value > -2.0)
        best = sorted([*best, *pairs], reverse=True)[:most]
    return best


def _not_after(rows: Tensor, start: int) -> Tensor:
    """(block, texts): true where the second text is not behind the first, so that each pair counts once."""
    import torch

    first = torch.arange(start, start + rows.shape[0])
    return torch.arange(rows.shape[1]) <= first[:, None]
