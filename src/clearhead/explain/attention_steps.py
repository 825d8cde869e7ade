"""Scaled dot-product attention in six steps, as one layer took them.

Everything that happens between what enters a layer's attention and what leaves it, for all tokens and heads, so that
a figure can stop at any step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.attention_site import AttentionSide, attention_site, row_columns, row_names
from clearhead.explain.capabilities import has_heads, no_segment_memory, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.inference import call, eval_mode
from clearhead.explain.query_key import adds
from clearhead.explain.question import Question
from clearhead.explain.settings import LAYER, SIDE, TARGET
from clearhead.messages import say
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.units import Unit


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
    side: AttentionSide
    layer: int
    tokens: Sequence[Unit]
    keys: Sequence[Unit]
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
        yield ["head", "query", *row_columns(self.tokens), "key", "key_token", "product", "score", "weight"]
        products = self.query @ self.key.swapaxes(1, 2)
        for h, q, k in np.ndindex(self.weights.shape):
            numbers = (float(of[h, q, k]) for of in (products, self.scores, self.weights))
            yield [h, q, *row_names(self.tokens[q]), k, self.keys[k].text, *numbers]


def attention_steps(
    pipe: Pipeline, text: str, pair: str | None = None, target: str | None = None, layer: int = 0, side: str = "auto"
) -> AttentionSteps:
    """One layer's attention, from its input to its output. The arguments are those of `attention`."""
    if (reason := has_heads(pipe)) is not None:
        raise InputError(reason)
    site = attention_site(pipe, text, pair, target, side)
    (layer,), _ = site.layers([layer]), site.heads(None)
    part = site.module(layer)
    names = {name: site.tap(layer, name) for name in ("query", "key", "value", "scores", "weights", "heads", "output")}
    if site.side != "cross":
        names["input"] = names["query"].replace("attention.query", "input")
    with eval_mode(pipe.model), trace(pipe.model, *names.values(), detach=True) as seen:
        call(pipe, site.reading)
    tensors = {name: seen[tap][0].float().cpu().numpy() for name, tap in names.items()}
    if tensors["key"].shape[1] != len(site.keys):
        raise InputError(say("explain.looks_at_memory", family=pipe.model.family.title))
    for name in ("key", "value"):  # as many as there are query heads, which may share them
        tensors[name] = tensors[name].repeat(part.heads // part.kv_heads, axis=0)
    added = None
    if site.side != "cross" and adds(site.stack, part):
        added = tensors["scores"] - part.scale * (tensors["query"] @ tensors["key"].swapaxes(1, 2))
    return AttentionSteps(
        pipe.name, site.side, layer, site.rows, site.keys, scale=float(part.scale), added=added,
        answers=tensors.pop("heads"), input=tensors.pop("input", None), **tensors,
    )  # fmt: skip


# ---- as a question

QUESTION = Question(
    name="attention-steps", kind="attention-steps", group="attention", answer=attention_steps,
    checks=(reads_one_input, has_heads, no_segment_memory), second="pair", params=(LAYER, SIDE, TARGET),
)  # fmt: skip
