"""The vectors that a model has for the words of sentences, by the choices that people make among its layers.

Of a model that reads pieces of words, a word has the vector of its first piece. A word of which a model sees nothing
has zeros, so that all models are asked about the same words.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.pipeline import Pipeline, TextPipeline, WordVectors
from clearhead.pipeline.words import WordPipeline
from clearhead.studies.frozen import encoder, frozen, longest
from clearhead.studies.study import OnProgress, silent
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.padding import IGNORED
from clearhead.train.objectives.tagging import Tagging

Sentences = Sequence[Sequence[str]]
Kept = dict[str, np.ndarray]  # name -> (words of all sentences, width)

# From what is kept of each word to the vector of a choice. The embedding is what enters the first layer.
CHOICES: dict[str, Callable[[Kept], np.ndarray]] = {
    "embeddings": lambda kept: kept["embeddings"],
    "second to last": lambda kept: kept["-2"],
    "last": lambda kept: kept["-1"],
    "sum of last four": lambda kept: kept["-1"] + kept["-2"] + kept["-3"] + kept["-4"],
    "last four, joined": lambda kept: np.concatenate([kept[f"-{n}"] for n in (4, 3, 2, 1)], axis=1),
    "sum of all": lambda kept: kept["sum"],
}


@dataclass(frozen=True)
class WordFeatures:
    """What one model says of the words of several sets of sentences.

    layers    of the model; 0 where a word has one vector, whatever stands around it
    kept      for each set: from a name to (words, width)
    choices   from what was kept to one vector for each word
    seconds   that reading took; cached: the vectors were on disk already
    """

    model: str
    layers: int
    kept: dict[str, Kept]
    choices: dict[str, Callable[[Kept], np.ndarray]]
    seconds: float
    cached: bool


def word_features(
    pipe: Pipeline,
    sets: Mapping[str, Sentences],
    *,
    cache: str | os.PathLike[str] | None = None,
    on_progress: OnProgress = silent,
) -> WordFeatures:
    """sets: sentences, each a list of words, under names such as "train" and "test"."""
    began = time.perf_counter()
    if isinstance(pipe, WordPipeline):
        layers = len(pipe.model.output_stack.layers)
        kept = {name: _of_words(pipe, sentences, on_progress) for name, sentences in sets.items()}
        choices, cached = _layer_choices(layers), False
    elif isinstance(pipe, TextPipeline):
        layers = len(encoder(pipe).output_stack.layers)
        if layers < 4:
            raise InputError(f"The six choices need four layers or more; {pipe.name or 'this model'} has {layers}.")
        read = {name: _of_pieces(pipe, sentences, cache, on_progress) for name, sentences in sets.items()}
        kept = {name: found for name, (found, _) in read.items()}
        choices, cached = CHOICES, all(was_there for _, was_there in read.values())
    elif isinstance(pipe, WordVectors):
        layers, cached = 0, False
        kept = {name: {"words": _of_table(pipe, sentences)} for name, sentences in sets.items()}
        choices = {"word vectors": lambda kept: kept["words"]}
    else:
        raise InputError(f"{pipe.title} has no vectors of words to compare.")
    return WordFeatures(pipe.name, layers, kept, choices, time.perf_counter() - began, cached)


def _of_table(vectors: WordVectors, sentences: Sentences) -> np.ndarray:
    """As it is written, or else in lower case; zeros for a word that the table does not have."""
    rows = np.zeros((sum(map(len, sentences)), vectors.width), np.float32)
    for n, word in enumerate(word for words in sentences for word in words):
        if (row := vectors.words.find_any_case(word)) >= 0:
            rows[n] = vectors.table[row].float().numpy()
    return rows


# ---- models that read words (ELMo)


def _layer_choices(layers: int) -> dict[str, Callable[[Kept], np.ndarray]]:
    names = [str(n) for n in range(layers + 1)]
    choices: dict[str, Callable[[Kept], np.ndarray]] = {"words alone": _once}
    choices |= {f"layer {n}": (lambda kept, n=n: kept[n]) for n in names[1:]}  # type: ignore[misc]
    choices["mean of all"] = lambda kept: np.mean([kept[n] for n in names], axis=0)
    choices["all, joined"] = lambda kept: np.concatenate([_once(kept), *(kept[n] for n in names[1:])], axis=1)
    return choices


def _once(kept: Kept) -> np.ndarray:
    """The words alone, which layer 0 has twice."""
    return kept["0"][:, : kept["0"].shape[1] // 2]


def _of_words(pipe: WordPipeline, sentences: Sentences, on_progress: OnProgress, together: int = 256) -> Kept:
    found: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(sentences), together):
        some = [list(words) for words in sentences[start : start + together]]
        on_progress("Reading", start, len(sentences))
        for words, layers in zip(some, pipe.embed_words(some), strict=True):
            for n, vectors in enumerate(layers[:, : len(words)].float().numpy()):
                found.setdefault(str(n), []).append(vectors)
    on_progress("Reading", len(sentences), len(sentences))
    return {name: np.concatenate(rows) for name, rows in found.items()}


# ---- models that read pieces of words


def _of_pieces(
    pipe: TextPipeline, sentences: Sentences, cache: str | os.PathLike[str] | None, on_progress: OnProgress
) -> tuple[Kept, bool]:
    """And whether they were on disk already."""
    most = max(map(len, sentences))
    reader = Tagging(pipe.tokenizer, longest(pipe), labels=[str(n) for n in range(most)])  # a word's tag is its place
    examples: list[Example] = []
    begins: list[int] = []  # of the sentence that each example is of, counted in words of all sentences
    total = 0
    for words in sentences:
        made = list(reader.encode({"tokens": list(words), "tags": [str(n) for n in range(len(words))]}))
        examples += made
        begins += [total] * len(made)
        total += len(words)
    read = frozen(pipe, reader, examples, _first_pieces, "words for tagging", cache=cache, on_progress=on_progress)
    kept: Kept = {}
    for name, rows in read.vectors.items():
        kept[name] = np.zeros((total, rows[0].shape[-1]), rows[0].dtype)
        for example, begin, vectors in zip(examples, begins, rows, strict=True):
            labels: Any = example["labels"]
            kept[name][begin + labels[labels != IGNORED]] = vectors
    return kept, read.cached


def _first_pieces(states: tuple[Tensor, ...], batch: Batch) -> dict[str, list[Tensor]]:
    """Of each word's first piece: the embedding, the last four layers, and the sum of all layers."""
    first = batch.inputs["labels"] != IGNORED
    taken = {"embeddings": states[0], "sum": torch.stack(states[1:]).sum(0)} | {
        f"-{n}": states[-n] for n in range(1, 5)
    }
    return {name: [row[kept] for row, kept in zip(state, first, strict=True)] for name, state in taken.items()}
