"""Which vectors to use: those of word vectors, of ELMo, of BERT, and of which of their layers, compared on tagging.

The BERT paper (Devlin et al. 2018, table 7) and "The Illustrated BERT" (Alammar 2018) feed frozen vectors to a tagger
and compare names found. There the tagger is a two-layer BiLSTM; here it is a linear softmax on each word's own vector
(a probe), so that what is measured is what the vectors say by themselves, and an afternoon becomes minutes.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.pipeline import Pipeline
from clearhead.studies.learned_mix import learned_mix
from clearhead.studies.probe import fitted, logistic_regression, scikit_learn
from clearhead.studies.study import OnProgress, Study, silent
from clearhead.studies.word_features import WordFeatures, word_features
from clearhead.train.data.formats import ENDINGS
from clearhead.train.data.sources import Source, open_source
from clearhead.train.objectives.labels import Labels
from clearhead.train.objectives.tagging import OUTSIDE, entity_sums, tagged_words, tagging_scores

STRENGTH, STEPS = 0.01, 200  # of the probe: chosen on held-out tweets, the same for every choice
MIXED = "mixed for the task"  # weights of the layers that are learned, as ELMo's authors do it


@dataclass(frozen=True)
class FeatureScore:
    """How well names are found from one choice of features."""

    model: str
    features: str
    width: int
    f1: float  # of whole names, as conlleval counts them
    precision: float
    recall: float
    accuracy: float  # of words
    seconds: float  # to fit and to try


@dataclass(frozen=True)
class StudiedModel:
    """A model whose features were tried.

    layers    0 for word vectors, which know no context
    seconds   for reading all sentences
    cached    the vectors were on disk already
    shares    of each layer in the mix that was learned, from the words alone up; empty where none was
    """

    name: str
    layers: int
    seconds: float
    cached: bool
    shares: list[float]


@dataclass(frozen=True, repr=False, eq=False)
class FeaturesStudy(Study):
    """
    outside   the accuracy of words that calling none a name would get (its F1 is 0)
    """

    kind: ClassVar[str] = "features-study"

    models: list[StudiedModel]
    tags: list[str]
    train_words: int
    test_words: int
    outside: float
    rows: list[FeatureScore]


def features(
    pipes: Pipeline | Sequence[Pipeline],
    train: Any,
    test: Any,
    *,
    limit: int | None = None,
    strength: float = STRENGTH,
    steps: int = STEPS,
    cache: str | os.PathLike[str] | None = None,
    on_progress: OnProgress = silent,
) -> FeaturesStudy:
    """Compare the choices of one model, or of several, on a tagging task.

    pipes         of an encoder six choices, of which a word's vector is that of its first piece; of ELMo each layer,
                  their mean, all of them, and a mix that is learned; of word vectors the word's own
    train, test   CoNLL files, or anything else with tokens and tags
    limit         so many training sentences and no more
    cache         a folder for an encoder's vectors (large: six for every word); None: nothing is kept
    """
    scikit_learn("linear_model")  # a missing one is better told before the long part
    sources = {"train": _source(train), "test": _source(test)}
    records = {
        part: list(itertools.islice(source.records(), limit if part == "train" else None))
        for part, source in sources.items()
    }
    tags = Labels()
    tags.learn((tag for record in records["train"] for tag in tagged_words(record)[1]), first=OUTSIDE)
    labels = {
        part: [np.array([tags.number(one, "tags", tag) for tag in tagged_words(one)[1]]) for one in some]
        for part, some in records.items()
    }
    train_labels, test_labels = (np.concatenate(labels[part]) for part in ("train", "test"))
    if len(set(train_labels.tolist())) < 2:
        raise InputError(f"All words of {sources['train'].name} have the same tag; there is nothing to learn.")
    sentences = {part: [tagged_words(record)[0] for record in some] for part, some in records.items()}
    models, rows = [], []
    for pipe in [pipes] if isinstance(pipes, Pipeline) else pipes:
        found = word_features(pipe, sentences, cache=cache, on_progress=on_progress)
        shares = _mixed(found, train_labels) if "layer 1" in found.choices else []
        models.append(StudiedModel(found.model, found.layers, found.seconds, found.cached, shares))
        for n, name in enumerate(found.choices):
            on_progress(f"Fitting: {found.model or 'the model'}, {name}", n, len(found.choices))
            probe = logistic_regression(True, strength, steps)
            rows.append(_score(found, name, probe, train_labels, labels["test"], tags.names))
        on_progress("Fitting", len(found.choices), len(found.choices))
    outside = float((test_labels == tags.names.index(OUTSIDE)).mean()) if OUTSIDE in tags.names else 0.0
    return FeaturesStudy(models, tags.names, len(train_labels), len(test_labels), outside, rows)


def _mixed(found: WordFeatures, labels: np.ndarray) -> list[float]:
    """Learn the weights of a model's layers, and add their mix to its choices."""
    names = [str(n) for n in range(found.layers + 1)]
    shares = learned_mix([found.kept["train"][name] for name in names], labels).tolist()
    parts = list(zip(shares, names, strict=True))
    found.choices[MIXED] = lambda kept: np.sum([share * kept[name] for share, name in parts], axis=0)
    return shares


def _score(
    found: WordFeatures, name: str, probe: Any, train: np.ndarray, test: list[np.ndarray], tags: list[str]
) -> FeatureScore:
    """train, test: labels; those of the test sentence by sentence."""
    began = time.perf_counter()
    x = found.choices[name](found.kept["train"])
    probe = fitted(probe, x, train)
    scores = judged(tags, probe.predict(found.choices[name](found.kept["test"])), test)
    f1, precision, recall, accuracy = (scores[key] for key in ("f1", "precision", "recall", "accuracy"))
    seconds = time.perf_counter() - began
    return FeatureScore(found.model, name, x.shape[1], f1, precision, recall, accuracy, seconds)


def judged(tags: list[str], predictions: np.ndarray, labels: list[np.ndarray]) -> dict[str, float]:
    """Precision, recall and F1 of whole names, sentence by sentence: the tagging objective's own arithmetic."""
    sums = dict[str, float]()
    row_ends = np.cumsum([len(row) for row in labels])[:-1].tolist()
    for predicted, gold in zip(np.split(predictions, row_ends), labels, strict=True):
        for key, value in entity_sums([tags[n] for n in predicted], [tags[n] for n in gold]).items():
            sums[key] = sums.get(key, 0.0) + value
    return dict.fromkeys(("f1", "precision", "recall"), 0.0) | tagging_scores(sums, tags)


def _source(data: Any) -> Source:
    """A file whose name says nothing of its kind is a CoNLL file."""
    known = not isinstance(data, str | os.PathLike) or str(data).startswith("hf:")
    return open_source(data, format=None if known or str(data).endswith(tuple(ENDINGS)) else "conll")
