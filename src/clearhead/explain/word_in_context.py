"""A word in context: the vectors that one word gets in several sentences, on a plane (PCA), and how alike they are.

A table of word vectors has one row for "bank", whatever stands around it. A model that reads the sentence gives every
use a vector of its own; how far these part is what the word's meanings are to the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from clearhead.errors import ClearheadError, InputError
from clearhead.explain.capabilities import reads_one_input, reads_text
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices, checked_indices
from clearhead.explain.layer_states import layer_states, read_for_states, text_spans
from clearhead.explain.neighbours import Neighbours, neighbours
from clearhead.explain.question import Question
from clearhead.explain.settings import LAYERS, ModelSetting, Setting
from clearhead.explain.word_map import principal_components
from clearhead.explain.word_table import word_table
from clearhead.messages import say
from clearhead.pipeline import Pipeline
from clearhead.pipeline.word_vectors import unit
from clearhead.text.words import Word, words_of

MOST = 100  # uses of a word
NEAR = 8  # neighbours of the one row of a table
_POSSESSIVE = re.compile(r"['’]s$")


@dataclass(frozen=True)
class WordUse:
    """One use: its sentence, where the word stands in it (characters), and of which group it is, counted from 0."""

    sentence: str
    start: int
    end: int
    group: int


@dataclass(frozen=True, repr=False, eq=False)
class WordInContext(Finding):
    """
    word        the word whose uses are looked at
    layers      whose states are the vectors, 0 is the embedding; several are averaged
    of_layers   how many layers the model has
    ahead       whether the model sees what comes after the word
    vectors     (uses, width): the mean of the word's pieces
    places      (uses, 2): on the plane that keeps most of the differences, from the uses' middle
    explained   the share of all differences that each of the two directions keeps
    cosines     (uses, uses)
    within      the mean cosine of two uses of one group; None where there are no groups, or of one use each
    across      the same of two uses of different groups
    at_home     of how many uses the nearest other use is of their own group; None where there are no groups
    table_row   what the word is without any context: its one row in a table, and the words near it; None: there is none
    """

    kind: ClassVar[str] = "word-in-context"

    model: str
    word: str
    layers: list[int]
    of_layers: int
    ahead: bool
    uses: list[WordUse]
    vectors: np.ndarray
    places: np.ndarray
    explained: list[float]
    cosines: np.ndarray
    within: float | None
    across: float | None
    at_home: int | None
    table_row: Neighbours | None

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["use", "group", "sentence", "x", "y", *(f"use {n + 1}" for n in range(len(self.uses)))]
        for n, (use, place, cosines) in enumerate(zip(self.uses, self.places, self.cosines, strict=True), start=1):
            yield [n, use.group + 1, use.sentence, *map(float, place), *map(float, cosines)]


def word_in_context(
    pipe: Pipeline,
    sentences: str | Iterable[str],
    word: str | None = None,
    layers: Indices = -1,
    table: Pipeline | None = None,
) -> WordInContext:
    """The vectors of one word in several sentences, and how alike they are.

    sentences   a text with a sentence in each line, or a list of them. An empty line (or sentence) begins a new group,
                say of another meaning: then it is counted how well the uses part
    word        in any case; also several words. None: the longest word that all sentences have, used at least twice
    layers      0 is the embedding, n what the nth layer puts out, -1 the last. Several are averaged; None: all of them
    table       word vectors to hold it against; None: the model's own table, where the word is one token
    """
    groups = _groups(sentences)
    word = _shared_word(groups) if word is None or not word.strip() else word.strip()
    uses = [use for n, group in enumerate(groups) for use in _uses(group, word, n)]
    if len(uses) < 2:
        raise InputError(say("vectors.needs_two_uses", word=word[:60]))
    if len(uses) > MOST:
        raise InputError(say("vectors.too_many_uses", count=len(uses), most=MOST))
    of_layers = len(_stack(pipe).layers)
    chosen = checked_indices("layer", layers, of_layers + 1, say("explain.layers_from_embedding", last=of_layers))
    row = _row_of(pipe, word, table)
    vectors = _vectors(pipe, uses, chosen)
    places, explained = principal_components(vectors)
    directions = unit(vectors)
    cosines = directions @ directions.T
    parted = _parted(cosines, [use.group for use in uses])
    ahead = not _stack(pipe).causal
    return WordInContext(
        pipe.name, word, chosen, of_layers, ahead, uses, vectors, places, explained, cosines, *parted, row
    )


def _stack(pipe: Pipeline) -> Any:
    """The only stack, or the encoder."""
    return next(iter(pipe.model.stacks.values()))


# ---- where the word stands


def _groups(sentences: str | Iterable[str]) -> list[list[str]]:
    """The sentences between two empty lines."""
    lines = sentences.splitlines() if isinstance(sentences, str) else list(sentences)
    groups: list[list[str]] = [[]]
    for line in lines:
        if not isinstance(line, str):
            raise InputError(say("vectors.sentence_is_text", got=type(line).__name__))
        if line.strip():
            groups[-1].append(line.strip())
        elif groups[-1]:
            groups.append([])
    groups = [group for group in groups if group]
    if not groups:
        raise InputError(say("questions.no_text"))
    return groups


def _shared_word(groups: list[list[str]]) -> str:
    """The longest word that all sentences have; of equally long ones the first."""
    sentences = [[_plain(word) for word in words_of(line)] for group in groups for line in group]
    everywhere = set(sentences[0]).intersection(*sentences[1:])
    uses = [word for line in sentences for word in line]
    shared = [word for word in sentences[0] if word in everywhere and word[0].isalpha() and uses.count(word) > 1]
    if not shared:
        raise InputError(say("vectors.no_shared_word"))
    return max(shared, key=len)


def _uses(sentences: list[str], word: str, group: int) -> list[WordUse]:
    """Every place of the word in each sentence: whole words, in any case, also with 's behind."""
    wanted = [_plain(part) for part in words_of(word)]
    uses = []
    for sentence in sentences:
        words = words_of(sentence)
        plain = [_plain(part) for part in words]
        starts = [n for n in range(len(words)) if wanted and plain[n : n + len(wanted)] == wanted]
        if not starts:
            raise InputError(say("vectors.not_in_sentence", word=word[:60], sentence=sentence[:200]))
        for n in starts:
            last = words[n + len(wanted) - 1]
            end = last.end - len(last.text) + len(_POSSESSIVE.sub("", last.text))
            uses.append(WordUse(sentence, words[n].start, end, group))
    return uses


