"""Which neuron knows it? Every neuron is held against a property of the text (inside a quotation, how many tokens so
far), and those that follow it best are tried on texts that had no part in choosing them.

Among thousands of neurons some agree with anything by chance. So every second text chooses (the correlation `found`;
of a single text its first half), and the others judge: `correlation`, and for a property that is there or not the
balanced accuracy of the plainest rule, a threshold half-way between the neuron's two means on the choosing texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import numpy as np

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.activations import Activations, StackSide, check_side, corpus_activations
from clearhead.explain.capabilities import has_neurons, has_tokenizer, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices, checked_count
from clearhead.explain.question import Question
from clearhead.explain.settings import LAYERS, Setting, count
from clearhead.explain.text_properties import YES_OR_NO, Property, property_of
from clearhead.explain.word_choice import lines_of
from clearhead.messages import say
from clearhead.pipeline import Pipeline
from clearhead.units import Unit

EXCERPT = 120  # tokens of a text that is shown


@dataclass(frozen=True)
class ProbedNeuron:
    """
    found         its correlation with the property on the texts that chose it
    correlation   on the others
    accuracy      on the others, of a threshold: the mean of how often it is right where the property holds and where
                  it does not (0.5 is guessing); None for a count
    """

    layer: int
    neuron: int
    found: float
    correlation: float
    accuracy: float | None


@dataclass(frozen=True, repr=False, eq=False)
class NeuronProbe(Finding):
    """
    neurons       those that followed the property best on the choosing texts, the best first
    total         how many were tried
    texts         how many texts judged, and how many tokens of them in `token_count`
    mean          of the property over these tokens: how often it holds, or how large the count is
    tokens        a judging text in which the property changes, or the beginning of it
    values        the property at each of its tokens; nan at special ones
    activations   (neurons, tokens) there
    """

    kind: ClassVar[str] = "neuron-probe"

    model: str
    side: StackSide | None
    property: Property
    neurons: list[ProbedNeuron]
    total: int
    texts: int
    token_count: int
    mean: float
    tokens: Sequence[Unit]
    values: np.ndarray
    activations: np.ndarray

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["layer", "neuron", "property", "found", "correlation", "accuracy"]
        for one in self.neurons:
            accuracy = "" if one.accuracy is None else one.accuracy
            yield [one.layer, one.neuron, self.property, one.found, one.correlation, accuracy]


def neuron_probe(
    pipe: Pipeline,
    texts: Iterable[str],
    property: Property = "position",
    layers: Indices = None,
    *,
    top: int = 8,
    batch_size: int = 16,
    side: StackSide | None = None,
) -> NeuronProbe:
    """The neurons that follow a property of the text best, over a corpus.

    property   "inside-quotes", "inside-brackets", "position" (how many tokens so far), "sentence-position" (since the
               last sentence ended)
    side       of an encoder–decoder: by default the encoder, which reads the texts; for the decoder each text is a pair
               (source, target)
    """
    if property not in get_args(Property):
        known = get_args(Property)
        raise InputError(
            say("explain.no_property", name=repr(property), known=known, near=did_you_mean(str(property), known))
        )
    checked_count("top", top), checked_count("batch_size", batch_size)
    if isinstance(texts, str):
        raise InputError(say("explain.texts_is_a_list"))
    corpus = list(texts)
    if not corpus:
        raise InputError(say("explain.no_texts"))
    side = check_side(pipe, side, "encoder")
    halves = [_half(pipe, corpus, n, property, layers, side, batch_size) for n in (0, 1)]
    choosing = _Sums()
    names: list[tuple[int, int]] = []
    for one, values in halves[0]:
        choosing.add(one.activations, values)
        names = names or [one.name(n) for n in range(len(one.activations))]
    found = choosing.correlation(property)
    rows = [int(n) for n in np.argsort(-np.abs(found), kind="stable")[:top]]
    judged = _Judged.of(halves[1], rows)
    accuracy: Sequence[float | None] = [None] * len(rows)
    if property in YES_OR_NO:
        accuracy = judged.accuracy(choosing.threshold()[rows], found[rows] > 0)
    neurons = [
        ProbedNeuron(names[n][0], names[n][1], float(found[n]), correlation, right)
        for n, correlation, right in zip(rows, judged.correlation(property), accuracy, strict=True)
    ]
    return NeuronProbe(
        pipe.name, side, property, neurons, len(found), max(1, len(corpus) // 2), len(judged.values),
        float(judged.values.mean()), *judged.shown,
    )  # fmt: skip


def _half(
    pipe: Pipeline, corpus: list[Any], which: int, property: Property, layers: Indices, side: StackSide | None,
    batch_size: int,
) -> Iterator[tuple[Activations, np.ndarray]]:  # fmt: skip
    """Every second text, with its property; of a single text, one half of it."""
    alone = len(corpus) == 1
    for one in corpus_activations(pipe, corpus if alone else corpus[which::2], layers, side, batch_size):
        values, half = property_of(property, one.tokens), slice(None)
        if alone:
            middle = len(values) // 2
            half = slice(middle, None) if which else slice(middle)
        yield replace(one, tokens=one.tokens[half], activations=one.activations[:, half]), values[half]


class _Sums:
    """What a correlation needs, added up text by text; nothing is kept of the texts themselves."""

    def __init__(self) -> None:
        self.count, self.y, self.yy = 0, 0.0, 0.0
        self.x: Any = 0.0
        self.xx: Any = 0.0
        self.xy: Any = 0.0

    def add(self, activations: np.ndarray, values: np.ndarray) -> None:
        """activations (neurons, tokens), values (tokens,)"""
        counts = np.isfinite(values)
        x, y = activations[:, counts].astype(np.float64), values[counts]
        self.count, self.y, self.yy = self.count + len(y), self.y + y.sum(), self.yy + (y * y).sum()
        self.x, self.xx, self.xy = self.x + x.sum(1), self.xx + (x * x).sum(1), self.xy + x @ y

    def correlation(self, property: Property) -> np.ndarray:
        """(neurons,); 0 for one that never changes."""
        spread = self.count * self.yy - self.y**2
        if not self.count or spread <= 1e-9 * max(1.0, self.count * self.yy):
            raise InputError(say("explain.property_never_changes", property=property))
        own = np.maximum(self.count * self.xx - self.x**2, 0.0)
        scale = np.sqrt(own * spread)
        still = own <= 1e-9 * np.maximum(self.count * self.xx, 1e-12)
        together = self.count * self.xy - self.x * self.y
        result: np.ndarray = np.where(still, 0.0, together / np.where(scale > 0, scale, 1.0))
        return result

    def threshold(self) -> np.ndarray:
        """(neurons,): half-way between a neuron's mean where a yes-or-no property holds and where it does not."""
        holds, not_there = self.y or 1.0, (self.count - self.y) or 1.0
        middle: np.ndarray = (self.xy / holds + (self.x - self.xy) / not_there) / 2
        return middle


