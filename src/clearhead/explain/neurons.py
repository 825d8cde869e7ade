"""What the neurons of the layers do: how strongly each fires at each token, which fire together, and what excites one
of them most over a whole corpus. What a neuron is: activations.py.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.activations import StackSide, activations_of, check_side, corpus_activations, side_or_none
from clearhead.explain.capabilities import has_neurons, has_tokenizer, need_sklearn, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices, checked_count, checked_index
from clearhead.explain.question import Question
from clearhead.explain.settings import LAYER, LAYERS, NEW_TOKENS, SEED, STACK, TARGET, Setting, count
from clearhead.explain.word_choice import lines_of
from clearhead.messages import say
from clearhead.pipeline import Pipeline
from clearhead.units import Unit


@dataclass(frozen=True, repr=False, eq=False)
class Neurons(Finding):
    """
    side          of an encoder–decoder: whose neurons; None where there is one stack
    layers        the layers looked at
    neurons       (layer, index) of those shown, the strongest first; with clusters, cluster by cluster
    total         how many the layers have together
    activations   (neurons, tokens)
    clusters      which cluster each neuron belongs to, the one with the strongest neuron first; None without
    """

    kind: ClassVar[str] = "neurons"

    model: str
    side: StackSide | None
    tokens: Sequence[Unit]
    layers: list[int]
    neurons: list[tuple[int, int]]
    total: int
    activations: np.ndarray
    clusters: list[int] | None

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["layer", "neuron", "cluster", "position", "token", "activation"]
        for n, (layer, index) in enumerate(self.neurons):
            cluster = "" if self.clusters is None else self.clusters[n]
            for i, token in enumerate(self.tokens):
                yield [layer, index, cluster, i, token.text, float(self.activations[n, i])]


@dataclass(frozen=True)
class NeuronContext:
    """A place in a corpus.

    text          which text, counted from 0
    position      of the token there
    activation    of the neuron at that token
    tokens        the token with those around it; `at` says which one it is
    activations   of the neuron at each of them
    """

    text: int
    position: int
    activation: float
    tokens: Sequence[Unit]
    at: int
    activations: list[float]

    @property
    def token(self) -> Unit:
        return self.tokens[self.at]


@dataclass(frozen=True, repr=False, eq=False)
class TopTokens(Finding):
    """
    contexts      where the neuron fires most strongly, the strongest first
    texts         how many texts were read, and how many tokens in `token_count`
    truncated     how many texts were longer than the model reads, so that only their beginning counts
    mean          activation over all tokens
    firing_rate   the share of tokens at which it is above zero
    """

    kind: ClassVar[str] = "top-tokens"

    model: str
    side: StackSide | None
    layer: int
    neuron: int
    contexts: list[NeuronContext]
    texts: int
    token_count: int
    truncated: int
    mean: float
    firing_rate: float

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["rank", "text", "position", "token", "activation", "context"]
        for rank, one in enumerate(self.contexts, start=1):
            around = "".join(token.text for token in one.tokens)
            yield [rank, one.text, one.position, one.token.text, one.activation, around]


def neurons(
    pipe: Pipeline,
    text: str,
    layers: Indices = None,
    *,
    top: int | None = 50,
    clusters: int | None = None,
    seed: int = 0,
    side: StackSide | None = None,
    pair: str | None = None,
    target: str | None = None,
    max_new_tokens: int | None = None,
) -> Neurons:
    """How strongly the neurons of some layers (all by default) fire at each token of a text.

    top              only so many, those that fire most strongly, either way, at any token; None: all of them
    clusters         put neurons that fire at the same tokens together, in so many groups (k-means, from `seed`)
    side             of an encoder–decoder: whose neurons; by default the decoder's
    target           what the model is made to write; without one, an encoder–decoder writes its own answer
    max_new_tokens   let the model go on with the text first, and look at what it writes too
    """
    fired = activations_of(pipe, text, layers, side=side, pair=pair, target=target, max_new_tokens=max_new_tokens)
    activations = fired.activations
    strength = np.abs(activations).max(axis=1)
    chosen = np.argsort(-strength, kind="stable")[: checked_count("top", top) if top is not None else len(strength)]
    groups: list[int] | None = None
    if clusters is not None:
        numbers = _clusters(activations[chosen], checked_count("clusters", clusters), seed)
        order = np.argsort(numbers, kind="stable")
        chosen, groups = chosen[order], numbers[order].tolist()
    shown = [fired.name(int(n)) for n in chosen]
    return Neurons(
        pipe.name, fired.side, fired.tokens, fired.layers, shown, len(activations), activations[chosen], groups
    )


def top_tokens(
    pipe: Pipeline,
    texts: Iterable[str],
    layer: int,
    neuron: int,
    *,
    top: int = 10,
    around: int = 8,
    batch_size: int = 16,
    side: StackSide | None = None,
) -> TopTokens:
    """The tokens of a corpus at which one neuron fires most strongly.

    The texts may come from anywhere and be any number: they are read in batches, and only the best places are kept.

    around   how many tokens are shown on either side
    side     of an encoder–decoder: by default the encoder, which reads the texts; for the decoder each text is a pair
             (source, target)
    """
    checked_count("top", top), checked_count("batch_size", batch_size)
    if isinstance(texts, str):
        raise InputError(say("explain.texts_is_a_list"))
    checked_count("around", around, least=0)
    side = check_side(pipe, side, "encoder")
    best: list[tuple[float, int, NeuronContext]] = []  # the weakest on top
    order = itertools.count(0, -1)  # of two that are equally strong, the earlier one stays
    read_texts = token_count = truncated = fired = 0
    total = 0.0
    for one in corpus_activations(pipe, texts, layer, side, batch_size):
        layer, width, tokens = one.layers[0], len(one.activations), one.tokens
        neuron = checked_index("neuron", neuron, width, say("explain.layer_has_neurons", count=width))
        values = one.activations[neuron]
        token_count, truncated = token_count + len(tokens), truncated + one.truncated
        total, fired = total + float(values.sum()), fired + int((values > 0).sum())
        for n in np.argsort(-values, kind="stable")[:top]:
            entry = float(values[n]), next(order)
            if len(best) == top and entry < best[0][:2]:
                break
            begin, end = max(0, int(n) - around), int(n) + around + 1
            context = NeuronContext(
                read_texts, int(n), entry[0], tokens[begin:end], int(n) - begin, values[begin:end].tolist()
            )
            (heapq.heappushpop if len(best) == top else heapq.heappush)(best, (*entry, context))
        read_texts += 1
    if not token_count:
        raise InputError(say("explain.no_texts"))
    contexts = [entry[2] for entry in sorted(best, key=lambda entry: entry[:2], reverse=True)]
    mean, firing_rate = total / token_count, fired / token_count
    return TopTokens(pipe.name, side, layer, neuron, contexts, read_texts, token_count, truncated, mean, firing_rate)


def _clusters(activations: np.ndarray, groups: int, seed: int) -> np.ndarray:
    """k-means on where neurons fire, not on how strongly: every row has length one. Numbered by first appearance."""
    need_sklearn(say("explain.clusters"))
    from sklearn.cluster import KMeans  # type: ignore[import-untyped]

    if groups > len(activations):
        raise InputError(say("explain.too_many_clusters", clusters=groups, neurons=len(activations)))
    length = np.linalg.norm(activations, axis=1, keepdims=True)
    clusters = KMeans(groups, n_init=10, random_state=seed).fit_predict(activations / np.where(length > 0, length, 1))
    names: dict[int, int] = {}
    return np.array([names.setdefault(int(n), len(names)) for n in clusters])


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: str | None, k: int, side: str, **values: Any) -> Neurons:
    return neurons(pipe, text, top=k, side=side_or_none(side), pair=second, **values)


def _answer_top_tokens(
    pipe: Pipeline, text: str, second: None, layer: int, neuron: int | None, k: int, around: int
) -> TopTokens:
    texts = lines_of(text)
    side: StackSide | None = "encoder" if pipe.model.is_encoder_decoder else None
    if neuron is None:
        neuron = _excited(pipe, texts[0][:200], layer, side)
    return top_tokens(pipe, texts, layer, neuron, top=k, around=around, side=side)


def _excited(pipe: Pipeline, text: str, layer: int, side: StackSide | None) -> int:
    """The neuron of a layer that one word of the text excites most, above what it does at the others."""
    target = "" if side and pipe.model.language_head is None else None  # a decoder that has to be given something
    fired = neurons(pipe, text, layer, top=None, side=side, target=target)
    words = [n for n, token in enumerate(fired.tokens) if not token.special] or [0]
    values = fired.activations[:, words]  # (neurons, words)
    return fired.neurons[int((values.max(axis=1) - values.mean(axis=1)).argmax())][1]


QUESTION = Question(
    name="neurons", kind="neurons", group="neurons", answer=_answer,
    checks=(reads_one_input, has_neurons), second="pair",
    params=(
        LAYERS, count("neurons.k", 50),
        Setting(name="clusters", key="neurons.clusters", type=int, least=1, most=100), SEED, STACK, TARGET, NEW_TOKENS,
    ),
)  # fmt: skip
TOP_TOKENS_QUESTION = Question(
    name="top-tokens", kind="top-tokens", group="neurons", answer=_answer_top_tokens,
    checks=(reads_one_input, has_tokenizer, has_neurons),
    params=(
        replace(LAYER, default=-1), Setting(name="neuron", key="top-tokens.neuron", type=int),
        count("top-tokens.k", 10),
        Setting(name="around", key="top-tokens.around", type=int, default=8, least=0, most=64),
    ),
)  # fmt: skip
