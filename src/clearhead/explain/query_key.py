"""One head from close by: how a query and the keys, number by number, become scores, and scores become weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.attention_site import AttentionSide, attention_site
from clearhead.explain.capabilities import has_heads, no_segment_memory, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_index
from clearhead.explain.inference import call, eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import HEAD, LAYER, POSITION, SIDE, TARGET
from clearhead.messages import say
from clearhead.nn.segment_recurrence import RelativeAttention
from clearhead.nn.stack import Stack
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.units import Unit


@dataclass(frozen=True, repr=False, eq=False)
class QueryKey(Finding):
    """score = scale · (sum of the products) + added; the weights are the softmax of the scores that are not hidden.

    position   which of `tokens` asks
    query      (head_dim,)
    key        (keys, head_dim)
    products   (keys, head_dim): query times key, number by number
    scale      what the sum of the products is multiplied by
    added      (keys,): what the model adds for distances and the like; None where it adds nothing
    scores     (keys,)
    hidden     for each key, whether it gets no weight: the mask hides it
    weights    (keys,), which sum to one
    """

    kind: ClassVar[str] = "query-key"

    model: str
    side: AttentionSide
    layer: int
    head: int
    position: int
    tokens: Sequence[Unit]
    keys: Sequence[Unit]
    query: np.ndarray
    key: np.ndarray
    products: np.ndarray
    scale: float
    added: np.ndarray | None
    scores: np.ndarray
    hidden: list[bool]
    weights: np.ndarray

    def table(self) -> Iterator[Iterable[Any]]:
        numbers = range(len(self.query))
        yield ["key", "token", "score", "weight", "hidden", *(f"product_{n}" for n in numbers)]
        for n, token in enumerate(self.keys):
            row = [n, token.text, float(self.scores[n]), float(self.weights[n]), self.hidden[n]]
            yield [*row, *self.products[n].tolist()]


def query_key(
    pipe: Pipeline,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    layer: int = 0,
    head: int = 0,
    position: int = -1,
    side: str = "auto",
) -> QueryKey:
    """One head, seen from one token.

    position   which token asks, counted from the end if negative; the rest as for `attention`
    """
    if (reason := has_heads(pipe)) is not None:
        raise InputError(reason)
    site = attention_site(pipe, text, pair, target, side)
    (layer,), (head,) = site.layers([layer]), site.heads([head])
    units = len(site.queries)
    position = checked_index("position", position, units, say("explain.units_look", count=units))
    part = site.module(layer)
    names = {name: site.tap(layer, name) for name in ("query", "key", "scores", "weights")}
    with eval_mode(pipe.model), trace(pipe.model, *names.values(), detach=True) as seen:
        call(pipe, site.reading)
    if seen[names["key"]].shape[2] != len(site.keys):
        raise InputError(say("explain.looks_at_memory", family=pipe.model.family.title))
    shared = part.heads // part.kv_heads  # query heads that share a key head
    query = seen[names["query"]][0, head, position].float().cpu()
    key = seen[names["key"]][0, head // shared].float().cpu()
    scores = seen[names["scores"]][0, head, position].float().cpu()
    weights = seen[names["weights"]][0, head, position].float().cpu()
    products = query * key
    plain = products.sum(-1) * part.scale
    added = (scores - plain).numpy() if site.side != "cross" and adds(site.stack, part) else None
    return QueryKey(
        pipe.name, site.side, layer, head, position, site.rows, site.keys, query.numpy(), key.numpy(),
        products.numpy(), float(part.scale), added, scores.numpy(), (weights == 0).tolist(), weights.numpy(),
    )  # fmt: skip


def adds(stack: Stack, attention: Any) -> bool:
    """Whether scores are more than the product of query and key: distances in them, or other heads' scores."""
    parts = (getattr(attention, name, None) for name in ("relative", "mix_scores"))
    return (
        stack.position_bias is not None or isinstance(attention, RelativeAttention) or any(p is not None for p in parts)
    )


# ---- as a question

QUESTION = Question(
    name="query-key", kind="query-key", group="attention", answer=query_key,
    checks=(reads_one_input, has_heads, no_segment_memory), second="pair",
    params=(LAYER, HEAD, replace(POSITION, default=-1), SIDE, TARGET),
)  # fmt: skip
