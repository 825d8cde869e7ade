"""Attention weights (who looks at whom) of chosen layers and heads, and what each head is like in a few numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.attention_site import (
    AttentionSide,
    AttentionSite,
    attention_site,
    row_columns,
    row_names,
)
from clearhead.explain.capabilities import has_attention, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices
from clearhead.explain.inference import call, eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import HEADS, LAYERS, SIDE, TARGET, Setting
from clearhead.messages import say
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.text.units import word_groups, word_units
from clearhead.units import TokenUnit, Unit, WrittenUnit


@dataclass(frozen=True)
class HeadSummary:
    """One head in numbers, each the mean over the queries it can be asked of; nan where there are none.

    entropy        how spread out a query's weights are, in bits: 0 is one key, log2(keys) is all alike
    distance       how many tokens away it looks
    to_previous    weight on the token just before
    to_separator   weight on special tokens ([CLS], [SEP], </s>); of a model that reads left to right on the first
                   token too, where heads with nothing to say put their weight
    to_same        weight on other places where the same token stands
    induction      weight on what came after an earlier place where the same token stands
    alignment      of a decoder that looks at its source: the strongest weight on each token of the source, times the
                   strongest weight that each written token puts on one of them (both means): 1 where words pair off
    """

    layer: int
    head: int
    entropy: float
    distance: float
    to_previous: float
    to_separator: float
    to_same: float
    induction: float
    alignment: float


@dataclass(frozen=True, repr=False, eq=False)
class AttentionWeights(Finding):
    """
    side        which attention: of a model's only stack ("self"), of the "encoder", of the "decoder", or of the
                decoder to the encoder ("cross")
    tokens      what looks (queries): tokens, or whole words. Of "cross", what is written at each step (`text`), with
                what has just been read (`read`)
    keys        what is looked at; of a model with a memory, all that it has_memory comes first as one
    weights     (layers, heads, query, key): each row sums to one. Of attention over encoder states, which has neither
                layers nor heads, one of each
    summaries   a line for each head, always by tokens
    of_states   whether it is a recurrent decoder's attention over encoder states
    """

    kind: ClassVar[str] = "attention"

    model: str
    side: AttentionSide
    tokens: Sequence[Unit]
    keys: Sequence[Unit]
    layers: list[int]
    heads: list[int]
    weights: np.ndarray
    summaries: list[HeadSummary]
    words: bool = False
    of_states: bool = False

    def head(self, layer: int, head: int) -> np.ndarray:
        """The weights of one head, (query, key), by its numbers in the model."""
        if layer not in self.layers or head not in self.heads:
            raise InputError(say("explain.head_left_out", layer=layer, head=head, layers=self.layers, heads=self.heads))
        weights: np.ndarray = self.weights[self.layers.index(layer), self.heads.index(head)]
        return weights

    def sorted_by(self, name: str, lowest: bool = False) -> list[HeadSummary]:
        """The heads by one of their numbers, the highest first (or the lowest); those without one come last."""
        known = [field.name for field in fields(HeadSummary)]
        if name not in known:
            near = did_you_mean(str(name), known)
            raise InputError(say("explain.no_head_number", name=repr(name), known=known, near=near))

        def order(summary: HeadSummary) -> tuple[bool, float]:
            value = getattr(summary, name)
            return (math.isnan(value), value if lowest else -value)

        return sorted(self.summaries, key=order)

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["layer", "head", "query", *row_columns(self.tokens), "key", "key_token", "weight"]
        for n, h, q, k in np.ndindex(self.weights.shape):
            row = [self.layers[n], self.heads[h], q, *row_names(self.tokens[q]), k, self.keys[k].text]
            yield [*row, float(self.weights[n, h, q, k])]


def attention(
    pipe: Pipeline,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    layers: Indices = None,
    heads: Indices = None,
    words: bool = False,
    side: str = "auto",
) -> AttentionWeights:
    """The attention weights of a text. Only the layers and heads asked for are kept.

    pair     a second text, for models that read two
    target   of an encoder–decoder: what it is made to write; by default its own answer
    layers   by their numbers, from 0; by default all. heads alike
    words    whole words instead of tokens: weights to the pieces of a word are added up, those from them averaged
    side     "self"; of an encoder–decoder "encoder", "decoder" or "cross" (the default)
    """
    site = attention_site(pipe, text, pair, target, side)
    layers, heads = site.layers(layers), site.heads(heads)
    queries, keys = site.rows, site.keys
    measures = _Measures(site, pipe.model.device)
    join_queries = _joining(queries, mean=True, device=pipe.model.device) if words else None
    join_keys = _joining(keys, mean=False, device=pipe.model.device) if words else None
    kept: dict[int, Tensor] = {}
    summaries: dict[int, list[HeadSummary]] = {}
    has_memory = False

    def keeper(layer: int) -> Any:
        def keep(weights: Tensor) -> Tensor:  # (1, heads, query, key); of a memory, more keys than the text has
            nonlocal has_memory
            picked = (weights if weights.ndim == 4 else weights[:, None])[0, heads].float()
            past = picked.shape[-1] - len(keys)
            own, memory = picked[..., past:], picked[..., :past]
            on_memory = memory.sum(-1, keepdim=True) if past else None
            has_memory = past > 0
            summaries[layer] = measures.summarize(layer, heads, own, on_memory)
            if join_queries is not None and join_keys is not None:
                own = join_queries @ own @ join_keys
                on_memory = None if on_memory is None else join_queries @ on_memory
            kept[layer] = (own if on_memory is None else torch.cat((on_memory, own), -1)).cpu()
            return weights

        return keep

    with eval_mode(pipe.model), trace(pipe.model, replace={site.tap(n, "weights"): keeper(n) for n in layers}):
        call(pipe, site.reading)
    if not kept:
        raise InputError(say("explain.attention_not_computed", side=site.side))
    if words:
        reader, writer = pipe.tokenizer, pipe.tokenizer.target
        queries = _read_words(word_units(reader if site.side in ("self", "encoder") else writer, _tokens(queries)))
        keys = word_units(writer if site.side == "decoder" else reader, _tokens(keys))
    if has_memory:
        keys = [TokenUnit("memory", -1, None), *keys]
    weights = torch.stack([kept[n] for n in layers]).numpy()
    return AttentionWeights(
        pipe.name,
        site.side,
        queries,
        keys,
        layers,
        heads,
        weights,
        [s for n in layers for s in summaries[n]],
        words,
        site.of_states is not None,
    )


# ---- numbers


class _Measures:
    """What the summaries of a text need, made once for all heads. Masks are (query, key), True where it counts."""

    def __init__(self, site: AttentionSite, device: torch.device) -> None:
        keys = site.keys
        special = torch.tensor([unit.special for unit in keys], device=device)
        self.cross = site.side == "cross"
        self.sinks, self.from_query = special.clone(), 0
        if self.cross:
            self.source = ~special
            self.written = torch.tensor([not unit.special for unit in site.rows], device=device)
            return
        if site.stack.causal:  # the first token has no choice but to look at itself
            self.sinks[0], self.from_query = True, min(1, len(keys) - 1)
        ids = torch.tensor([getattr(unit, "id", -1) for unit in keys], device=device)  # -1: no unit stands twice
        place = torch.arange(len(keys), device=device)
        self.distance = (place[:, None] - place[None]).abs().float()
        repeats = (ids[:, None] == ids[None]) & ~special[:, None] & (ids >= 0)
        self.same = repeats.tril(-1) if site.stack.causal else repeats & (self.distance > 0)
        self.follows = torch.zeros_like(repeats)
        self.follows[:, 1:] = repeats.tril(-1)[:, :-1]
        self.follows = self.follows.tril(-1)

    def summarize(self, layer: int, heads: list[int], weights: Tensor, memory: Tensor | None) -> list[HeadSummary]:
        """weights (heads, query, key) of the text; memory (heads, query, 1): what is spent on remembered states."""
        all_weights = weights if memory is None else torch.cat((weights, memory), -1)
        entropy = (-torch.xlogy(all_weights, all_weights).sum(-1).mean(-1) / math.log(2)).clamp(min=0)
        nothing = torch.full_like(entropy, math.nan)
        to_separator = (weights * self.sinks)[:, self.from_query :].sum(-1).mean(-1)
        if self.cross:
            columns = [entropy, nothing, nothing, to_separator, nothing, nothing, self._alignment(weights)]
        else:
            before = weights.diagonal(-1, -2, -1)  # empty for a single token
            columns = [
                entropy,
                (weights * self.distance).sum(-1).mean(-1),
                before.mean(-1) if before.shape[-1] else nothing,
                to_separator,
                _mean_weight(weights, self.same),
                _mean_weight(weights, self.follows),
                nothing,
            ]
        rows = torch.stack(columns, -1).tolist()
        return [HeadSummary(layer, head, *row) for head, row in zip(heads, rows, strict=True)]

    def _alignment(self, weights: Tensor) -> Tensor:
        """(heads,)"""
        pairs = weights[:, self.written][..., self.source]  # (heads, written tokens, source tokens)
        if not pairs.shape[1] or not pairs.shape[2]:
            return weights.new_full((len(weights),), math.nan)
        return pairs.amax(1).mean(-1) * pairs.amax(2).mean(-1)


def _mean_weight(weights: Tensor, counts: Tensor) -> Tensor:
    """(heads,): the weight on keys that count, over the queries that have any."""
    has_keys = counts.any(-1)
    spent = (weights * counts).sum(-1)[:, has_keys]
    return spent.mean(-1) if spent.shape[-1] else spent.new_full((len(weights),), math.nan)


def _tokens(units: Sequence[Unit]) -> list[TokenUnit]:
    """For what is about words."""
    tokens = [unit for unit in units if isinstance(unit, TokenUnit)]
    if len(tokens) != len(units):
        raise InputError(say("explain.no_words_here"))
    return tokens


def _read_words(words: Sequence[TokenUnit]) -> list[TokenUnit]:
    """Of words that are written, what has just been read is the word before, not its last piece."""
    befores = [None, *words[:-1]]
    return [
        replace(word, read=before.text) if before is not None and isinstance(word, WrittenUnit) else word
        for word, before in zip(words, befores, strict=True)
    ]


def _joining(units: Sequence[Unit], *, mean: bool, device: torch.device) -> Tensor:
    """A matrix that joins tokens into words: (words, tokens) to average queries, (tokens, words) to add up keys."""
    groups = word_groups(_tokens(units))
    matrix = torch.zeros(len(groups), len(units), device=device)
    for word, group in enumerate(groups):
        matrix[word, group] = 1 / len(group) if mean else 1.0
    return matrix if mean else matrix.T


# ---- as a question

QUESTION = Question(
    name="attention", kind="attention", group="attention", answer=attention,
    checks=(reads_one_input, has_attention), second="pair",
    params=(LAYERS, HEADS, Setting(name="words", key="attention.words", type=bool, default=False), SIDE, TARGET),
)  # fmt: skip
