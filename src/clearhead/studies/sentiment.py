"""Sentiment from a frozen encoder: sentence vectors, a logistic regression, and what fine-tuning adds.

The pipeline of "A Visual Guide to Using BERT for the First Time" (Alammar 2019): 2,000 sentences of SST-2, the vector
of [CLS], scikit-learn. Beside it the mean of all tokens, and the same encoder fine-tuned on every sentence.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from clearhead.errors import InputError
from clearhead.models.sentence import Pooling
from clearhead.pipeline import TextPipeline
from clearhead.studies.frozen import Frozen, frozen, longest
from clearhead.studies.probe import logistic_regression, scikit_learn
from clearhead.studies.study import OnProgress, Study, silent
from clearhead.train import train as run_recipe
from clearhead.train.data.sources import Source, open_source
from clearhead.train.data.types import Batch, Example
from clearhead.train.engine.log import Event, Watcher
from clearhead.train.objectives.classification import Classification

POOLINGS = {"[CLS]": Pooling(("cls",)), "mean": Pooling(("mean",))}
FINE_TUNED = "fine-tuned"


@dataclass(frozen=True)
class ClassifierScore:
    """
    accuracy       the mean over the folds of cross-validation, and its standard deviation, `std`
    standardised   the same mean for features brought to mean 0 and variance 1 first
    test           on the test file, which nothing was fitted to

    None: not measured.
    """

    features: str
    sentences: int  # that were learned from
    accuracy: float | None
    std: float | None
    standardised: float | None
    test: float | None


@dataclass(frozen=True, repr=False, eq=False)
class SentimentStudy(Study):
    """
    majority   what always saying the commoner label would get, in cross-validation and on the test file
    seconds    for reading the sentences, for the regressions, for fine-tuning
    cached     the vectors were on disk already
    """

    kind: ClassVar[str] = "sentiment-study"

    model: str
    folds: int
    labels: list[str]
    majority: float
    majority_test: float | None
    rows: list[ClassifierScore]
    seconds: dict[str, float]
    cached: bool


def sentiment(
    pipe: TextPipeline,
    train: Any,
    test: Any = None,
    *,
    sentences: int = 2000,
    folds: int = 5,
    columns: Mapping[str, str | int] | None = None,
    cache: str | os.PathLike[str] | None = None,
    fine_tune: str | os.PathLike[str] | None = None,
    valid: Any = None,
    settings: Iterable[str] = (),
    on_progress: OnProgress = silent,
    watchers: Iterable[Watcher] = (),
) -> SentimentStudy:
    """How well a regression on frozen vectors tells the labels apart, and optionally how much fine-tuning adds.

    train, test   files of labelled sentences (as a recipe names data); by default column 0 is the text, 1 the label
    sentences     so many from the beginning of `train` are used for the regression
    cache         a folder for the vectors; None: nothing is kept
    fine_tune     a folder: the encoder is fine-tuned on all of `train` there, and measured on `test`
    valid         held-out sentences that the best step of fine-tuning is chosen by; without them it is the last
    settings      `key=value` on top of the fine-tuning recipe
    """
    scikit_learn("linear_model")  # a missing one is better told before the long part
    if fine_tune is not None and not pipe.name:
        raise InputError("Fine-tuning begins from a checkpoint: give a model that was loaded from a folder or a name.")
    sources = {"train": _source(train, columns)} | ({} if test is None else {"test": _source(test, columns)})
    objective = Classification(pipe.tokenizer, longest(pipe))
    objective.learn_labels(sources["train"].records())
    began = time.perf_counter()
    examples = {
        "train": _examples(objective, sources["train"], sentences),
        **({"test": _examples(objective, sources["test"])} if "test" in sources else {}),
    }
    read = {part: _vectors(pipe, objective, rows, cache, on_progress) for part, rows in examples.items()}
    reading = time.perf_counter() - began
    wanted = {part: np.array([example["label"] for example in rows]) for part, rows in examples.items()}
    _check_folds(wanted["train"], folds, objective)

    began = time.perf_counter()
    rows = []
    for n, name in enumerate(POOLINGS):
        on_progress("Regression", n, len(POOLINGS))
        rows.append(_score(name, read, wanted, folds))
    on_progress("Regression", len(POOLINGS), len(POOLINGS))
    seconds = {"reading": reading, "regressions": time.perf_counter() - began}
    if fine_tune is not None:
        began = time.perf_counter()
        rows.append(_fine_tuned(pipe, train, test, valid, columns, Path(fine_tune), settings, watchers))
        seconds["fine-tuning"] = time.perf_counter() - began
    commonest = Counter(wanted["train"].tolist()).most_common(1)[0][0]
    return SentimentStudy(
        model=pipe.name,
        folds=folds,
        labels=objective.labels.names,
        majority=float((wanted["train"] == commonest).mean()),
        majority_test=float((wanted["test"] == commonest).mean()) if "test" in wanted else None,
        rows=rows,
        seconds=seconds,
        cached=all(part.cached for part in read.values()),
    )


def _source(data: Any, columns: Mapping[str, str | int] | None) -> Source:
    return open_source(data, columns=_columns(data, columns))


def _columns(data: Any, columns: Mapping[str, str | int] | None) -> dict[str, str | int] | None:
    """By default the first two columns of a table; rows of JSON have names."""
    if columns is not None:
        return dict(columns)
    named = isinstance(data, Mapping) or (isinstance(data, str) and data.startswith("hf:"))
    return None if named or str(data).endswith((".jsonl", ".json")) else {"text": 0, "label": 1}


def _examples(objective: Classification, source: Source, limit: int | None = None) -> list[Example]:
    return [example for record in itertools.islice(source.records(), limit) for example in objective.encode(record)]


def _vectors(
    pipe: TextPipeline, objective: Classification, examples: list[Example], cache: Any, on_progress: OnProgress
) -> Frozen:
    def keep(states: tuple[Tensor, ...], batch: Batch) -> dict[str, list[Tensor]]:
        mask = batch.inputs["attention_mask"]
        return {name: list(pool(states[-1], mask)) for name, pool in POOLINGS.items()}

    return frozen(pipe, objective, examples, keep, "cls, mean of the last layer", cache=cache, on_progress=on_progress)


def _check_folds(labels: np.ndarray, folds: int, objective: Classification) -> None:
    counts = Counter(labels.tolist())
    rarest, count = min(((n, counts.get(n, 0)) for n in range(len(objective.labels))), key=lambda pair: pair[1])
    if len(objective.labels) < 2 or folds < 2 or count < folds:
        raise InputError(
            f"Cross-validation in {folds} parts needs two labels or more, and each at least {max(folds, 2)} times; "
            f"{objective.labels.names[rarest]!r} occurs {count} times in the {len(labels)} sentences that are used."
        )


def _score(name: str, read: dict[str, Frozen], labels: dict[str, np.ndarray], folds: int) -> ClassifierScore:
    """Cross-validated on the training sentences; then fitted to all of them, and measured on the test file."""
    x, y = read["train"][name], labels["train"]
    validated = scikit_learn("model_selection").cross_val_score
    scores = validated(logistic_regression(), x, y, cv=folds)
    standardised = validated(logistic_regression(standardised=True), x, y, cv=folds)
    test = None
    if "test" in read:
        test = float(logistic_regression().fit(x, y).score(read["test"][name], labels["test"]))
    return ClassifierScore(name, len(y), float(scores.mean()), float(scores.std()), float(standardised.mean()), test)


def _fine_tuned(
    pipe: TextPipeline,
    train: Any,
    test: Any,
    valid: Any,
    columns: Mapping[str, str | int] | None,
    out: Path,
    settings: Iterable[str],
    watchers: Iterable[Watcher],
) -> ClassifierScore:
    recipe = {
        "objective": "classification",
        "out": str(out),
        "data": {"train": train, "test": test, "valid": valid, "columns": _columns(train, columns) or {}},
        "model": {"start": pipe.name},
        "batch": {"tokens": 512, "length": min(128, longest(pipe))},  # some 20 sentences of like lengths
        "optimizer": {"lr": 1e-4, "weight_decay": 0.01, "layer_decay": 0.9},
        "schedule": {"name": "linear", "warmup": 0.1},
        "epochs": 3,
    }
    sentences = []  # that are learned from: `settings` may take fewer

    def begun(event: Event) -> None:
        if event["event"] == "begin":
            sentences.append(event["examples"])

    done = run_recipe(recipe, settings, [*watchers, begun])
    if not done.finished:
        raise InputError(f"Fine-tuning was stopped at step {done.step}. The same command goes on from there.")
    return ClassifierScore(FINE_TUNED, sentences[-1], None, None, None, done.test.get("accuracy"))
