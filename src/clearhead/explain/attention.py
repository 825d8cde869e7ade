"""Who looks at whom: the attention weights of chosen layers and heads, and what each head is like in a few numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.finding import Finding
from clearhead.explain.reading import at_rest, call, places
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.stack_model import TokenModel
from clearhead.nn.stack import Stack
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline, Reading
from clearhead.text.units import special_ids, word_groups, word_units
from clearhead.units import TokenUnit

Kind = Literal["self", "encoder", "decoder", "cross"]
Places = int | list[int] | range | tuple[int, ...] | None


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
    """

    layer: int
    head: int
    entropy: float
    distance: float
    to_previous: float
    to_separator: float
    to_same: float
    induction: float


@dataclass(frozen=True, repr=False, eq=False)
class Attention(Finding):
    """
    side        which attention: of a model's only stack ("self"), of the "encoder", of the "decoder", or of the
                decoder to the encoder ("cross")
    tokens      what looks (queries): tokens, or whole words
    keys        what is looked at; of a model with a memory, all that it remembers comes first as one
    weights     (layers, heads, query, key): each row sums to one
    summaries   a line for each head, always by tokens
    """

    kind: ClassVar[str] = "attention"

    model: str
    side: Kind
    tokens: list[TokenUnit]
    keys: list[TokenUnit]
    layers: list[int]
    heads: list[int]
    weights: np.ndarray
    summaries: list[HeadSummary]
    words: bool = False

    def head(self, layer: int, head: int) -> np.ndarray:
        """The weights of one head, (query, key), by its numbers in the model."""
        if layer not in self.layers or head not in self.heads:
            raise InputError(
                f"Head {head} of layer {layer} was not asked for: layers {self.layers}, heads {self.heads}."
            )
        found: np.ndarray = self.weights[self.layers.index(layer), self.heads.index(head)]
        return found

    def sorted_by(self, name: str, lowest: bool = False) -> list[HeadSummary]:
        """The heads by one of their numbers, the highest first (or the lowest); those without one come last."""
        known = [field.name for field in fields(HeadSummary)]
        if name not in known:
            raise InputError(f"A head has no {name!r}; it has {', '.join(known)}.{did_you_mean(str(name), known)}")

        def order(summary: HeadSummary) -> tuple[bool, float]:
            value = getattr(summary, name)
            return (math.isnan(value), value if lowest else -value)

        return sorted(self.summaries, key=order)

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["layer", "head", "query", "query_token", "key", "key_token", "weight"]
        for n, h, q, k in np.ndindex(self.weights.shape):
            row = [self.layers[n], self.heads[h], q, self.tokens[q].text, k, self.keys[k].text]
            yield [*row, float(self.weights[n, h, q, k])]


def attention(
    pipe: Pipeline,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    layers: Places = None,
    heads: Places = None,
    words: bool = False,
    side: str = "auto",
) -> Attention:
    """The attention weights of a text. Only the layers and heads asked for are kept.

    pair     a second text, for models that read two
    target   of an encoder–decoder: what it is made to write; by default its own answer
    layers   by their numbers, from 0; by default all. heads alike
    words    whole words instead of tokens: weights to the pieces of a word are added up, those from them averaged
    side     "self"; of an encoder–decoder "encoder", "decoder" or "cross" (the default)
    """
    looked = look(pipe, text, pair, target, side)
    layers, heads = looked.choose(layers, heads)
    queries, keys = looked.queries, looked.keys
    measures = _Measures(looked, pipe.model.device)
    join_queries = _joining(queries, mean=True, device=pipe.model.device) if words else None
    join_keys = _joining(keys, mean=False, device=pipe.model.device) if words else None
    kept: dict[int, Tensor] = {}
    summaries: dict[int, list[HeadSummary]] = {}
    remembers = False

    def keeper(layer: int) -> Any:
        def keep(weights: Tensor) -> Tensor:  # (1, heads, query, key); of a memory, more keys than the text has
            nonlocal remembers
            picked = weights[0, heads].float()
            past = picked.shape[-1] - len(keys)
            own, memory = picked[..., past:], picked[..., :past]
            share = memory.sum(-1, keepdim=True) if past else None
            remembers = past > 0
            summaries[layer] = measures.summarize(layer, heads, own, share)
            if join_queries is not None and join_keys is not None:
                own = join_queries @ own @ join_keys
                share = None if share is None else join_queries @ share
            kept[layer] = (own if share is None else torch.cat((share, own), -1)).cpu()
            return weights

        return keep

    with at_rest(pipe.model), trace(pipe.model, replace={looked.tap(n, "weights"): keeper(n) for n in layers}):
        call(pipe, looked.reading)
    _check_computed(looked, kept)
    reader, writer = pipe.tokenizer, pipe.tokenizer.target
    if words:
        queries = word_units(reader if looked.side in ("self", "encoder") else writer, queries)
        keys = word_units(writer if looked.side == "decoder" else reader, keys)
    if remembers:
        keys = [TokenUnit("memory", -1, None), *keys]
    weights = torch.stack([kept[n] for n in layers]).numpy()
    return Attention(
        pipe.name, looked.side, queries, keys, layers, heads, weights, [s for n in layers for s in summaries[n]], words
    )


