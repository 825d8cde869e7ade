"""Nearest neighbours and analogies: which words lie where "king - man + woman" leads, in a table of word vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearhead.explain.finding import Finding
from clearhead.explain.question import Question
from clearhead.explain.settings import count
from clearhead.explain.word_map import principal_components
from clearhead.explain.word_table import is_word_table, word_table
from clearhead.pipeline import Pipeline, WordVectors, as_word_vectors
from clearhead.pipeline.word_vectors import unit
from clearhead.text.word_vectors import parse


@dataclass(frozen=True)
class NearWord:
    """A word, the cosine of its vector with what was asked for, and its row in the table."""

    word: str
    cosine: float
    row: int


@dataclass(frozen=True)
class WordTerm:
    """A word of the sum that was asked about: its sign (1 or -1) and its row in the table."""

    word: str
    sign: int
    row: int


@dataclass(frozen=True, repr=False, eq=False)
class Neighbours(Finding):
    """
    terms     of the sum; a single one is a word whose neighbours are wanted
    nearest   best first; the words of the sum are left out
    count     how many words the table has
    width     how many numbers each has
    places    (terms + nearest + 1, 2): where these words lie on a plane (PCA), each vector with length one, and last
              where the sum leads. Of a sum it is the plane of its words: of three, they all lie in it
    explained the share of the differences that each direction of the plane keeps
    """

    kind: ClassVar[str] = "neighbours"

    model: str
    asked: str
    terms: list[WordTerm]
    nearest: list[NearWord]
    count: int
    width: int
    places: np.ndarray
    explained: list[float]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["rank", "word", "cosine", "row"]
        for rank, one in enumerate(self.nearest, start=1):
            yield [rank, one.word, one.cosine, one.row]


def neighbours(pipe: Pipeline, asked: str, k: int = 10) -> Neighbours:
    """The k words nearest to a word, or to a sum of words ("king - man + woman"), by the cosine of their vectors.

    pipe   word vectors; or a text model, whose table of tokens is looked at
    """
    vectors = word_table(pipe)
    parts = [(vectors.words.spelled(word), sign) for word, sign in parse(asked)]
    terms = [WordTerm(word, sign, vectors.words.row(word)) for word, sign in parts]
    found = [NearWord(word, cosine, vectors.words.find(word)) for word, cosine in vectors.nearest_to_sum(parts, k)]
    places, explained = _places(vectors, terms, found)
    asked = " ".join(asked.split())
    return Neighbours(pipe.name, asked, terms, found, len(vectors), vectors.width, places, explained)


def _places(vectors: WordVectors, terms: list[WordTerm], found: list[NearWord]) -> tuple[np.ndarray, list[float]]:
    rows = unit(vectors.vectors([one.word for one in terms] + [one.word for one in found]))
    sum_of = np.array([one.sign for one in terms]) @ rows[: len(terms)]
    rows = np.concatenate([rows, sum_of[None]])
    several = len(terms) > 2
    return principal_components(rows, fitted=np.concatenate([rows[: len(terms)], rows[-1:]]) if several else None)


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, k: int) -> Neighbours:
    return neighbours(as_word_vectors(pipe), text, k)


QUESTION = Question(
    name="neighbours", kind="neighbours", group="words", answer=_answer, checks=(is_word_table,), needs_layers=False,
    params=(count("neighbours.k", 10),),
)  # fmt: skip
