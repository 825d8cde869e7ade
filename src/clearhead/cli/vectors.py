"""clearhead vectors: words as vectors. Neighbours, analogies, which words are alike, and a map of them."""

from __future__ import annotations

from typing import Annotated

import typer

from clearhead.cli.findings import AsCsv, AsJson, Browse, Overwrite, Save, check_target, show_finding
from clearhead.cli.style import open_pipeline
from clearhead.errors import InputError

VECTORS = "glove"
_MODEL_HELP = "A shipped name, a folder, or a file of vectors (GloVe, word2vec .txt or .bin)."


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD …", help='A word, a sum of words ("king - man + woman"), or several words.'),
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help=_MODEL_HELP)] = VECTORS,
    k: Annotated[int, typer.Option("-k", "--top-k", min=1, help="How many neighbours to list.")] = 10,
    save: Save = None,
    overwrite: Overwrite = False,
    browse: Browse = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Look words up in a table of word vectors (GloVe, word2vec).

    One word: the words nearest to it, by the cosine of their vectors.

    A sum of words: the words nearest to where it leads (an analogy). Signs
    stand between spaces, so "e-mail" is a word.

    Several words: a map of them (PCA), how alike each two are, and the odd
    one out. An arrow joins two on the map: "man -> woman".

    Examples:

      clearhead vectors king

      clearhead vectors "king - man + woman"

      clearhead vectors breakfast lunch cereal dinner

      clearhead vectors "man -> woman" "king -> queen" --save map.html

      clearhead vectors Stockholm -m GoogleNews-vectors.bin -k 5

      clearhead train word-vectors data.train=my.txt
    """
    asked, several = _asked(words or [])
    check_target(save, overwrite, browse, as_json, as_csv)
    pipe = open_pipeline(model, fallback=VECTORS)
    from clearhead.explain import neighbours, word_map

    finding = word_map(pipe, asked) if several else neighbours(pipe, asked, k)
    show_finding(finding, as_json, as_csv, save, browse)


def _asked(words: list[str]) -> tuple[str, bool]:
    """What was given as one text, and whether it is several words rather than one, or a sum."""
    text = " ".join(words)
    parts = text.split()
    if not parts:
        raise InputError('There is no word. Give one, or a sum of words: clearhead vectors "king - man + woman".')
    is_sum = any(part in ("+", "-", "−") for part in parts)
    return text, len(parts) > 1 and not is_sum
