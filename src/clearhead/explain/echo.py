"""How long a word echoes in a recurrent state: each word in turn is replaced by one that says nothing, and at every
later step we look how far the state moves.

The echo of a word at a step is the length of that change, as a share of the change at the step that reads the word: 1
there, and falling as other words write over it. The last column is what is left of each word in the one vector that an
encoder without attention hands over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.activations import StackSide, check_side, side_or_none
from clearhead.explain.capabilities import has_recurrence, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.gates import recurrent_layer
from clearhead.explain.inference import eval_mode
from clearhead.explain.question import Question
from clearhead.explain.recurrence import Direction
from clearhead.explain.saliency import neutral_vectors
from clearhead.explain.scores import repeated
from clearhead.explain.settings import LAYER, STACK, TARGET, Setting
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.units import Unit

ROWS = 64  # copies of a text that are read at a time


@dataclass(frozen=True, repr=False, eq=False)
class Echo(Finding):
    """
    side       of an encoder–decoder: whose state; None where there is one stack
    tokens     what is read
    layer      whose hidden state, and how many there are; direction: how it reads the text
    change     (words, steps): how far the state after each step moves when a word says nothing; 0 before it is read,
               unless a layer below has read ahead
    echo       the same as a share of the change at the step that reads the word; nan for a word that changes nothing
    """

    kind: ClassVar[str] = "echo"

    model: str
    side: StackSide | None
    tokens: Sequence[Unit]
    layer: int
    layers: int
    direction: Direction
    change: np.ndarray
    echo: np.ndarray

    @property
    def left(self) -> np.ndarray:
        """(words,): the echo of each in the last state that is computed."""
        last: np.ndarray = self.echo[:, 0 if self.direction == "reverse" else -1]
        return last

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["word", "token", "step", "after", "change", "echo"]
        for (i, t), value in np.ndenumerate(self.echo):
            yield [i, self.tokens[i].text, t, self.tokens[t].text, float(self.change[i, t]), float(value)]


def echo(
    pipe: Pipeline,
    text: str,
    layer: int = -1,
    *,
    direction: Direction = "forward",
    side: StackSide | None = None,
    target: str | None = None,
) -> Echo:
    """How far each word, by itself, moves the hidden states of a recurrent layer after it.

    side     of an encoder–decoder: by default the encoder's, which reads the text
    target   of a decoder: what it is made to write; by default the model's own answer
    """
    if (reason := has_recurrence(pipe)) is not None:
        raise InputError(reason)
    side = check_side(pipe, side, "encoder")
    place, layers = recurrent_layer(pipe, side, layer, direction)
    model = pipe.model
    both = model.is_encoder_decoder
    reading = pipe.read(text, target="" if both and side == "encoder" and target is None else target)
    units = reading.target if side == "decoder" else reading.units
    which = list(model.stacks).index(side or "")
    stack = model.stacks[side or ""]
    enters = f"{f'{side}.' if side else ''}embed.{stack.embed.content}"
    neutral = neutral_vectors(pipe)[which]
    few = {"logits_to_keep": 1} if model.language_head is not None else {}

    def states(gone: list[int]) -> Tensor:
        """(copies, steps, width), of the text as it is and then with each of these words gone."""

        def without(x: Tensor) -> Tensor:
            x = x.clone()
            x[range(1, len(gone) + 1), gone] = neutral
            return x

        inputs = {name: repeated(tensor, len(gone) + 1) for name, tensor in reading.inputs.items()}
        with trace(model, f"{place.prefix}hidden", replace={enters: without}, detach=True) as seen:
            model(**inputs, **few)
        return seen[f"{place.prefix}hidden"].float()

    changes = []
    with eval_mode(model):
        for first in range(0, len(units), ROWS):
            kept = states(list(range(first, min(first + ROWS, len(units)))))
            changes.append((kept[1:] - kept[:1]).norm(dim=-1))
    change = torch.cat(changes).cpu().numpy()
    own = np.diagonal(change)[:, None]
    share = np.divide(change, own, out=np.full_like(change, np.nan), where=own > 1e-6 * max(float(change.max()), 1e-9))
    return Echo(pipe.name, side, units, place.layer, layers, place.direction, change, share)


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, side: str, **values: Any) -> Echo:
    return echo(pipe, text, side=side_or_none(side), **values)


QUESTION = Question(
    name="echo", kind="echo", group="neurons", answer=_answer, checks=(reads_one_input, has_recurrence),
    params=(
        replace(LAYER, default=-1), Setting(name="direction", key="gates.direction", type=Direction, default="forward"),
        replace(STACK, key="echo.side"), TARGET,
    ),
)  # fmt: skip
