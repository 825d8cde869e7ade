"""Head ablation: take a head away, and see how the model's answer changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.attention_site import AttentionSide, AttentionSite, attention_site
from clearhead.explain.capabilities import has_heads, has_probabilities, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices, checked_count
from clearhead.explain.inference import eval_mode
from clearhead.explain.question import Question
from clearhead.explain.scores import Candidate, answer_scores, batch_size_for
from clearhead.explain.settings import ANSWER_POSITION, HEADS, LAYERS, SIDE, TARGET, Setting, chosen_word, count
from clearhead.explain.word_choice import token_or_label
from clearhead.messages import say
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.units import Unit


@dataclass(frozen=True, repr=False, eq=False)
class Ablation(Finding):
    """
    tokens      what the heads look from
    heads       which heads of each layer
    effect      (layers, heads): how the answer changes when that head alone is taken away
    metric      what the effect is measured in, in words
    position    whose answer it is; None where the whole text has one
    strongest   (layer, head) of the largest effect
    before      the likeliest answers of the whole model
    after       those without the strongest head: without the head, where one was asked for
    """

    kind: ClassVar[str] = "ablation"

    model: str
    side: AttentionSide
    tokens: Sequence[Unit]
    layers: list[int]
    heads: list[int]
    effect: np.ndarray
    metric: str
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
    layers: Indices = None,
    heads: Indices = None,
    position: int | None = None,
    chosen: str | int | None = None,
    how: Literal["zero", "mean"] = "zero",
    side: str = "auto",
    top_k: int = 10,
) -> Ablation:
    """Take heads away one by one. The effect is how far all probabilities move (KL divergence, in bits), or, with a
    chosen token or label, how much its score rises (or falls, where it is negative).

    position   which answer is site at; by default the next token (of an encoder–decoder without a target, the first
               it writes), the first masked word, or the label of the text
    chosen     a token (or a label), by its text or id
    how        "zero": the head says nothing; "mean": it says the same everywhere, what it says on average in this text
    side       "self"; of an encoder–decoder the heads of its "encoder", "decoder" or "cross" (the default)
    """
    if how not in ("zero", "mean"):
        raise InputError(say("explain.ablate_how", how=repr(how)))
    checked_count("top_k", top_k)
    answer = answer_scores(pipe)
    if chosen is None and not answer.exclusive:
        labels = answer.names(list(range(pipe.model.config.num_labels)))
        raise InputError(say("explain.choose_a_label", labels=labels))
    if target is None and position is None and answer.writes:
        target = ""  # the first token that would be written
    if (reason := has_heads(pipe)) is not None:
        raise InputError(reason)
    site = attention_site(pipe, text, pair, target, side)
    layers, heads = site.layers(layers), site.heads(heads)
    where = answer.position(site.reading, position)
    runs = list(product(layers, heads))
    changed: list[Tensor] = []
    with eval_mode(pipe.model):
        fixed = site.encoder_outputs()
        time = max(len(site.queries), len(site.keys))
        size = batch_size_for(time, pipe.model.config.hidden_size, site.head_count) - 1
        for first in range(0, len(runs), size):
            group = runs[first : first + size]
            with trace(pipe.model, replace=_without(site, group, how)):  # the last row is the whole model
                scores = answer.rows(site.reading, where, len(group) + 1, fixed).double().cpu()
            changed += scores[:-1]
        before, after = scores[-1], torch.stack(changed)
    if chosen is None:
        effect, metric = _divergence(before, after), say("explain.probabilities_move", answer=answer.name)
    else:
        id_ = answer.id_of(chosen, len(before))
        effect, metric = after[:, id_] - before[id_], say("explain.score_change", name=repr(answer.names([id_])[0]))
    best = int(effect.abs().argmax())
    return Ablation(
        pipe.name, site.side, site.queries, layers, heads,
        effect.reshape(len(layers), len(heads)).float().numpy(), metric, where, runs[best],
        answer.likeliest(before, top_k), answer.likeliest(after[best], top_k),
    )  # fmt: skip


def _without(site: AttentionSite, runs: list[tuple[int, int]], how: str) -> dict[str, Callable[[Tensor], Tensor]]:
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

    return {site.tap(layer, "heads"): taking(pairs) for layer, pairs in by_layer.items()}


def _divergence(before: Tensor, after: Tensor) -> Tensor:
    """How many bits the probabilities after, (rows, size), are from those before, (size,): 0 where nothing changed."""
    was, now = before.log_softmax(-1), after.log_softmax(-1)
    return (torch.where(was > -math.inf, was.exp() * (was - now), 0.0).sum(-1) / math.log(2)).clamp(min=0)


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: str | None, chosen: str | None, k: int, **values: Any) -> Ablation:
    return ablation(pipe, text, second, chosen=token_or_label(pipe, chosen, text), top_k=k, **values)


QUESTION = Question(
    name="ablation", kind="ablation", group="attention", answer=_answer,
    checks=(reads_one_input, has_heads, has_probabilities), second="pair",
    params=(
        LAYERS, HEADS, ANSWER_POSITION, chosen_word("ablation.chosen"),
        Setting(name="how", key="ablation.how", type=Literal["zero", "mean"], default="zero"), SIDE, TARGET,
        count("ablation.k", 10),
    ),
)  # fmt: skip
