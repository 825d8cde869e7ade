"""Where a model's parameters live: every part with its size, from a configuration alone. No weight is needed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.finding import Finding
from clearhead.explain.question import Question
from clearhead.explain.settings import Setting
from clearhead.hub.describe import Description, Part, describe
from clearhead.messages import say
from clearhead.models import families
from clearhead.pipeline import Pipeline


@dataclass(frozen=True)
class ParameterGroup:
    """Equal tensors of one part; those of all layers together.

    stack        "" for a model of one stack, else "encoder" or "decoder"; "head" for what answers
    part         "embedding", "attention", "cross-attention", "feed-forward", "recurrent", "norm", "positions", "other"
                 or "head"
    name         the tensor's path, with * for the number of a layer
    shape        of one of them; `count` how many there are
    parameters   of all together, each tensor counted once: 0 where all are shared with pieces before
    shared       how many of their numbers are counted elsewhere
    """

    stack: str
    part: str
    name: str
    shape: list[int]
    count: int
    parameters: int
    shared: int


@dataclass(frozen=True, repr=False, eq=False)
class Parameters(Finding):
    """The finding. The pieces' parameters sum to `total`; `layers` says how many layers each stack has."""

    kind: ClassVar[str] = "parameters"

    model: str
    family: str
    task: str
    total: int
    layers: dict[str, int]
    pieces: list[ParameterGroup]

    def part(self, *names: str) -> int:
        """How many parameters the parts of these names have."""
        return sum(piece.parameters for piece in self.pieces if piece.part in names)

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["stack", "part", "name", "shape", "count", "parameters", "shared"]
        for one in self.pieces:
            shape = " × ".join(map(str, one.shape))
            yield [one.stack, one.part, one.name, shape, one.count, one.parameters, one.shared]


def parameters(what: Pipeline | Description | str) -> Parameters:
    """The parts of a loaded model, of a description, or of a published size by its name ("gpt2", "t5-small" …)."""
    if isinstance(what, str):
        described = _published(what)
    elif isinstance(what, Description):
        described = what
    else:
        described = describe(what.name, what.model.family, what.model.config, what.model.task)
    pieces = [_piece(part) for part in described.parts]
    layers: dict[str, int] = {}
    for part in described.parts:
        if part.name.split(".")[0] == "layers" or ".layers." in part.name:
            stack = _stack(part.name)
            layers[stack] = max(layers.get(stack, 0), part.count)
    return Parameters(described.name, described.family, described.task, described.parameters, layers, pieces)


def _published(name: str) -> Description:
    known = {preset: family for family in families() for preset in family.presets}
    if name not in known:
        raise InputError(say("explain.no_published_size", name=repr(name), near=did_you_mean(name, list(known))))
    return describe(name, known[name], known[name].preset(name))


def _piece(part: Part) -> ParameterGroup:
    numbers = math.prod(part.shape) * part.count
    stack = _stack(part.name)
    return ParameterGroup(stack, _part(part.name), part.name, list(part.shape), part.count, part.parameters,
                 numbers - part.parameters)  # fmt: skip


def _stack(name: str) -> str:
    first = name.split(".")[0]
    return first if first in ("encoder", "decoder", "head") else ""


def _part(name: str) -> str:
    """What a tensor belongs to, by the names that all families share."""
    parts = name.split(".")
    if parts[0] == "head":
        return "head"
    if any(word.endswith("norm") for word in parts):
        return "norm"
    if "positions" in parts or "position_bias" in parts or "relative" in parts:
        return "positions"
    if "embed" in parts:
        return "embedding"
    for word, part in (("cross_attention", "cross-attention"), ("attention", "attention"),
                       ("feedforward", "feed-forward"), ("rnn", "recurrent"), ("forwards", "recurrent"),
                       ("backwards", "recurrent")):  # fmt: skip
        if word in parts:
            return part
    return "other"


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, published: str | None) -> Parameters:
    return parameters(published or pipe)


QUESTION = Question(
    name="parameters", kind="parameters", group="model", answer=_answer, text=False, needs_layers=False,
    params=(Setting(name="published", key="parameters.published", type=str),),
)  # fmt: skip
