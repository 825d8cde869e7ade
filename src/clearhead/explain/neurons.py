"""What the neurons of the feed-forward layers do: how strongly each fires at each token, which fire together, and
what excites one of them most over a whole corpus.

A neuron is one number of the widened vector, after the activation: (layer, index) in `layers.N.feedforward.hidden`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.capabilities import has_feed_forward, has_tokenizer, need_sklearn, reads_one_input
from clearhead.explain.continuation import continued
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices, checked_count, checked_index, checked_indices
from clearhead.explain.inference import eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import LAYER, LAYERS, NEW_TOKENS, SEED, STACK, TARGET, Setting, count
from clearhead.explain.word_choice import lines_of
from clearhead.messages import say
from clearhead.nn.stack import Stack
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline, Reading
from clearhead.text.units import units_of_ids
from clearhead.units import Unit

StackSide = Literal["encoder", "decoder"]


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
    stack = _stack(pipe, side)
    depth, width = len(stack.layers), stack.blocks[0].feedforward.up.out_features
    layer = checked_index("layer", layer, depth, say("explain.there_are_layers", count=depth))
    neuron = checked_index("neuron", neuron, width, say("explain.layer_has_neurons", count=width))
    best: list[tuple[float, int, NeuronContext]] = []  # the weakest on top
    order = itertools.count(0, -1)  # of two that are equally strong, the earlier one stays
    read_texts = token_count = truncated = fired = 0
    total = 0.0
    with eval_mode(pipe.model):
        corpus = iter(texts)
        while group := list(itertools.islice(corpus, 1 if side == "decoder" else batch_size)):
            readings = [_one(pipe, text, side) for text in group]
            for (reading, shortened), values in zip(readings, _fired(pipe, readings, layer, neuron, side), strict=True):
                tokens = reading.target if side == "decoder" else reading.units
                token_count, truncated = token_count + len(tokens), truncated + shortened
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


# ---- what factors need too


@dataclass(frozen=True)
class Activations:
    """
    activations   (neurons of all layers, tokens)
    widths        how many neurons each layer has
    """

    side: StackSide | None
    tokens: Sequence[Unit]
    layers: list[int]
    widths: list[int]
    activations: np.ndarray

    def name(self, row: int) -> tuple[int, int]:
        """(layer, index) of a row."""
        n = 0
        while row >= self.widths[n]:
            row, n = row - self.widths[n], n + 1
        return self.layers[n], row


def activations_of(
    pipe: Pipeline,
    text: str,
    layers: Indices,
    *,
    side: StackSide | None,
    pair: str | None,
    target: str | None,
    max_new_tokens: int | None,
) -> Activations:
    """The activations of some layers over a text and, where it is asked for, over what the model writes after it."""
    side = check_side(pipe, side, "decoder")
    model = pipe.model
    depth = len(_stack(pipe, side).layers)
    chosen = checked_indices("layer", layers, depth, say("explain.there_are_layers", count=depth))
    translates = model.is_encoder_decoder and model.can_generate
    if target is not None or (translates and side == "decoder") or (max_new_tokens and model.can_generate):
        reading = continued(pipe, text, pair, target, max_new_tokens).reading
    elif translates:  # the encoder has read before anything is written
        reading = pipe.read(text, pair, "")
    else:
        reading = continued(pipe, text, pair, None, max_new_tokens or 0).reading
    names = [f"{side + '.' if side else ''}layers.{n}.feedforward.hidden" for n in chosen]
    with eval_mode(model), trace(model, *names, detach=True) as seen:
        _through(pipe, reading.inputs, side)
    hidden = [seen[name][0].float().cpu().numpy() for name in names]  # (time, width) each
    if not all(np.isfinite(part).all() for part in hidden):
        raise InputError(say("explain.not_finite"))
    tokens = reading.target if side == "decoder" else reading.units
    return Activations(side, tokens, chosen, [part.shape[1] for part in hidden], np.concatenate(hidden, axis=1).T)


def check_side(pipe: Pipeline, side: StackSide | None, default: StackSide) -> StackSide | None:
    if not pipe.model.is_encoder_decoder:
        if side is not None:
            raise InputError(say("explain.side_of_one_stack"))
        return None
    if side not in (None, "encoder", "decoder"):
        raise InputError(say("explain.encoder_or_decoder", side=repr(side)))
    return side or default


def _stack(pipe: Pipeline, side: StackSide | None) -> Stack:
    return pipe.model.stacks[side or ""]


def _through(pipe: Pipeline, inputs: dict[str, Tensor], side: StackSide | None) -> None:
    """Run the layers."""
    model: Any = pipe.model
    if model.is_encoder_decoder:
        memory = model.encode(inputs["input_ids"], inputs.get("attention_mask"), None)
        if side == "decoder":
            model.decoder(inputs["decoder_input_ids"], memory=memory)
        return
    run = model.stack if model.stack.embed.reads_tokens else model  # without scoring any words
    run(**inputs)


def _one(pipe: Pipeline, text: Any, side: StackSide | None) -> tuple[Reading, bool]:
    """How one text of a corpus is read, and whether it was too long and is cut."""
    if side == "decoder":
        if not isinstance(text, tuple | list) or len(text) != 2:
            raise InputError(say("explain.decoder_needs_pairs"))
        return pipe.read(text[0], target=text[1]), False
    if not isinstance(text, str) or not text.strip():
        raise InputError(say("explain.corpus_text", value=repr(text)))
    tokenizer, most = pipe.tokenizer, _stack(pipe, side).embed.max_length
    ids = tokenizer.encode(text)
    kept = ids[:most]
    return Reading({"input_ids": torch.tensor([kept])}, units_of_ids(tokenizer, kept, text), []), len(ids) > len(kept)


def _fired(
    pipe: Pipeline, readings: list[tuple[Reading, bool]], layer: int, neuron: int, side: StackSide | None
) -> Iterator[np.ndarray]:
    """One neuron at every token of each text."""
    model = pipe.model
    name = f"{side + '.' if side else ''}layers.{layer}.feedforward.hidden"
    rows = [reading.inputs["input_ids"][0].tolist() for reading, _ in readings]
    inputs = readings[0][0].inputs
    if side != "decoder":
        pad, longest = model.config.pad_token_id or 0, max(map(len, rows))
        inputs = {"input_ids": torch.tensor([row + [pad] * (longest - len(row)) for row in rows], device=model.device)}
        causal = not side and model.is_causal  # which does not see what comes after a text
        if not causal and min(map(len, rows)) < longest:
            real = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
            inputs["attention_mask"] = torch.tensor(real, device=model.device)
    with trace(model, name, detach=True) as seen:
        _through(pipe, inputs, side)
    values = seen[name][..., neuron].float().cpu().numpy()  # (texts, time)
    for (reading, _), row in zip(readings, values, strict=True):
        yield row[: len(reading.target if side == "decoder" else reading.units)]


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


def side_or_none(side: str) -> Any:
    return None if side == "auto" else side


QUESTION = Question(
    name="neurons", kind="neurons", group="neurons", answer=_answer,
    checks=(reads_one_input, has_feed_forward), second="pair",
    params=(
        LAYERS, count("neurons.k", 50),
        Setting(name="clusters", key="neurons.clusters", type=int, least=1, most=100), SEED, STACK, TARGET, NEW_TOKENS,
    ),
)  # fmt: skip
TOP_TOKENS_QUESTION = Question(
    name="top-tokens", kind="top-tokens", group="neurons", answer=_answer_top_tokens,
    checks=(reads_one_input, has_tokenizer, has_feed_forward),
    params=(
        replace(LAYER, default=-1), Setting(name="neuron", key="top-tokens.neuron", type=int),
        count("top-tokens.k", 10),
        Setting(name="around", key="top-tokens.around", type=int, default=8, least=0, most=64),
    ),
)  # fmt: skip