@dataclass(frozen=True)
class _Judged:
    """The chosen neurons on the judging texts.

    activations   (neurons, tokens that count); values (tokens that count,)
    shown         the beginning of a text in which the property changes: its tokens, the property, the activations
    """

    activations: np.ndarray
    values: np.ndarray
    shown: tuple[Sequence[Unit], np.ndarray, np.ndarray]

    @classmethod
    def of(cls, texts: Iterator[tuple[Activations, np.ndarray]], rows: list[int]) -> _Judged:
        kept, known, shown, most = [], [], None, -1.0
        for one, values in texts:
            counts, activations = np.isfinite(values), one.activations[rows]
            kept.append(activations[:, counts])
            known.append(values[counts])
            begin = values[:EXCERPT]
            changes = float(np.nanstd(begin)) if counts[:EXCERPT].any() else 0.0
            if changes > most:
                shown, most = (one.tokens[:EXCERPT], begin, activations[:, :EXCERPT]), changes
        assert shown is not None
        return cls(np.concatenate(kept, axis=1), np.concatenate(known), shown)

    def correlation(self, property: Property) -> list[float]:
        sums = _Sums()
        sums.add(self.activations, self.values)
        return [float(r) for r in sums.correlation(property)]

    def accuracy(self, threshold: np.ndarray, rising: np.ndarray) -> list[float]:
        holds = self.values > 0.5
        says = (self.activations > threshold[:, None]) == rising[:, None]
        both = says[:, holds].mean(1), (~says[:, ~holds]).mean(1)
        return [float(right) for right in (both[0] + both[1]) / 2]


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, property: Property, layers: Indices, k: int) -> NeuronProbe:
    side: StackSide | None = "encoder" if pipe.model.is_encoder_decoder else None
    return neuron_probe(pipe, lines_of(text), property, layers, top=k, side=side)


QUESTION = Question(
    name="neuron-probe", kind="neuron-probe", group="neurons", answer=_answer,
    checks=(reads_one_input, has_tokenizer, has_neurons),
    params=(
        Setting(name="property", key="neuron-probe.property", type=Property, default="position"),
        replace(LAYERS, key="layers"), count("neuron-probe.k", 8),
    ),
)  # fmt: skip
