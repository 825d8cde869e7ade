"""clearhead search: the texts nearest in meaning to a query, in a file or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.batch_job import INTERRUPTED, BatchJob, Read
from clearhead.cli.loading import ENCODER, LoadOptions
from clearhead.cli.options import with_group
from clearhead.cli.style import MODEL_HELP, note, out, print_json
from clearhead.cli.texts import STANDARD_INPUT, check_argument, rows_of_list
from clearhead.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.cli.vector_cache import VectorCache
    from clearhead.pipeline import TextPipeline


@with_group("loading")
def command(
    *,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in your own words.")],
    where: Annotated[
        str, typer.Argument(metavar="FILE|FOLDER", help="Where: a file, a folder, or '-' for lines of standard input.")
    ],
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = ENCODER,
    top_k: Annotated[int, typer.Option(min=1, help="How many to show.")] = 5,
    column: Annotated[str | None, typer.Option(help="The column of a table with the text.", metavar="NAME")] = None,
    encoding: Annotated[str | None, typer.Option(help="How the files are written; default: utf-8.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Keep the vectors here; default: the user's cache.", metavar="FOLDER")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Keep vectors for the next search, or not.")] = True,
    loading: LoadOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print texts, scores and places as JSON.")] = False,
) -> None:
    """Find texts by their meaning: those whose vectors are nearest to the query's (cosine).

    Looks at every line of a file, every row of a table (--column), or every
    paragraph of the .txt, .md and .rst files in a folder. Vectors are kept, so
    that the next search in the same place reads only what is new.

    Examples:

      clearhead search "where is the treasure hidden" stories.txt

      clearhead search "how do I train on two GPUs" docs/ --top-k 3

      clearhead search "late delivery" reviews.csv --column text --json
    """
    check_argument(query, "query")
    if not keep and cache is not None:
        raise InputError("--cache says where vectors are kept, and --no-keep that none are. Leave one out.")
    from clearhead.cli.passages import read_passages

    passages = read_passages(where, column, encoding)
    pipe = loading.load(model, ENCODER, task="features")
    texts = [passage.text for passage in passages]
    kept = _cache(pipe, where, cache) if keep and where != STANDARD_INPUT else None
    hits = pipe.search(query, texts, top_k=top_k, vectors=_vectors(pipe, model, texts, kept))
    if as_json:
        results = [
            {
                "text": hit.text,
                "score": hit.score,
                "source": passages[hit.index].source,
                "line": passages[hit.index].line,
            }
            for hit in hits
        ]
        print_json({"model": model, "query": query, "results": results})
        return
    from clearhead.views.terminal.results import draw_hits

    for line in draw_hits([(hit.score, passages[hit.index].place, hit.text) for hit in hits], out().width):
        out().print(line)


def _cache(pipe: TextPipeline, where: str, folder: Path | None) -> VectorCache:
    from clearhead.cli.vector_cache import VectorCache
    from clearhead.files import cache_folder
    from clearhead.hub.fingerprint import fingerprint

    place = cache_folder("vectors") if folder is None else folder.expanduser()
    from clearhead.text import Tokenizer

    tokenizer = pipe.codec if isinstance(pipe.codec, Tokenizer) else None  # ELMo and word vectors read words
    model = fingerprint(pipe.model, tokenizer, getattr(pipe, "sentence", None))
    return VectorCache(place, model, str(Path(where).expanduser().resolve()))


def _vectors(pipe: TextPipeline, model: str, texts: list[str], cache: VectorCache | None) -> Tensor:
    """(texts, width), of unit length: those on disk, and the others computed and kept there."""
    import torch

    known = {} if cache is None else dict(cache.known)
    keys = [text.encode() if cache is None else cache.key(text) for text in texts]
    new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}

    def predict(read: list[Read], _: list[int]) -> list[Any]:
        return list(pipe.embed([text for (text,) in read], normalize=True).float().cpu().numpy())

    stopped = False
    if new:
        rows = rows_of_list("the texts", list(new.values()))
        job = BatchJob("search", "Reading", model, pipe, rows, predict, list, {})
        found, stopped = job.collect()
        known |= zip(new, (vector for _, vector in found), strict=False)
    if cache is not None and (found_now := {key: text for key, text in zip(keys, texts, strict=True) if key in known}):
        same = not new and len(found_now) == len(cache.known)
        vectors = torch.stack([torch.as_tensor(known[key]) for key in found_now])
        if not same and cache.write(list(found_now.values()), vectors):
            note(f"Vectors of {len(found_now):,} texts are kept in {cache.path} (--no-keep keeps none).")
    if stopped:
        raise typer.Exit(INTERRUPTED)
    return torch.stack([torch.as_tensor(known[key]) for key in keys])
