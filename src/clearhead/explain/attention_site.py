"""One of a model's attentions on one input: which stack, what looks (queries), what is looked at (keys), its taps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.indices import Indices, checked_indices
from clearhead.explain.inference import call, eval_mode
from clearhead.messages import say
from clearhead.nn.stack import Stack
from clearhead.pipeline import Pipeline, Reading
from clearhead.pipeline.reading import written_after
from clearhead.text.units import units_of_ids
from clearhead.units import Unit, WrittenUnit

AttentionSide = Literal["self", "encoder", "decoder", "cross"]


@dataclass(frozen=True)
class AttentionSite:
    """
    side      "self" of a model's only stack, "encoder", "decoder", or "cross": of the decoder to the encoder
    queries   what is read at the places that look
    """

    pipe: Pipeline
    reading: Reading
    side: AttentionSide
    stack: Stack
    queries: Sequence[Unit]
    keys: Sequence[Unit]

    @cached_property
    def rows(self) -> Sequence[Unit]:
        """What the rows of its weights are called: the queries; across two sequences, what is written at each step."""
        return written_rows(self.pipe, self.reading) if self.side == "cross" else self.queries

    @property
    def of_states(self) -> Any:
        """The one attention of a recurrent decoder, over the encoder's states; None where layers have their own."""
        return getattr(self.stack, "attention", None) if self.side == "cross" else None

    @property
    def prefix(self) -> str:
        """What the trace names of its stack begin with."""
        name = self.reading.stack if self.side == "self" else "encoder" if self.side == "encoder" else "decoder"
        return f"{name}." if name else ""

    def tap(self, layer: int, tensor: str) -> str:
        """The name under which a trace knows a tensor of this attention."""
        if self.of_states is not None:
            return f"{self.prefix}attention.{tensor}"
        return f"{self.prefix}layers.{layer}.{'cross_attention' if self.side == 'cross' else 'attention'}.{tensor}"

    def module(self, layer: int) -> Any:
        """The attention itself; None in a layer without one."""
        if self.of_states is not None:
            return self.of_states
        block = self.stack.layers[layer]
        return getattr(block, "cross_attention" if self.side == "cross" else "attention", None)

    @property
    def head_count(self) -> int:
        """How many heads a layer has; 0 where it attends to nothing."""
        return 1 if self.of_states is not None else int(getattr(self.module(0), "heads", 0))

    def layers(self, layers: Indices) -> list[int]:
        """The numbers of the layers that are meant."""
        owner = {"self": "model", "encoder": "encoder"}.get(self.side, "decoder")
        count = 1 if self.of_states is not None else len(self.stack.layers)
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
        said = model.encode(self.reading.inputs["input_ids"], None, None)
        return {"encoder_outputs": said} if isinstance(said, Tensor) else {}  # a recurrent one hands over states too


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
    name = "encoder" if side == "encoder" else reading.stack
    stack = model.stacks[name] if name else model.output_stack
    queries = reading.target if side in ("decoder", "cross") else reading.units
    keys = reading.target if side == "decoder" else reading.units
    return AttentionSite(pipe, reading, cast(AttentionSide, side), stack, queries, keys)


def written_rows(pipe: Pipeline, reading: Reading) -> Sequence[Unit]:
    """What a decoder writes at each place that it reads; what it reads, of a model that writes nothing.

    Where the text does not say what comes last, it is the model's own likeliest token, and marked so.
    """
    if pipe.model.language_head is None or len(reading.written) == len(reading.target):
        return reading.written or reading.target
    with eval_mode(pipe.model):
        likeliest = int(call(pipe, reading).logits[0, -1].argmax())
    (unit,) = units_of_ids(pipe.tokenizer.target, [likeliest], "")
    if unit.word is not None:  # a word of its own
        unit = replace(unit, word=1 + max((one.word for one in reading.written if one.word is not None), default=-1))
    return [*reading.written, written_after(unit, reading.target[-1], guessed=True)]


def row_columns(rows: Sequence[Unit]) -> list[str]:
    """The columns of a table that name a row."""
    return ["written_token", "read_token"] if isinstance(rows[0], WrittenUnit) else ["query_token"]


def row_names(row: Unit) -> list[str]:
    """What stands in them."""
    return [row.text, row.read] if isinstance(row, WrittenUnit) else [row.text]