def _plain(word: Word) -> str:
    return _POSSESSIVE.sub("", word.text).casefold()


# ---- its vectors


def _vectors(pipe: Pipeline, uses: list[WordUse], layers: list[int]) -> np.ndarray:
    """(uses, width): of each the mean over its pieces and the layers. A sentence is read once."""
    means: dict[str, tuple[torch.Tensor, list[tuple[int, int]]]] = {}
    rows = []
    for use in uses:
        if use.sentence not in means:
            reading = read_for_states(pipe, use.sentence)
            states = layer_states(pipe, reading)
            if len({states[n].shape[-1] for n in layers}) > 1:
                raise InputError(say("vectors.layers_not_as_wide"))
            means[use.sentence] = (
                torch.stack([states[n] for n in layers]).mean(0),
                text_spans(reading, use.sentence),
            )
        states_of, spans = means[use.sentence]
        pieces = [n for n, (start, end) in enumerate(spans) if start < use.end and use.start < end]
        if not pieces:  # cut off, or a tokenizer that does not say where its tokens stand
            raise InputError(say("vectors.not_read", sentence=use.sentence[:200]))
        rows.append(states_of[pieces].mean(0).numpy())
    return np.stack(rows)


def _row_of(pipe: Pipeline, word: str, table: Pipeline | None) -> Neighbours | None:
    """The word's one row: in the table that is named, or in the model's own where it is one token."""
    if table is not None:
        return neighbours(table, word, NEAR)
    try:
        return neighbours(word_table(pipe), word, NEAR)
    except ClearheadError:  # no table of tokens, or the word is several of them
        return None


def _parted(cosines: np.ndarray, groups: list[int]) -> tuple[float | None, float | None, int | None]:
    """How alike uses of one group are, how alike those of different ones, and how many lie nearest to their own."""
    group = np.array(groups)
    same = group[:, None] == group
    if same.all():
        return None, None, None
    other = ~np.eye(len(group), dtype=bool)
    within = float(cosines[same & other].mean()) if (same & other).any() else None
    nearest = np.where(other, cosines, -np.inf).argmax(1)
    return within, float(cosines[~same].mean()), int((group[nearest] == group).sum())


# ---- as a question


def _answer(
    pipe: Pipeline, text: str, second: None, word: str | None, layers: Indices, table: Pipeline | None
) -> WordInContext:
    return word_in_context(pipe, text, word, layers, table)


QUESTION = Question(
    name="word-in-context", kind="word-in-context", group="words", answer=_answer, checks=(reads_one_input, reads_text),
    params=(
        Setting(name="word", key="word-in-context.word", type=str),
        replace(LAYERS, key="word-in-context.layers", default=[-1]),
        ModelSetting(name="table", key="word-in-context.table"),
    ),
)  # fmt: skip
