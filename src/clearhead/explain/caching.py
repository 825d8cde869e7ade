"""What the KV cache (of keys and values) saves: step by step, what is computed anew without it and only read with it.

Nothing is timed. The multiply-adds are counted from the shapes of the model's own matrices and from what each layer
sees of the text that the model writes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import nn

from clearhead.errors import InputError
from clearhead.explain.capabilities import can_generate, has_kv_cache, has_tokenizer
from clearhead.explain.continuation import continued
from clearhead.explain.finding import Finding
from clearhead.explain.question import Question
from clearhead.explain.settings import NEW_TOKENS
from clearhead.messages import say
from clearhead.models.model import Model
from clearhead.nn import Attention, Block
from clearhead.pipeline import Pipeline


@dataclass(frozen=True)
class CacheStep:
    """One token is written.

    token      the token that this step writes
    length     how many tokens the model has read by then; without a cache it computes keys and values of all of them
    computed   with a cache: of how many, the last ones, it computes keys and values; those before are only read
    attended   how many of the last ones some layer looks at (all, unless every layer has a window)
    macs       multiply-adds of this step with the cache; macs_without_cache: and without it
    cached_values   how many numbers the cache holds afterwards
    """

    token: str
    length: int
    computed: int
    attended: int
    macs: int
    macs_without_cache: int
    cached_values: int


@dataclass(frozen=True, repr=False, eq=False)
class Caching(Finding):
    """The finding.

    tokens            what the model reads and writes: the first `prompt` were given
    source            what an encoder has read, where there is one: its keys and values are computed once with a cache
    layers            of the stack that writes
    bytes_per_value   of each number that the cache keeps
    """

    kind: ClassVar[str] = "cache"

    model: str
    tokens: list[str]
    source: list[str]
    prompt: int
    layers: int
    bytes_per_value: int
    steps: list[CacheStep]

    @property
    def saved(self) -> float:
        """The share of all multiply-adds that the cache saves."""
        return 1 - sum(step.macs for step in self.steps) / sum(step.macs_without_cache for step in self.steps)

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["step", "token", "length", "computed", "attended", "macs", "macs_without_cache", "cached_values"]
        for n, one in enumerate(self.steps, start=1):
            yield [
                n,
                one.token,
                one.length,
                one.computed,
                one.attended,
                one.macs,
                one.macs_without_cache,
                one.cached_values,
            ]


def caching(pipe: Pipeline, text: str, max_new_tokens: int | None = 12) -> Caching:
    """The model goes on with the text (or answers it) for so many tokens; its steps are counted both ways."""
    model = pipe.model
    if not pipe.model.can_generate:
        raise InputError(say("explain.does_not_write", task=pipe.model.task))
    if (reason := has_kv_cache(pipe)) is not None:
        raise InputError(reason)
    if max_new_tokens == 0:
        raise InputError(say("explain.nothing_written"))
    written = continued(pipe, text, max_new_tokens=max_new_tokens)
    tokens = [token.text for token in written.reading.outputs]
    source = [token.text for token in written.reading.units] if written.reading.target else []
    costs = _Costs(model, len(source))
    steps = []
    for length in range(written.begin, len(tokens)):  # the step that writes tokens[length] has read all before it
        first = length == written.begin
        computed = length if first else 1
        work = costs.of(length - computed, length, looks_up=first)
        without = costs.of(0, length, looks_up=True)
        steps.append(CacheStep(tokens[length], length, computed, costs.seen(length), work, without, costs.kept(length)))
    each = next(model.parameters()).element_size() if not model.quantized else 4  # activations stay fp32 then
    return Caching(pipe.name, tokens, source, written.begin, len(costs.blocks), each, steps)


class _Costs:
    """Multiply-adds of one pass of the stack that writes, from shapes alone: no weight is looked at."""

    def __init__(self, model: Model, source: int) -> None:
        like = model.family.make(model.config, model.task, device="meta")  # also where the weights are packed
        assert like.language_head is not None
        stack = like.output_stack
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


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, max_new_tokens: int) -> Caching:
    return caching(pipe, text, max_new_tokens)


QUESTION = Question(
    name="cache", kind="cache", group="answer", answer=_answer, checks=(has_tokenizer, can_generate, has_kv_cache),
    params=(replace(NEW_TOKENS, key="write_at_most", default=12, least=1),),
)  # fmt: skip
