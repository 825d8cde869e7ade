"""What a head is worth: take it away, and see how the model's answer changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.attention import Kind, Look, Places, look
from clearhead.explain.finding import Finding
from clearhead.explain.next_token import Candidate
from clearhead.explain.reading import at_rest
from clearhead.explain.scores import rows_at_once, scores_of
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.units import TokenUnit


@dataclass(frozen=True, repr=False, eq=False)
class Ablation(Finding):
    """
    tokens      what the heads look from
    heads       which heads of each layer
    effect      (layers, heads): how the answer changes when that head alone is taken away
    what        the effect in words
    position    whose answer it is; None where the whole text has one
    strongest   (layer, head) of the largest effect
    before      the likeliest answers of the whole model
    after       those without the strongest head: without the head, where one was asked for
    """

    kind: ClassVar[str] = "ablation"

    model: str
    side: Kind
    tokens: list[TokenUnit]
    layers: list[int]
    heads: list[int]
    effect: np.ndarray
    what: str
    position: int | None
    strongest: tuple[int, int]
    before: list[Candidate]
    after: list[Candidate]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["layer", "head", "effect"]
        for (n, layer), (h, head) in product(enumerate(self.layers), enumerate(self.heads)):
            yield [layer, head, float(self.effect[n, h])]


def ablation(
    pipe: Pipeline,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    layers: Places = None,
    heads: Places = None,
    position: int | None = None,
    chosen: str | int | None = None,
    how: Literal["zero", "mean"] = "zero",
    side: str = "auto",
    top_k: int = 10,
) -> Ablation:
    """Take heads away one by one. The effect is how far all chances move (KL divergence, in bits), or, with a chosen
    token or label, how much its score rises (or falls, where it is negative).

    position   which answer is looked at; by default the next token (of an encoder–decoder without a target, the first
               it writes), the first masked word, or the label of the text
    chosen     a token (or a label), by its text or id
    how        "zero": the head says nothing; "mean": it says the same everywhere, what it says on average in this text
    side       "self"; of an encoder–decoder the heads of its "encoder", "decoder" or "cross" (the default)
    """
    if how not in ("zero", "mean"):
        raise InputError(f"A head is taken away by how='zero' or how='mean', not {how!r}.")
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise InputError(f"top_k is {top_k!r}; ask for at least one.")
    answer = scores_of(pipe)
    if chosen is None and not answer.rivals:
        labels = ", ".join(answer.names(list(range(pipe.model.config.num_labels))))
        raise InputError(f"This model scores each label by itself. Choose one: {labels}.")
    if target is None and position is None and answer.writes:
        target = ""  # the first token that would be written
    looked = look(pipe, text, pair, target, side)
    layers, heads = looked.choose(layers, heads)
    where = answer.place(looked.reading, position)
    runs = list(product(layers, heads))
    changed: list[Tensor] = []
    with at_rest(pipe.model):
        fixed = _fixed(looked)
        time = max(len(looked.queries), len(looked.keys))
        size = rows_at_once(time, pipe.model.config.hidden_size, looked.head_count) - 1
        for first in range(0, len(runs), size):
            group = runs[first : first + size]
            with trace(pipe.model, replace=_without(looked, group, how)):  # the last row is the whole model
                scores = answer.rows(looked.reading, where, len(group) + 1, fixed).double().cpu()
            changed += scores[:-1]
        before, after = scores[-1], torch.stack(changed)
    if chosen is None:
        effect, what = _divergence(before, after), f"how far the chances of {answer.of} move, in bits"
    else:
        id_ = answer.id_of(chosen, len(before))
        effect, what = after[:, id_] - before[id_], f"change of the score of {answer.names([id_])[0]!r}"
    best = int(effect.abs().argmax())
    return Ablation(
        pipe.name, looked.side, looked.queries, layers, heads,
        effect.reshape(len(layers), len(heads)).float().numpy(), what, where, runs[best],
        answer.likeliest(before, top_k), answer.likeliest(after[best], top_k),
    )  # fmt: skip


def _without(looked: Look, runs: list[tuple[int, int]], how: str) -> dict[str, Callable[[Tensor], Tensor]]:
    """Row n of a batch runs without the nth of these heads; rows beyond them are whole."""
    by_layer: dict[int, list[tuple[int, int]]] = {}
    for row, (layer, head) in enumerate(runs):
        by_layer.setdefault(layer, []).append((row, head))

    def taking(pairs: list[tuple[int, int]]) -> Callable[[Tensor], Tensor]:
        rows, numbers = (list(part) for part in zip(*pairs, strict=True))

        def take(heads: Tensor) -> Tensor:  # (rows, heads, query, head_dim)
            heads = heads.clone()
            heads[rows, numbers] = 0.0 if how == "zero" else heads[rows, numbers].mean(1, keepdim=True)
            return heads

        return take

    return {looked.tap(layer, "heads"): taking(pairs) for layer, pairs in by_layer.items()}


def _fixed(looked: Look) -> dict[str, Tensor]:
    """What the encoder says, where none of its heads is taken away: copies of the text share it."""
    model = looked.pipe.model
    if not isinstance(model, EncoderDecoderModel) or looked.side == "encoder":
        return {}
    return {"encoder_outputs": model.encode(looked.reading.inputs["input_ids"], None, None)}


def _divergence(before: Tensor, after: Tensor) -> Tensor:
    """How many bits the chances after, (rows, size), are from those before, (size,): 0 where nothing changed."""
    was, now = before.log_softmax(-1), after.log_softmax(-1)
    return (torch.where(was > -math.inf, was.exp() * (was - now), 0.0).sum(-1) / math.log(2)).clamp(min=0)
