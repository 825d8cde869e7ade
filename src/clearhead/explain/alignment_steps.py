"""Attention's first home, step by step: a decoder's state scores every state of the encoder, softmax makes shares of
the scores, their weighted sum is the context, and state and context together choose the word.

Additive attention (Bahdanau) scores with the state before the step, and the step reads the context it finds; dot,
general and concat (Luong) with the state after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.attention_site import attention_site, row_columns, row_names
from clearhead.explain.capabilities import has_recurrent_attention, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_count
from clearhead.explain.inference import call, eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import TARGET, count
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.text.units import display_texts
from clearhead.units import Unit


@dataclass(frozen=True, repr=False, eq=False)
class AlignmentSteps(Finding):
    """
    score     how a state is held against the encoder's: "additive", "dot", "general" or "concat"
    before    whether it is the state before the step that looks
    tokens    what is written at each step, with what has just been read
    keys      what the encoder has read; `memory` (source, width) is its state after each of them
    states    (target, width): the state that looks at each step
    scores    (target, source); weights alike: each row sums to one (to less where attention fades with distance)
    context   (target, width): the encoder's states, each as much as its weight says
    outputs   (target, width): the state after each step
    readout   (target, width): what the words are scored by, tanh(W [context; state])
    words     for each step the likeliest words, with their probabilities
    """

    kind: ClassVar[str] = "alignment-steps"

    model: str
    score: str
    before: bool
    tokens: Sequence[Unit]
    keys: Sequence[Unit]
    memory: np.ndarray
    states: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    context: np.ndarray
    outputs: np.ndarray
    readout: np.ndarray
    words: list[list[tuple[str, float]]]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["step", *row_columns(self.tokens), "key", "key_token", "score", "weight"]
        for q, k in np.ndindex(self.weights.shape):
            row = [q, *row_names(self.tokens[q]), k, self.keys[k].text]
            yield [*row, float(self.scores[q, k]), float(self.weights[q, k])]


def alignment_steps(pipe: Pipeline, text: str, target: str | None = None, top_k: int = 6) -> AlignmentSteps:
    """Every step of writing, with all that attention computed for it.

    target   what the model is made to write; by default its own answer
    top_k    how many words to list for each step
    """
    checked_count("top_k", top_k)
    if (reason := has_recurrent_attention(pipe)) is not None:
        raise InputError(reason)
    site = attention_site(pipe, text, None, target, "cross")
    decoder: Any = site.stack
    memory, readout = f"encoder.{pipe.model.stacks['encoder'].last_tap}", f"decoder.{decoder.last_tap}"
    output = f"decoder.layers.{len(decoder.layers) - 1}.output"
    names = [memory, output, readout, *(site.tap(0, name) for name in ("state", "scores", "weights", "context"))]
    with eval_mode(pipe.model), trace(pipe.model, *names, detach=True) as seen:
        logits = call(pipe, site.reading).logits[0].float()
    best = logits.softmax(-1).topk(min(top_k, logits.shape[-1]))
    words = [
        list(zip(display_texts(pipe.tokenizer.target, ids), chances, strict=True))
        for ids, chances in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    kept = {name: seen[name][0].float().cpu().numpy() for name in names}
    return AlignmentSteps(
        pipe.name, decoder.attention.score, bool(decoder.looks_before), site.rows, site.keys, kept[memory],
        kept[site.tap(0, "state")],
        kept[site.tap(0, "scores")], kept[site.tap(0, "weights")], kept[site.tap(0, "context")], kept[output],
        kept[readout], words,
    )  # fmt: skip


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, k: int, target: str | None) -> AlignmentSteps:
    return alignment_steps(pipe, text, target, k)


QUESTION = Question(
    name="alignment-steps", kind="alignment-steps", group="attention", answer=_answer,
    checks=(reads_one_input, has_recurrent_attention), params=(count("alignment-steps.k", 6), TARGET),
)  # fmt: skip
