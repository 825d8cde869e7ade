"""Attention in six steps, as one layer took them: vectors, products, scaling, softmax, weighted sum, all heads joined.

Everything that happens between what enters a layer's attention and what leaves it, for all tokens and heads, so that
a figure can stop at any step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.attention import Kind, look
from clearhead.explain.finding import Finding
from clearhead.explain.query_key import adds
from clearhead.explain.reading import at_rest, call
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.units import TokenUnit


@dataclass(frozen=True, repr=False, eq=False)
class AttentionSteps(Finding):
    """The finding.

    input     (query, width): each token's vector as it enters the layer; None where the decoder looks at the encoder,
              which happens in the middle of a layer
    query     (heads, query, head_dim); key and value (heads, key, head_dim)
    scale     what query · key is multiplied by
    added     (heads, query, key): what the model adds for distances and the like; None where it adds nothing
    scores    (heads, query, key): scale · (query · key) + added
    weights   (heads, query, key): the softmax of the scores that may be seen; 0 where the mask hides a key
    answers   (heads, query, head_dim): weights · value
    output    (query, width): the answers side by side, times one more matrix
    """

    kind: ClassVar[str] = "attention-steps"

    model: str
    side: Kind
    layer: int
    tokens: list[TokenUnit]
    keys: list[TokenUnit]
    input: np.ndarray | None
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    scale: float
    added: np.ndarray | None
    scores: np.ndarray
    weights: np.ndarray
    answers: np.ndarray
    output: np.ndarray

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["head", "query", "query_token", "key", "key_token", "product", "score", "weight"]
        products = self.query @ self.key.swapaxes(1, 2)
        for h, q, k in np.ndindex(self.weights.shape):
            numbers = (float(of[h, q, k]) for of in (products, self.scores, self.weights))
            yield [h, q, self.tokens[q].text, k, self.keys[k].text, *numbers]


def attention_steps(
    pipe: Pipeline, text: str, pair: str | None = None, target: str | None = None, layer: int = 0, side: str = "auto"
) -> AttentionSteps:
    """One layer's attention, from its input to its output. The arguments are those of `attention`."""
    looked = look(pipe, text, pair, target, side)
    (layer,), _ = looked.choose([layer], None)
    block = looked.stack.blocks[layer]
    part: Any = block.cross_attention if looked.side == "cross" else block.attention
    names = {
        name: looked.tap(layer, name) for name in ("query", "key", "value", "scores", "weights", "heads", "output")
    }
    if looked.side != "cross":
        names["input"] = names["query"].replace("attention.query", "input")
    with at_rest(pipe.model), trace(pipe.model, *names.values(), detach=True) as seen:
        call(pipe, looked.reading)
    found = {name: seen[tap][0].float().cpu().numpy() for name, tap in names.items()}
    if found["key"].shape[1] != len(looked.keys):
        raise InputError(
            f"{pipe.model.family.title} also looks at what it remembers, which has no tokens to show. "
            "Use attention, which shows the memory as one."
        )
    for name in ("key", "value"):  # as many as there are query heads, which may share them
        found[name] = found[name].repeat(part.heads // part.kv_heads, axis=0)
    added = None
    if looked.side != "cross" and adds(looked.stack, part):
        added = found["scores"] - part.scale * (found["query"] @ found["key"].swapaxes(1, 2))
    return AttentionSteps(
        pipe.name, looked.side, layer, looked.queries, looked.keys, found.get("input"), found["query"], found["key"],
        found["value"], float(part.scale), added, found["scores"], found["weights"], found["heads"], found["output"],
    )  # fmt: skip
