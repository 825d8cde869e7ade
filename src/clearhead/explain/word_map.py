"""A map of words: their vectors drawn on a plane by principal components (PCA), and how alike each two are.

Beside the learned vectors stands what a word is before anything is learned, its one-hot vector: zeros, and a one at the
word's own place. All of those are equally far apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.finding import Finding
from clearhead.explain.question import Question
from clearhead.explain.word_table import is_word_table, word_table
from clearhead.messages import say
from clearhead.pipeline import Pipeline, as_word_vectors
from clearhead.pipeline.word_vectors import unit

MOST = 200  # words of a map
ARROW = ("->", "→")


@dataclass(frozen=True, repr=False, eq=False)
class WordMap(Finding):
    """
    words        as the table spells them
    rows         where each stands in the table: where its one-hot vector has its one
    count        how many words the table has: how long a one-hot vector is
    width        how many numbers a learned vector has
    vectors      (words, width): their rows
    places       (words, 2): on the plane that keeps most of the differences, from the words' middle
    explained    the share of all differences that each of the two directions keeps
    cosines      (words, words), of the learned vectors; those of one-hot vectors are 1 with itself, else 0
    arrows       pairs of places in `words`, to be joined
    odd_one_out  the word least like the mean of all; None for fewer than three
    """

    kind: ClassVar[str] = "word-map"

    model: str
    words: list[str]
    rows: list[int]
    count: int
    width: int
    vectors: np.ndarray
    places: np.ndarray
    explained: list[float]
    cosines: np.ndarray
    arrows: list[list[int]]
    odd_one_out: str | None

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["word", "row", "x", "y", *self.words]
        for word, row, place, cosines in zip(self.words, self.rows, self.places, self.cosines, strict=True):
            yield [word, row, *map(float, place), *map(float, cosines)]


def word_map(pipe: Pipeline, words: str | Iterable[str]) -> WordMap:
    """Where words lie, on the plane of their first two principal components.

    pipe    word vectors; or a text model, whose table of tokens is looked at
    words   a list, or a text of words with spaces or commas between; "man -> woman" joins two by an arrow
    """
    names, arrows = _words_of(words)
    if len(names) < 2:
        raise InputError(say("vectors.map_needs_two"))
    if len(names) > MOST:
        raise InputError(say("vectors.too_many_words", count=len(names), most=MOST))
    vectors = word_table(pipe)
    names = list(dict.fromkeys(spelled := [vectors.words.spelled(name) for name in names]))
    arrows = [[names.index(spelled[end]) for end in pair] for pair in arrows]
    table = vectors.vectors(names)
    places, explained = principal_components(table)
    odd = vectors.odd_one_out(names) if len(names) > 2 else None
    rows = [vectors.words.row(name) for name in names]
    rows_of = unit(table)
    return WordMap(
        pipe.name, names, rows, len(vectors), vectors.width, table, places, explained, rows_of @ rows_of.T, arrows, odd
    )


def principal_components(
    table: np.ndarray, count: int = 2, fitted: np.ndarray | None = None
) -> tuple[np.ndarray, list[float]]:
    """The rows in the directions in which they differ most, and the share of the variance that each keeps. A direction
    points to where its longest coordinate is.

    fitted   the rows that the directions (and the shares) are those of; None: all of the table's
    """
    rows = (table if fitted is None else fitted).astype(np.float64)
    middle = rows.mean(0)
    _, sizes, directions = np.linalg.svd(rows - middle, full_matrices=False)
    places = np.zeros((len(table), count))
    shares = np.zeros(count)
    kept = min(count, int((sizes > 1e-9 * max(sizes.max(initial=0), 1e-9)).sum()))  # the rest is rounding
    places[:, :kept] = (table - middle) @ directions[:kept].T
    longest = places[np.abs(places).argmax(0), np.arange(count)]
    places *= np.where(longest < 0, -1, 1)
    total = float((sizes**2).sum())
    shares[:kept] = sizes[:kept] ** 2 / total if total > 0 else 0.0
    return places, shares.tolist()


def _words_of(given: str | Iterable[str]) -> tuple[list[str], list[list[int]]]:
    """Words, each once, and which are joined."""
    parts = re.split(r"[\s,，、;；]+", given.strip()) if isinstance(given, str) else list(given)
    parts = [part for part in parts if part]
    if parts and (parts[0] in ARROW or parts[-1] in ARROW):
        raise InputError(say("vectors.loose_arrow"))
    names: dict[str, int] = {}
    arrows: list[list[int]] = []
    joined = False
    last = -1
    for part in parts:
        if part in ARROW:
            if joined:
                raise InputError(say("vectors.loose_arrow"))
            joined = True
            continue
        place = names.setdefault(part, len(names))
        if joined:
            arrows.append([last, place])
        joined, last = False, place
    return list(names), arrows


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None) -> WordMap:
    return word_map(as_word_vectors(pipe), text)


QUESTION = Question(
    name="word-map", kind="word-map", group="words", answer=_answer, checks=(is_word_table,), needs_layers=False,
    params=(),
)  # fmt: skip
