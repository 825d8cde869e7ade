"""Which layer's vectors to use: the six classic choices of features, compared on tagging.

The BERT paper (Devlin et al. 2018, table 7) and "The Illustrated BERT" (Alammar 2018) feed frozen vectors to a tagger
and compare names found. There the tagger is a two-layer BiLSTM; here it is a linear softmax on each word's own vector
(a probe), so that what is measured is what the vectors say by themselves, and an afternoon becomes minutes.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.pipeline import TextPipeline
from clearhead.studies.frozen import Frozen, encoder, frozen, longest
from clearhead.studies.probe import fitted, logistic_regression, scikit_learn
from clearhead.studies.study import OnProgress, Study, silent
from clearhead.train.data.formats import ENDINGS
from clearhead.train.data.sources import Source, open_source
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.padding import IGNORED
from clearhead.train.objectives.tagging import OUTSIDE, Tagging, entity_sums

STRENGTH, STEPS = 0.01, 200  # of the probe: chosen on held-out tweets, the same for every choice

# From what is kept of each word to the vector of a choice. The embedding is what enters the first layer.
CHOICES: dict[str, Callable[[Frozen], np.ndarray]] = {
    "embeddings": lambda kept: kept["embeddings"],
    "second to last": lambda kept: kept["-2"],
    "last": lambda kept: kept["-1"],
    "sum of last four": lambda kept: kept["-1"] + kept["-2"] + kept["-3"] + kept["-4"],
    "last four, joined": lambda kept: np.concatenate([kept[f"-{n}"] for n in (4, 3, 2, 1)], axis=1),
    "sum of all": lambda kept: kept["sum"],
}


@dataclass(frozen=True)
class FeatureScore:
    """How well names are found from one choice of features."""

    features: str
    width: int
    f1: float  # of whole names, as conlleval counts them
    precision: float
    recall: float
    accuracy: float  # of words
    seconds: float  # to fit and to try


@dataclass(frozen=True, repr=False, eq=False)
class FeaturesStudy(Study):
    """
    outside   the accuracy of words that calling none a name would get (its F1 is 0)
    seconds   for reading all sentences
    cached    the vectors were on disk already
    """

    kind: ClassVar[str] = "features-study"

    model: str
    layers: int
    tags: list[str]
    train_words: int
    test_words: int
    outside: float
    rows: list[FeatureScore]
    seconds: float
    cached: bool


def features(
    pipe: TextPipeline,
    train: Any,
    test: Any,
    *,
    limit: int | None = None,
    strength: float = STRENGTH,
    steps: int = STEPS,
    cache: str | os.PathLike[str] | None = None,
    on_progress: OnProgress = silent,
) -> FeaturesStudy:
    """Compare the six choices on a tagging task. A word's vector is that of its first piece.

    train, test   CoNLL files, or anything else with tokens and tags
    limit         so many training sentences and no more
    cache         a folder for the vectors (large: six for every word); None: nothing is kept
    """
    scikit_learn("linear_model")  # a missing one is better told before the long part
    layers = len(encoder(pipe).output_stack.layers)
    if layers < 4:
        raise InputError(f"The six choices need four layers or more; {pipe.name or 'this model'} has {layers}.")
    sources = {"train": _source(train), "test": _source(test)}
    objective = Tagging(pipe.tokenizer, longest(pipe))
    objective.learn_labels(sources["train"].records())
    began = time.perf_counter()
    examples = {part: _examples(objective, s, limit if part == "train" else None) for part, s in sources.items()}
    read = {part: frozen(pipe, objective, rows, _keep, "words for tagging", cache=cache, on_progress=on_progress)
            for part, rows in examples.items()}  # fmt: skip
    reading = time.perf_counter() - began
    wanted = {part: [_tagged(example) for example in rows] for part, rows in examples.items()}
    tags = np.concatenate(wanted["train"])
    if len(set(tags.tolist())) < 2:
        raise InputError(f"All words of {sources['train'].name} have the same tag; there is nothing to learn.")
    rows = []
    for n, name in enumerate(CHOICES):
        on_progress(f"Fitting: {name}", n, len(CHOICES))
        began = time.perf_counter()
        x = CHOICES[name](read["train"])
        probe = fitted(logistic_regression(True, strength, steps), x, tags)
        guesses = probe.predict(CHOICES[name](read["test"]))
        metrics = judged(objective, guesses, wanted["test"])
        f1, precision, recall, accuracy = (metrics[key] for key in ("f1", "precision", "recall", "accuracy"))
        seconds = time.perf_counter() - began
        rows.append(FeatureScore(name, x.shape[1], f1, precision, recall, accuracy, seconds))
    on_progress("Fitting", len(CHOICES), len(CHOICES))
    words = np.concatenate(wanted["test"])
    names = objective.labels.names
    return FeaturesStudy(
        model=pipe.name,
        layers=layers,
        tags=names,
        train_words=len(tags),
        test_words=len(words),
        outside=float((words == names.index(OUTSIDE)).mean()) if OUTSIDE in names else 0.0,
        rows=rows,
        seconds=reading,
        cached=all(part.cached for part in read.values()),
    )


def judged(objective: Tagging, guesses: np.ndarray, labels: list[np.ndarray]) -> dict[str, float]:
    """Precision, recall and F1 of whole names, sentence by sentence: the tagging objective's own arithmetic."""
    names, sums = objective.labels.names, dict[str, float]()
    row_ends = np.cumsum([len(row) for row in labels])[:-1].tolist()
    for chosen, row_labels in zip(np.split(guesses, row_ends), labels, strict=True):
        for key, value in entity_sums([names[n] for n in chosen], [names[n] for n in row_labels]).items():
            sums[key] = sums.get(key, 0.0) + value
    return dict.fromkeys(("f1", "precision", "recall"), 0.0) | objective.report(sums)


def _source(data: Any) -> Source:
    """A file whose name says nothing of its kind is a CoNLL file."""
    known = not isinstance(data, str | os.PathLike) or str(data).startswith("hf:")
    return open_source(data, format=None if known or str(data).endswith(tuple(ENDINGS)) else "conll")


def _examples(objective: Tagging, source: Source, limit: int | None) -> list[Example]:
    return [example for record in itertools.islice(source.records(), limit) for example in objective.encode(record)]


def _tagged(example: Example) -> np.ndarray:
    labels: np.ndarray = example["labels"]
    return labels[labels != IGNORED]


def _keep(states: tuple[Tensor, ...], batch: Batch) -> dict[str, list[Tensor]]:
    """Of each word's first piece: the embedding, the last four layers, and the sum of all layers."""
    first = batch.inputs["labels"] != IGNORED
    taken = {"embeddings": states[0], "sum": torch.stack(states[1:]).sum(0)} | {
        f"-{n}": states[-n] for n in range(1, 5)
    }
    return {name: [row[kept] for row, kept in zip(state, first, strict=True)] for name, state in taken.items()}
