"""What a recurrent layer does word by word: how far its gates stand open, and what its cell and state hold.

Time runs along the words. A gate is between zero (shut) and one (open); the cell and the hidden state have a sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.activations import StackSide, check_side, side_or_none
from clearhead.explain.capabilities import has_recurrence, reads_one_input
from clearhead.explain.continuation import continued
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_count, checked_index
from clearhead.explain.inference import call, eval_mode
from clearhead.explain.question import Question
from clearhead.explain.recurrence import GATES, Direction, RecurrentTaps, recurrent_layers
from clearhead.explain.settings import LAYER, NEW_TOKENS, STACK, TARGET, Setting, count
from clearhead.messages import Message, say
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.units import Unit


@dataclass(frozen=True, repr=False, eq=False)
class GateValues:
    """One gate, the candidate, the cell or the hidden state, over the words.

    name      as traces have it: forget_gate, cell …
    is_gate   between zero and one; else its numbers have a sign
    units     the numbers of the units shown: those that change most, in the order in which they peak. Where the state
              is not projected, the same for all parts
    width     how many units there are
    values    (units shown, words)
    mean      (words,): over all units of the layer; of what has a sign, how large they are on average
    """

    name: str
    label: Message
    is_gate: bool
    units: list[int]
    width: int
    values: np.ndarray
    mean: np.ndarray


@dataclass(frozen=True, repr=False, eq=False)
class GatesOverTime(Finding):
    """
    side        of an encoder–decoder: whose layer; None where there is one stack
    tokens      what is read, word by word
    layer       and how many layers there are; direction: how this part of it reads the text
    parts       in the order in which a step computes them
    """

    kind: ClassVar[str] = "gates"

    model: str
    side: StackSide | None
    tokens: Sequence[Unit]
    layer: int
    layers: int
    direction: Direction
    parts: list[GateValues]

    def part(self, name: str) -> GateValues:
        """By the name that traces have for it."""
        found = next((part for part in self.parts if part.name == name), None)
        if found is None:
            raise InputError(say("explain.no_such_part", name=repr(name), known=[part.name for part in self.parts]))
        return found

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["part", "unit", "position", "token", "value"]
        for part in self.parts:
            for row, numbers in [("mean", part.mean), *zip(part.units, part.values, strict=True)]:
                for i, token in enumerate(self.tokens):
                    yield [part.name, row, i, token.text, float(numbers[i])]


def gates(
    pipe: Pipeline,
    text: str,
    layer: int = 0,
    *,
    direction: Direction = "forward",
    top: int | None = 16,
    side: StackSide | None = None,
    pair: str | None = None,
    target: str | None = None,
    max_new_tokens: int | None = None,
) -> GatesOverTime:
    """The gates, the cell and the hidden state of one recurrent layer at every word of a text.

    direction        of a layer that reads both ways: which of them
    top              only so many units, those whose cell (or state) changes most over the text; None: all of them
    side             of an encoder–decoder: whose layer; by default the decoder's
    target           what a decoder is made to write; by default the model's own answer
    max_new_tokens   let the model go on with the text first, and look at what it writes too
    """
    if (reason := has_recurrence(pipe)) is not None:
        raise InputError(reason)
    side = check_side(pipe, side, "decoder")
    place, layers = recurrent_layer(pipe, side, layer, direction)
    if pipe.model.is_encoder_decoder and side == "encoder":
        reading = pipe.read(text, pair, "" if target is None else target)
    else:
        go_on = max_new_tokens if pipe.model.is_encoder_decoder else max_new_tokens or 0
        reading = continued(pipe, text, pair, target, go_on).reading
    with eval_mode(pipe.model), trace(pipe.model, *(place.prefix + part for part in place.parts), detach=True) as seen:
        call(pipe, reading)
    tensors = {part: seen[place.prefix + part][0].float().cpu().numpy().T for part in place.parts}  # (units, words)
    if not all(np.isfinite(values).all() for values in tensors.values()):
        raise InputError(say("explain.not_finite"))
    memory = tensors[place.memory]
    chosen = _liveliest(memory, top)
    parts = [_part(name, values, chosen if len(values) == len(memory) else _liveliest(values, top))
             for name, values in tensors.items()]  # fmt: skip
    tokens = reading.target if side == "decoder" else reading.units
    return GatesOverTime(pipe.name, side, tokens, place.layer, layers, place.direction, parts)


def _part(name: str, values: np.ndarray, chosen: list[int]) -> GateValues:
    """values (units, words)"""
    mean = (values if name in GATES else np.abs(values)).mean(0)
    return GateValues(name, say(f"explain.part_{name}"), name in GATES, chosen, len(values), values[chosen], mean)


def recurrent_layer(
    pipe: Pipeline, side: StackSide | None, layer: int, direction: Direction
) -> tuple[RecurrentTaps, int]:
    """The layer that is meant, and how many there are."""
    known = recurrent_layers(pipe.model, side or "")
    if not known:
        raise InputError(say("explain.no_recurrence", family=pipe.model.family.title))
    depth = 1 + max(one.layer for one in known)
    layer = checked_index("layer", layer, depth, say("explain.there_are_layers", count=depth))
    if direction not in ("forward", "reverse"):
        raise InputError(say("explain.forward_or_reverse", direction=repr(direction)))
    found = next((one for one in known if (one.layer, one.direction) == (layer, direction)), None)
    if found is None:
        raise InputError(say("explain.reads_one_way", layer=layer))
    return found, depth


def _liveliest(memory: np.ndarray, top: int | None) -> list[int]:
    """The units, (units, words), that change most; in the order in which they are furthest from zero."""
    kept = np.argsort(-memory.std(1), kind="stable")[: len(memory) if top is None else checked_count("top", top)]
    peaks = np.abs(memory[kept]).argmax(1)
    return [int(n) for n in kept[np.argsort(peaks, kind="stable")]]


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: str | None, k: int, side: str, **values: Any) -> GatesOverTime:
    return gates(pipe, text, top=k, side=side_or_none(side), pair=second, **values)


QUESTION = Question(
    name="gates", kind="gates", group="neurons", answer=_answer, checks=(reads_one_input, has_recurrence),
    second="pair",
    params=(
        LAYER, Setting(name="direction", key="gates.direction", type=Direction, default="forward"),
        count("gates.k", 16), replace(STACK, key="gates.side"), TARGET, NEW_TOKENS,
    ),
)  # fmt: skip
