"""clearhead search: the texts nearest in meaning to a query, in a file or a folder; or the pictures of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.loading import ENCODER, LoadOptions
from clearhead.cli.options import with_group
from clearhead.cli.picture_inputs import may_hold_pictures, reads_pictures
from clearhead.cli.style import MODEL_HELP, out, print_json
from clearhead.cli.texts import STANDARD_INPUT, check_argument
from clearhead.errors import InputError

if TYPE_CHECKING:
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
    """Find texts or pictures by their meaning: those whose vectors are nearest to the query's (cosine).

    Looks at every line of a file, every row of a table (--column), or every
    paragraph of the .txt, .md and .rst files in a folder; with a CLIP, at every
    picture of a folder. Vectors are kept, so that the next search in the same
    place reads only what is new. Query and place may be given in either order.

    Examples:

      clearhead search "where is the treasure hidden" stories.txt

      clearhead search "how do I train on two GPUs" docs/ --top-k 3

      clearhead search pictures/ "a red car" -m openai/clip-vit-base-patch32

      clearhead search "late delivery" reviews.csv --column text --json
    """
    check_argument(query, "query")
    if not keep and cache is not None:
        raise InputError("--cache says where vectors are kept, and --no-keep that none are. Leave one out.")
    from clearhead.cli.passages import read_passages
    from clearhead.cli.picture_search import check_text_place, search_pictures
    from clearhead.cli.vector_cache import vectors_of

    if not Path(where).expanduser().exists() and Path(query).expanduser().exists() and where != STANDARD_INPUT:
        query, where = where, query
    passages = None if may_hold_pictures(where) else read_passages(where, column, encoding)
    pipe = loading.load(model, ENCODER, task="features", pictures=True)
    if reads_pictures(pipe):
        search_pictures(pipe, model, query, where, top_k, _cache_folder(cache) if keep else None, as_json)
        return
    check_text_place(pipe, where)
    passages = passages or read_passages(where, column, encoding)
    texts = [passage.text for passage in passages]
    kept = _cache(pipe, where, cache) if keep and where != STANDARD_INPUT else None
    hits = pipe.search(query, texts, top_k=top_k, vectors=vectors_of(pipe, model, texts, texts, kept))
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


def _cache_folder(folder: Path | None) -> Path:
    from clearhead.files import cache_folder

    return cache_folder("vectors") if folder is None else folder.expanduser()


def _cache(pipe: TextPipeline, where: str, folder: Path | None) -> VectorCache:
    from clearhead.cli.vector_cache import VectorCache
    from clearhead.hub.fingerprint import fingerprint
    from clearhead.text import Tokenizer

    tokenizer = pipe.codec if isinstance(pipe.codec, Tokenizer) else None  # ELMo and word vectors read words
    model = fingerprint(pipe.model, tokenizer, getattr(pipe, "sentence", None))
    return VectorCache(_cache_folder(folder), model, str(Path(where).expanduser().resolve()))
