"""Word vectors as a person asks them: a word's vector, its neighbours, analogies, the odd one out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import CheckpointError, InputError
from clearhead.messages import say
from clearhead.models import Model
from clearhead.pipeline.base import Pipeline
from clearhead.pipeline.batches import texts_of
from clearhead.pipeline.search import SearchHit, search
from clearhead.text.word_vectors import ENDINGS, Words, parse, write_vectors
from clearhead.text.words import words_of

TOGETHER = 2**14  # rows whose lengths are computed at once
_NO_FOLDER = (".csv", ".tsv", ".json", ".jsonl", ".npy", ".npz", ".gz", ".zip", ".safetensors", ".pt", ".pth", ".glove")


class WordVectors(Pipeline):
    """A table of vectors, a row for each word. Cosines are of vectors brought to length one.

    `vectors["king"]` is a row, as float32; `word in vectors`, `len(vectors)` and `for word in vectors` are its words.
    """

    reads_text = True
    no_text = "vectors.reads_words"

    def __init__(self, model: Model, words: Words, name: str = "") -> None:
        super().__init__(model, words, name)
        self.words = words
        rows = model.token_tables()[0].num_embeddings
        if rows != len(words):
            raise CheckpointError(f"There are {len(words):,} words and {rows:,} vectors: they do not belong together.")

    @classmethod
    def from_folder(cls, folder: os.PathLike[str], model: Model, name: str = "") -> WordVectors:
        return cls(model, Words.load(Path(folder)), name)

    @property
    def table(self) -> Tensor:
        """(words, width): all vectors, as the model has them."""
        return self.model.token_tables()[0].weight.detach()

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return int(self.table.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.words

    def __getitem__(self, word: str) -> np.ndarray:
        return self._rows([self.words.row(word)])[0]

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """(words, width), float32."""
        return self._rows([self.words.row(word) for word in words])

    def _rows(self, rows: list[int]) -> np.ndarray:
        found: np.ndarray = self.table[rows].float().cpu().numpy()
        return found

    # ---- texts

    def embed(
        self,
        texts: str | list[str],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        batch_size: int = 32,
    ) -> Tensor:
        """One vector for each text, (texts, width), or (width,) for a single one: the mean of its words' vectors.

        A word is looked up as it is written, then in small letters; those that the table does not have are left out.

        pooling      "mean" (the default) or "max" over the words
        normalize    to unit length
        batch_size   is for models that read texts together; here each is read alone
        """
        if pooling not in (None, "mean", "max"):
            raise InputError(f"The vectors of words are pooled by mean or max, not {pooling!r}.")
        out = torch.stack([self._of_text(text, pooling or "mean") for text in texts_of(texts)])
        out = F.normalize(out, dim=-1) if normalize else out
        return out[0] if isinstance(texts, str) else out

    def _of_text(self, text: str, pooling: str) -> Tensor:
        """(width,)"""
        rows = [row for word in words_of(text) if (row := self.words.find_any_case(word.text)) >= 0]
        if not rows:
            raise InputError(say("vectors.no_word_of_text", text=text))
        vectors = self.table[rows].float()  # (words, width)
        return vectors.amax(0) if pooling == "max" else vectors.mean(0)

    def search(
        self,
        query: str | list[str],
        texts: Sequence[str],
        *,
        top_k: int = 10,
        vectors: Tensor | None = None,
        batch_size: int = 32,
    ) -> list[SearchHit] | list[list[SearchHit]]:
        """The texts whose mean of words lies nearest, best first, each with its cosine."""
        return search(self, query, texts, top_k=top_k, vectors=vectors, batch_size=batch_size)

    def count_units(self, text: str, /) -> int:
        return len(text.split())

    # ---- what lies near

    def nearest(self, word: str | np.ndarray | Sequence[float], k: int = 10) -> list[tuple[str, float]]:
        """The k words whose vectors have the smallest angle to a word's (or to a vector), with their cosines."""
        if isinstance(word, str):
            row = self.words.row(word)
            return self._nearest(unit(self._rows([row]))[0], [row], k, word)
        try:
            vector = unit(np.asarray(word, dtype=np.float32))
        except (TypeError, ValueError):
            raise InputError(say("vectors.word_or_vector", got=type(word).__name__)) from None
        if vector.shape != (self.width,):
            raise InputError(say("vectors.wrong_width", width=self.width, shape=vector.shape))
        return self._nearest(vector, [], k, "")

    def analogy(self, expression: str, k: int = 10) -> list[tuple[str, float]]:
        """What "king - man + woman" comes to: the words nearest to the mean of the unit vectors, each with its sign.
        The words that were asked about are left out."""
        return self.nearest_to_sum(parse(expression), k)

    def nearest_to_sum(self, terms: Sequence[tuple[str, int]], k: int = 10) -> list[tuple[str, float]]:
        """The same of words that each come with their sign, 1 or -1."""
        rows = [self.words.row(word) for word, _ in terms]
        signs = np.array([sign for _, sign in terms], np.float32)
        what = " ".join(f"{'-' if sign < 0 else '+'} {word}" for word, sign in terms).removeprefix("+ ")
        return self._nearest(signs @ unit(self._rows(rows)) / len(rows), rows, k, what)

    def similarity(self, a: str, b: str) -> float:
        """The cosine of two words: 1 for the same direction, 0 for nothing in common."""
        first, second = unit(self.vectors([a, b]))
        return float(first @ second)

    def odd_one_out(self, words: Sequence[str]) -> str:
        """The word that is least like the mean of all."""
        if isinstance(words, str) or len(words) < 2:
            raise InputError(say("vectors.several_words"))
        rows = unit(self.vectors(words))
        scores = rows @ unit(rows.mean(0, keepdims=True))[0]
        return min(zip(scores.tolist(), words, strict=True))[1]

    def cosines(self, words: Sequence[str]) -> np.ndarray:
        """(words, words)"""
        rows = unit(self.vectors(words))
        return rows @ rows.T

    def _nearest(self, vector: np.ndarray, asked: list[int], k: int, what: str) -> list[tuple[str, float]]:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(say("vectors.how_many", k=repr(k)))
        length = float(
            np.linalg.norm(vector)
        )  # of a sum of unit vectors: as good as nothing where all but rounding goes
        if not length > 1e-6:
            raise InputError(say("vectors.no_direction", what=what or say("vectors.this_vector")))
        table = self.table
        query = torch.from_numpy(vector / np.float32(length)).to(table)
        scores: np.ndarray = ((table @ query).double() / self._lengths).cpu().numpy()
        if len(large := np.flatnonzero(~np.isfinite(scores))):  # numbers whose products are beyond the table's own type
            scores[large] = (table[large].double() @ query.double() / self._lengths[large]).cpu().numpy()
        scores[asked] = -np.inf
        scores[np.isnan(scores)] = -np.inf
        best = np.argpartition(-scores, min(k, len(scores) - 1))[: k + 1] if k < len(scores) else np.arange(len(scores))
        best = best[np.lexsort((best, -scores[best]))][:k]
        return [(self.words[row], float(scores[row])) for row in best.tolist() if scores[row] > -np.inf]

    @cached_property
    def _lengths(self) -> Tensor:
        """(words): of the vectors; 1 where one is all zeros."""
        lengths = torch.cat([rows.double().norm(dim=1) for rows in self.table.split(TOGETHER)])
        return torch.where(lengths == 0, torch.ones_like(lengths), lengths)

    # ---- keeping them

    def save(self, path: str | os.PathLike[str], overwrite: bool = False, format: str | None = None) -> None:
        """By its ending: .txt (or .vec), word2vec's text with a header; .bin, its binary; else a folder, which opens
        fastest and holds every word."""
        if format is not None:
            raise InputError("Word vectors are saved by the ending of their name: .txt, .bin, or a folder.")
        target = Path(path).expanduser()
        if target.suffix.lower() not in (*ENDINGS, *_NO_FOLDER):
            super().save(path, overwrite)
            return
        write_vectors(target, self.words, lambda a, b: self.table[a:b].float().cpu().numpy(), self.width, overwrite)

    def __repr__(self) -> str:
        return f"<{self.name or 'word vectors'}: {len(self):,} words, {self.width} numbers each>"


def unit(rows: np.ndarray) -> np.ndarray:
    """Each row with length one, however large or small its numbers are; zeros stay zeros."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=-1, keepdims=True)  # squares of float32 need the room
    with np.errstate(invalid="ignore"):  # of a row that is infinite
        unit_rows: np.ndarray = (rows / np.where(lengths == 0, 1, lengths)).astype(rows.dtype)
    return unit_rows


def as_word_vectors(pipe: Any) -> WordVectors:
    """A pipeline, if it is one of these."""
    if not isinstance(pipe, WordVectors):
        raise InputError(say("vectors.no_table", title=pipe.title))
    return pipe
