"""One of a model's attentions on one input: which stack, what looks (queries), what is looked at (keys), its taps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.indices import Indices, checked_indices
from clearhead.messages import say
from clearhead.nn.stack import Stack
from clearhead.pipeline import Pipeline, Reading
from clearhead.units import Unit

AttentionSide = Literal["self", "encoder", "decoder", "cross"]


@dataclass(frozen=True)
class AttentionSite:
    """
    side   "self" of a model's only stack, "encoder", "decoder", or "cross": of the decoder to the encoder
    """

    pipe: Pipeline
    reading: Reading
    side: AttentionSide
    stack: Stack
    queries: Sequence[Unit]
    keys: Sequence[Unit]

    @property
    def prefix(self) -> str:
        """What the trace names of its stack begin with."""
        return "" if self.side == "self" else "encoder." if self.side == "encoder" else "decoder."

    def tap(self, layer: int, tensor: str) -> str:
        """The name under which a trace knows a tensor of this attention."""
        return f"{self.prefix}layers.{layer}.{'cross_attention' if self.side == 'cross' else 'attention'}.{tensor}"

    def module(self, layer: int) -> Any:
        """The attention itself; None in a layer without one."""
        block = self.stack.layers[layer]
        return getattr(block, "cross_attention" if self.side == "cross" else "attention", None)

    @property
    def head_count(self) -> int:
        """How many heads a layer has; 0 where it attends to nothing."""
        return int(getattr(self.module(0), "heads", 0))

    def layers(self, layers: Indices) -> list[int]:
        """The numbers of the layers that are meant."""
        owner = {"self": "model", "encoder": "encoder"}.get(self.side, "decoder")
        count = len(self.stack.layers)
        return checked_indices("layer", layers, count, say(f"explain.{owner}_has_layers", count=count))

    def heads(self, heads: Indices) -> list[int]:
        count = self.head_count
        if not count:
            raise InputError(say("explain.no_attention", family=self.pipe.model.family.title))
        return checked_indices("head", heads, count, say("explain.layer_has_heads", count=count))

    def encoder_outputs(self) -> dict[str, Tensor]:
        """What the encoder says, where nothing is changed in it: copies of the input share it."""
        model: Any = self.pipe.model
        if not model.is_encoder_decoder or self.side == "encoder":
            return {}
        return {"encoder_outputs": model.encode(self.reading.inputs["input_ids"], None, None)}


def attention_site(pipe: Pipeline, text: str, pair: str | None, target: str | None, side: str) -> AttentionSite:
    """side: "auto" is the only stack, or of an encoder–decoder "cross"."""
    model = pipe.model
    sides = ("encoder", "decoder", "cross") if model.is_encoder_decoder else ("self",)
    if side == "auto":
        side = sides[-1]
    if side not in sides:
        shape = say("explain.two_stacks" if model.is_encoder_decoder else "explain.one_stack")
        names = [repr(name) for name in sides]
        raise InputError(say("explain.no_side", family=model.family.title, shape=shape, sides=names, side=repr(side)))
    if side == "encoder" and target is None and model.language_head is not None:
        target = ""  # nothing needs to be written to see how the text is read
    reading = pipe.read(text, pair, target)
    stack = model.stacks["encoder"] if side == "encoder" else model.output_stack
    queries = reading.target if side in ("decoder", "cross") else reading.units
    keys = reading.target if side == "decoder" else reading.units
    return AttentionSite(pipe, reading, cast(AttentionSide, side), stack, queries, keys)
