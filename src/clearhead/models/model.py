"""What a model is, whatever it reads: a configuration, stacks with a head, and properties that say what it can do.

Its two shapes stand in files of their own: one stack (`stack_model.py`), or an encoder and a decoder
(`encoder_decoder.py`). A family assembles one of these; it has no forward pass of its own unless it is truly different.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models.config import Config
from clearhead.models.heads import Head, LanguageHead
from clearhead.nn.fast.quantized import QuantizedMatrix
from clearhead.nn.kv_cache import KVCache
from clearhead.nn.stack import Stack
from clearhead.nn.state import State

if TYPE_CHECKING:
    from clearhead.models.family import Family


class Model(nn.Module):
    """What every model can do, whatever it reads and whatever its shape.

    A subclass says what it is made of in `stacks` and `output_stack`; what it can do follows from these and its head.
    """

    family: Family
    task: str
    head: Head

    def __init__(self, config: Config, head: Head) -> None:
        super().__init__()
        self.config = config
        self.head = head
        self.generation: dict[str, Any] = {}  # defaults of `generate`, from a checkpoint's generation_config.json

    def __call__(self, *args: Any, **options: Any) -> Any:
        # A trace cannot be opened from inside compiled code: what needs one runs eagerly.
        watched = options.get("output_attentions") or options.get("output_hidden_states")
        if watched and torch.compiler.is_compiling():
            return torch.compiler.disable(super().__call__)(*args, **options)
        return super().__call__(*args, **options)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def num_parameters(self) -> int:
        """Each tensor counted once, however many places share it; a quantised weight is a parameter like another."""
        rounded = sum(m.in_features * m.out_features for m in self._quantized())
        return rounded + sum(p.numel() for p in self.parameters())

    @property
    def quantized(self) -> str | None:
        """The bits that weights are rounded to, "int8" or "int4"; None where they are not."""
        return next((m.kind for m in self._quantized()), None)

    def _quantized(self) -> list[QuantizedMatrix]:
        return [m for m in self.modules() if isinstance(m, QuantizedMatrix)]

    def train(self, mode: bool = True) -> Self:
        if mode and self.quantized:
            raise InputError(
                "A quantised model cannot be trained: its weights are whole numbers. Load it without quantize=."
            )
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        for matrix in self._quantized():
            matrix.refuse_to_leave(fn)  # before anything has moved
        return super()._apply(fn, recurse)

    @property
    def language_head(self) -> LanguageHead | None:
        """What scores words, where these are the answer; beside a choice they are not."""
        return None if self.reads_choices else self.head.language

    @property
    def has_double_heads(self) -> bool:
        """Whether it chooses between texts and predicts their words at once (GPT and GPT-2)."""
        return self.reads_choices and self.head.language is not None

    @property
    def reads_choices(self) -> bool:
        """Whether it compares several texts: multiple choice."""
        return self.head.answers == "choice"

    @property
    def reads_segments(self) -> bool:
        """Whether token_type_ids mean to it what a tokenizer makes of them (GPT-2 would look them up as words)."""
        return not self.is_encoder_decoder and getattr(self.output_stack.embed, "segments", None) is not None

    @property
    def stacks(self) -> dict[str, Stack]:
        """Its stacks by the prefix of their trace names: {"": stack}, or {"encoder": …, "decoder": …}."""
        raise NotImplementedError

    @property
    def output_stack(self) -> Stack:
        """The stack whose last states the head reads."""
        return list(self.stacks.values())[-1]

    is_encoder_decoder: ClassVar[bool] = False

    @property
    def is_causal(self) -> bool:
        """Whether the output stack reads left to right."""
        return self.output_stack.causal

    @property
    def can_generate(self) -> bool:
        """Whether it writes, token after token: it has a language head that scores the next one."""
        head = self.language_head
        return head is not None and self.is_causal and (self.is_encoder_decoder or head.shift)

    @property
    def max_length(self) -> int | None:
        """How many positions the output stack can read (None: no limit)."""
        return self.output_stack.embed.max_length

    @property
    def first_position(self) -> int | None:
        """The number of the first position, which not every family counts from 0; None: it is told no positions."""
        return self.output_stack.embed.first_position

    def start_state(self, capacity: int) -> State:
        """What carries a text being written from one token to the next, with `capacity` positions set aside."""
        stack = self.output_stack
        return KVCache(len(stack.layers), capacity, [layer.window for layer in stack.blocks])

    def token_tables(self) -> list[nn.Embedding]:
        """The embedding tables, first the one that a tied output shares; none where no tokens are read."""
        tables = [getattr(stack.embed, "tokens", None) for stack in reversed(self.stacks.values())]
        return [table for table in tables if table is not None]

    def tie_weights(self) -> None:
        """Make the output matrix the embedding matrix, where the config says so."""
        head = self.head.language
        if head is not None and self.config.tie_word_embeddings:
            head.output.weight = self.token_tables()[0].weight

    @torch.no_grad()
    def generate(self, input_ids: Tensor | None = None, **options: Any) -> Any:
        """Tokens in, tokens out: see clearhead.generate.generate for the options."""
        from clearhead.generate import generate  # the one door that opens upward, at call time

        return generate(self, input_ids, **options)
