"""One head from close by: how a query and the keys, number by number, become scores, and scores become weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.attention import Kind, look
from clearhead.explain.finding import Finding
from clearhead.explain.reading import at_rest, call, place
from clearhead.nn.segment_recurrence import RelativeAttention
from clearhead.nn.stack import Stack
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.units import TokenUnit


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
    side: Kind
    layer: int
    head: int
    position: int
    tokens: list[TokenUnit]
    keys: list[TokenUnit]
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
    looked = look(pipe, text, pair, target, side)
    (layer,), (head,) = looked.choose([layer], [head])
    count = len(looked.queries)
    position = place("position", position, count, f"{count} tokens look")
    block = looked.stack.blocks[layer]
    part: Any = block.cross_attention if looked.side == "cross" else block.attention
    names = {name: looked.tap(layer, name) for name in ("query", "key", "scores", "weights")}
    with at_rest(pipe.model), trace(pipe.model, *names.values(), detach=True) as seen:
        call(pipe, looked.reading)
    if seen[names["key"]].shape[2] != len(looked.keys):
        raise InputError(
            f"{pipe.model.family.title} also looks at what it remembers, which has no tokens to show. "
            "Use attention, which shows the memory as one."
        )
    shared = part.heads // part.kv_heads  # query heads that share a key head
    query = seen[names["query"]][0, head, position].float().cpu()
    key = seen[names["key"]][0, head // shared].float().cpu()
    scores = seen[names["scores"]][0, head, position].float().cpu()
    weights = seen[names["weights"]][0, head, position].float().cpu()
    products = query * key
    plain = products.sum(-1) * part.scale
    added = (scores - plain).numpy() if looked.side != "cross" and adds(looked.stack, part) else None
    return QueryKey(
        pipe.name, looked.side, layer, head, position, looked.queries, looked.keys, query.numpy(), key.numpy(),
        products.numpy(), float(part.scale), added, scores.numpy(), (weights == 0).tolist(), weights.numpy(),
    )  # fmt: skip


def adds(stack: Stack, attention: Any) -> bool:
    """Whether scores are more than the product of query and key: distances in them, or other heads' scores."""
    parts = (getattr(attention, name, None) for name in ("relative", "mix_scores"))
    return (
        stack.position_bias is not None or isinstance(attention, RelativeAttention) or any(p is not None for p in parts)
    )
