"""The recurrent layers of a model, by the names under which they announce gates, cells and states."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from clearhead.models.model import Model
from clearhead.nn.tracing import tap_points

Direction = Literal["forward", "reverse"]
# In the order in which one step computes them.
PARTS = (
    "input_gate", "forget_gate", "reset_gate", "update_gate", "candidate", "output_gate", "cell", "hidden",
)  # fmt: skip
GATES = frozenset(part for part in PARTS if part.endswith("_gate"))  # between zero and one
# `reverse` is torch's other direction, which upper layers read too; ELMo has two stacks, `forward` and `backward`
_STATE = re.compile(
    r"(?P<side>encoder\.|decoder\.|)layers\.(?P<layer>\d+)\.(?P<way>forward\.|backward\.|reverse\.|)hidden"
)


@dataclass(frozen=True)
class RecurrentTaps:
    """One direction of one layer.

    prefix   of its trace names: "layers.0.", "encoder.layers.1.reverse.", "layers.0.backward."
    parts    what it announces, in the order of a step
    """

    side: str
    layer: int
    direction: Direction
    prefix: str
    parts: tuple[str, ...]

    @property
    def memory(self) -> str:
        """What it carries on for long: an LSTM's cell, else the hidden state."""
        return "cell" if "cell" in self.parts else "hidden"


def recurrent_layers(model: Model, side: str | None = None) -> list[RecurrentTaps]:
    """All of them, layer by layer, forward before reverse; of one stack ("encoder", "decoder", or "" for the only one)
    where `side` names it."""
    points = tap_points(model)
    found = []
    for name in points:
        match = _STATE.fullmatch(name)
        if match is None or (side is not None and match["side"].rstrip(".") != side):
            continue
        prefix = name.removesuffix("hidden")
        parts = tuple(part for part in PARTS if prefix + part in points)
        direction: Direction = "forward" if match["way"] in ("", "forward.") else "reverse"
        found.append(RecurrentTaps(match["side"].rstrip("."), int(match["layer"]), direction, prefix, parts))
    return sorted(found, key=lambda one: (one.side, one.layer, one.direction))