def induction_scores(pipe: Pipeline, length: int = 32, rows: int = 4, seed: int = 0) -> np.ndarray:
    """(layers, heads): how far each head, at a token it has met before, looks at what came after it then.

    Random tokens, `length` of them, stand twice in a row, so that nothing but repetition can be recognised. 1 is a
    perfect induction head.
    """
    model = pipe.model
    if not isinstance(model, TokenModel):
        raise InputError("Induction is looked for in one stack; an encoder–decoder has two. Load a GPT-like model.")
    room = model.stack.embed.max_length
    first = model.config.bos_token_id
    begin = [first] if isinstance(first, int) and 0 <= first < model.config.vocab_size else []
    length = min(length, length if room is None else (room - len(begin)) // 2)
    if length < 2 or rows < 1:
        raise InputError("Repetition needs at least two tokens that stand twice, in at least one row.")
    size = min(model.config.vocab_size, len(pipe.tokenizer))
    usual = torch.tensor([n for n in range(size) if n not in special_ids(pipe.tokenizer)])
    draw = torch.Generator().manual_seed(seed)
    texts = [usual[torch.randperm(len(usual), generator=draw)[:length]] for _ in range(rows)]
    length = len(texts[0])  # fewer, where the vocabulary is smaller
    ids = torch.stack([torch.cat((torch.tensor(begin, dtype=torch.long), half, half)) for half in texts])
    scores: dict[int, Tensor] = {}

    def keeper(layer: int) -> Any:
        def keep(weights: Tensor) -> Tensor:
            own = weights[..., weights.shape[-1] - weights.shape[-2] :].float()
            # queries of the second half, each with the key `length - 1` before it
            after = own.diagonal(1 - length, -2, -1)[..., len(begin) + 1 :]
            scores[layer] = after.mean((0, 2)).cpu()
            return weights

        return keep

    count = len(model.stack.layers)
    with at_rest(model), trace(model, replace={f"layers.{n}.attention.weights": keeper(n) for n in range(count)}):
        model(input_ids=ids.to(model.device))
    return torch.stack([scores[n] for n in range(count)]).numpy()


# ---- which attention is looked at


@dataclass(frozen=True)
class Look:
    """One of a model's attentions, on one text."""

    pipe: Pipeline
    reading: Reading
    side: Kind
    stack: Stack
    queries: list[TokenUnit]
    keys: list[TokenUnit]

    def tap(self, layer: int, tensor: str) -> str:
        """The name under which a trace knows a tensor of this attention."""
        stack = {"self": "", "encoder": "encoder.", "decoder": "decoder.", "cross": "decoder."}[self.side]
        return f"{stack}layers.{layer}.{'cross_attention' if self.side == 'cross' else 'attention'}.{tensor}"

    @property
    def head_count(self) -> int:
        block = self.stack.blocks[0]
        found: Any = block.cross_attention if self.side == "cross" else block.attention
        return int(found.heads)

    def choose(self, layers: Places, heads: Places) -> tuple[list[int], list[int]]:
        """The numbers of the layers and heads asked for."""
        what = "the model" if self.side == "self" else "the encoder" if self.side == "encoder" else "the decoder"
        count, each = len(self.stack.layers), self.head_count
        chosen = places("layer", layers, count, f"{what} has {count} layers")
        return chosen, places("head", heads, each, f"a layer has {each} heads")


def look(pipe: Pipeline, text: str, pair: str | None, target: str | None, side: str) -> Look:
    model = pipe.model
    both = isinstance(model, EncoderDecoderModel)
    sides = ("encoder", "decoder", "cross") if both else ("self",)
    if side == "auto":
        side = sides[-1]
    if side not in sides:
        shape = "an encoder and a decoder" if both else "one stack"
        raise InputError(f"{model.family.title} has {shape}: side is {' or '.join(map(repr, sides))}, not {side!r}.")
    if side == "encoder" and target is None and model.language_head is not None:
        target = ""  # nothing needs to be written to see how the text is read
    reading = pipe.read(text, pair, target)
    if isinstance(model, EncoderDecoderModel):
        stack = model.encoder if side == "encoder" else model.decoder
        queries = reading.units if side == "encoder" else reading.target
        return Look(pipe, reading, side, stack, queries, reading.target if side == "decoder" else reading.units)  # type: ignore[arg-type]
    assert isinstance(model, TokenModel)
    return Look(pipe, reading, "self", model.stack, reading.units, reading.units)


def _check_computed(looked: Look, kept: dict[int, Tensor]) -> None:
    if not kept:
        raise InputError(f"The {looked.side}-attention was not computed on this text.")


# ---- numbers


class _Measures:
    """What the summaries of a text need, made once for all heads. Masks are (query, key), True where it counts."""

    def __init__(self, looked: Look, device: torch.device) -> None:
        keys = looked.keys
        special = torch.tensor([token.special for token in keys], device=device)
        self.cross = looked.side == "cross"
        self.sinks, self.from_query = special.clone(), 0
        if self.cross:
            return
        if looked.stack.causal:  # the first token has no choice but to look at itself
            self.sinks[0], self.from_query = True, min(1, len(keys) - 1)
        ids = torch.tensor([token.id for token in keys], device=device)
        place = torch.arange(len(keys), device=device)
        self.distance = (place[:, None] - place[None]).abs().float()
        repeats = (ids[:, None] == ids[None]) & ~special[:, None]
        self.same = repeats.tril(-1) if looked.stack.causal else repeats & (self.distance > 0)
        self.follows = torch.zeros_like(repeats)
        self.follows[:, 1:] = repeats.tril(-1)[:, :-1]
        self.follows = self.follows.tril(-1)

    def summarize(self, layer: int, heads: list[int], weights: Tensor, memory: Tensor | None) -> list[HeadSummary]:
        """weights (heads, query, key) of the text; memory (heads, query, 1): what is spent on remembered states."""
        whole = weights if memory is None else torch.cat((weights, memory), -1)
        entropy = (-torch.xlogy(whole, whole).sum(-1).mean(-1) / math.log(2)).clamp(min=0)
        nothing = torch.full_like(entropy, math.nan)
        to_separator = (weights * self.sinks)[:, self.from_query :].sum(-1).mean(-1)
        if self.cross:
            columns = [entropy, nothing, nothing, to_separator, nothing, nothing]
        else:
            before = weights.diagonal(-1, -2, -1)  # empty for a single token
            columns = [
                entropy,
                (weights * self.distance).sum(-1).mean(-1),
                before.mean(-1) if before.shape[-1] else nothing,
                to_separator,
                _share(weights, self.same),
                _share(weights, self.follows),
            ]
        rows = torch.stack(columns, -1).tolist()
        return [HeadSummary(layer, head, *row) for head, row in zip(heads, rows, strict=True)]


def _share(weights: Tensor, counts: Tensor) -> Tensor:
    """(heads,): the weight on keys that count, over the queries that have any."""
    asked = counts.any(-1)
    spent = (weights * counts).sum(-1)[:, asked]
    return spent.mean(-1) if spent.shape[-1] else spent.new_full((len(weights),), math.nan)


def _joining(tokens: list[TokenUnit], *, mean: bool, device: torch.device) -> Tensor:
    """A matrix that joins tokens into words: (words, tokens) to average queries, (tokens, words) to add up keys."""
    groups = word_groups(tokens)
    matrix = torch.zeros(len(groups), len(tokens), device=device)
    for word, group in enumerate(groups):
        matrix[word, group] = 1 / len(group) if mean else 1.0
    return matrix if mean else matrix.T
