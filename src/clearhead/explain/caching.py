"""What the key/value cache saves: step by step, what is computed anew without it and only read with it.

Nothing is timed. The multiply-adds are counted from the shapes of the model's own matrices and from what each layer
sees of the text that the model writes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from clearhead.errors import InputError
from clearhead.explain.answering import answer, writes
from clearhead.explain.finding import Finding
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.model import Model
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Attention, Block, Stack
from clearhead.pipeline import Pipeline


@dataclass(frozen=True)
class Step:
    """One token is written.

    token      the token that this step writes
    length     how many tokens the model has read by then; without a cache it computes keys and values of all of them
    computed   with a cache: of how many, the last ones, it computes keys and values; those before are only read
    seen       how many of the last ones some layer looks at (all, unless every layer has a window)
    work       multiply-adds of this step with the cache
    without    and without it
    kept       numbers that the cache holds afterwards
    """

    token: str
    length: int
    computed: int
    seen: int
    work: int
    without: int
    kept: int


@dataclass(frozen=True, repr=False, eq=False)
class Caching(Finding):
    """The finding.

    tokens   what the model reads and writes: the first `prompt` were given
    source   what an encoder has read, where there is one: its keys and values are computed once with a cache
    layers   of the stack that writes
    bytes    of each number that the cache keeps
    """

    kind: ClassVar[str] = "cache"

    model: str
    tokens: list[str]
    source: list[str]
    prompt: int
    layers: int
    bytes: int
    steps: list[Step]

    @property
    def saved(self) -> float:
        """The share of all multiply-adds that the cache saves."""
        return 1 - sum(step.work for step in self.steps) / sum(step.without for step in self.steps)

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["step", "token", "length", "computed", "seen", "work", "without", "kept"]
        for n, one in enumerate(self.steps, start=1):
            yield [n, one.token, one.length, one.computed, one.seen, one.work, one.without, one.kept]


def caching(pipe: Pipeline, text: str, max_new_tokens: int | None = 12) -> Caching:
    """The model goes on with the text (or answers it) for so many tokens; its steps are counted both ways."""
    model = pipe.model
    if not writes(pipe):
        raise InputError(
            f"{pipe.name or 'This model'} is loaded for {model.task} and does not write, so it needs no cache. "
            "Choose a GPT-like model or an encoder–decoder."
        )
    if hasattr(model.config, "mem_len"):
        raise InputError(f"{model.family.title} keeps a memory of earlier states in place of a cache.")
    if max_new_tokens == 0:
        raise InputError("With max_new_tokens=0 nothing is written. Give 1 or more.")
    found = answer(pipe, text, max_new_tokens=max_new_tokens)
    tokens = [token.text for token in found.reading.outputs]
    source = [token.text for token in found.reading.units] if found.reading.target else []
    costs = _Costs(model, len(source))
    steps = []
    for length in range(found.begin, len(tokens)):  # the step that writes tokens[length] has read all before it
        first = length == found.begin
        computed = length if first else 1
        work = costs.of(length - computed, length, looks_up=first)
        without = costs.of(0, length, looks_up=True)
        steps.append(Step(tokens[length], length, computed, costs.seen(length), work, without, costs.kept(length)))
    each = next(model.parameters()).element_size() if not model.quantized else 4  # activations stay fp32 then
    return Caching(pipe.name, tokens, source, found.begin, len(costs.blocks), each, steps)


class _Costs:
    """Multiply-adds of one pass of the stack that writes, from shapes alone: no weight is looked at."""

    def __init__(self, model: Model, source: int) -> None:
        like = model.family.make(model.config, model.task, device="meta")  # also where the weights are packed
        assert isinstance(like, TokenModel | EncoderDecoderModel) and like.language_head is not None
        stack: Stack = like.decoder if isinstance(like, EncoderDecoderModel) else like.stack
        self.blocks: list[Block] = stack.blocks
        self.source = source
        self.crosses = [block.cross_attention for block in self.blocks if block.cross_attention is not None]
        self.memory = sum(_matrices(part) for cross in self.crosses for part in _keys_and_values(cross))
        self.row = _matrices(stack) - self.memory
        self.head = _matrices(like.language_head)

    def of(self, start: int, stop: int, looks_up: bool) -> int:
        """The tokens from start to stop are read, and the last one's scores computed.

        looks_up   whether the keys and values of what the encoder has read are computed too
        """
        pairs = sum(
            2 * _width(block.attention) * sum(min(at + 1, block.window or at + 1) for at in range(start, stop))
            for block in self.blocks
        )
        pairs += sum(2 * _width(cross) * self.source * (stop - start) for cross in self.crosses)
        return (stop - start) * self.row + pairs + self.head + (self.memory * self.source if looks_up else 0)

    def seen(self, length: int) -> int:
        return max(min(length, block.window or length) for block in self.blocks)

    def kept(self, length: int) -> int:
        own = sum(2 * _kept_width(block.attention) * min(length, block.window or length) for block in self.blocks)
        return own + sum(2 * _kept_width(cross) * self.source for cross in self.crosses)


def _matrices(module: nn.Module) -> int:
    """Multiply-adds of one row through every matrix."""
    return sum(part.in_features * part.out_features for part in module.modules() if isinstance(part, nn.Linear))


def _keys_and_values(cross: Attention) -> list[nn.Module]:
    return [cross.key_value] if cross.fused else [cross.key, cross.value]


def _width(attention: Attention) -> int:
    return attention.heads * attention.head_dim


def _kept_width(attention: Attention) -> int:
    return attention.kv_heads * attention.head_dim
