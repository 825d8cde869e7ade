"""A model being asked for one token after another: it reads the prompt once, then each new token once.

Two kinds, one interface: a causal model continues its prompt; an encoder–decoder reads the source and starts afresh.
Padding may be on either side: masks hide it, and positions count real tokens only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.models.model import EncoderDecoderModel, Model, StackModel


class Session:
    """`tokens` is what the decoder has been given so far, (rows, time)."""

    def __init__(
        self, model: Model, input_ids: Tensor, attention_mask: Tensor | None, room: int, start: int | None = None
    ) -> None:
        """room: how many positions to set aside; start: the token an encoder–decoder writes from."""
        self.model = model
        self.tokens = input_ids
        self._mask = _padding_of(model, input_ids, attention_mask)
        self._memory: Tensor | None = None
        if isinstance(model, EncoderDecoderModel):
            if start is None:
                raise InputError(
                    "The configuration does not say which token starts the output: pass decoder_start_token_id. "
                    "(For mBART it is the id of the target language.)"
                )
            self._memory = model.encode(input_ids, self._mask, None)
            self.tokens = torch.full_like(input_ids[:, :1], start)
            stack = model.decoder
        elif isinstance(model, StackModel) and model.stack.causal and (head := model.language_head) and head.shift:
            stack = model.stack
        else:
            raise InputError(
                f"{model.family.title} loaded for {model.task} cannot write text: it does not read left to right "
                "with a language head. To guess hidden words, use fill."
            )
        self.limit = stack.embed.room
        self._first = stack.embed.first_position
        self._cache = model.new_cache(stack, self.tokens.shape[1] + room)

    @property
    def prompt(self) -> int:
        return self.tokens.shape[1]

    def start(self) -> Tensor:
        """Scores for the first new token, (rows, vocab)."""
        if self._memory is not None:
            out = self.model(
                encoder_outputs=self._memory,
                attention_mask=self._mask,
                decoder_input_ids=self.tokens,
                past_key_values=self._cache,
                logits_to_keep=1,
            )
            return out.logits[:, -1].float()
        if self._mask is None:
            counted = torch.arange(self.prompt, device=self.tokens.device)[None] + self._first
            out = self.model(self.tokens, position_ids=counted, past_key_values=self._cache, logits_to_keep=1)
            return out.logits[:, -1].float()
        # Real tokens move to the end of their rows: a window or a bias by distance must not count padding in between.
        order = self._mask.argsort(dim=-1, stable=True)
        self._mask = self._mask.gather(-1, order)
        out = self.model(
            self.tokens.gather(-1, order),
            attention_mask=self._mask,
            position_ids=(self._mask.cumsum(-1) - 1).clamp(min=0) + self._first,
            past_key_values=self._cache,
            logits_to_keep=1,
        )
        return out.logits[:, -1].float()

    def step(self, chosen: Tensor) -> Tensor:
        """Add a token to every row; scores for the one after it."""
        self.tokens = torch.cat([self.tokens, chosen[:, None]], dim=1)
        if self._memory is not None:
            out = self.model(
                encoder_outputs=self._memory,
                attention_mask=self._mask,
                decoder_input_ids=chosen[:, None],
                past_key_values=self._cache,
            )
        elif self._mask is None:
            last = torch.full((1, 1), self.tokens.shape[1] - 1 + self._first, device=chosen.device)
            out = self.model(chosen[:, None], position_ids=last, past_key_values=self._cache)
        else:
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(chosen), 1)], dim=1)
            out = self.model(
                chosen[:, None],
                attention_mask=self._mask,
                position_ids=self._mask.sum(-1, keepdim=True) - 1 + self._first,
                past_key_values=self._cache,
            )
        return out.logits[:, -1].float()

    def select(self, rows: Tensor) -> None:
        """Keep these rows in this order; a row may be taken more than once."""
        self.tokens = self.tokens[rows]
        self._cache.select(rows)
        if self._mask is not None:
            self._mask = self._mask[rows]
        if self._memory is not None:
            self._memory = self._memory[rows]


def _padding_of(model: Model, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor | None:
    """The padding mask as whole numbers, or None where nothing is hidden."""
    if attention_mask is None:
        pad, eos = model.config.pad_token_id, model.config.eos_token_id
        ends = [eos] if isinstance(eos, int) else eos or []
        if pad is None or pad in ends or not bool((input_ids == pad).any()):
            return None
        attention_mask = input_ids != pad
    if attention_mask.shape != input_ids.shape:
        raise InputError(
            f"attention_mask must have the shape of input_ids, {tuple(input_ids.shape)}, "
            f"not {tuple(attention_mask.shape)}."
        )
    mask = attention_mask.long()
    if bool((mask.sum(-1) == 0).any()):
        raise InputError("A row of the batch is padding only: there is nothing to continue.")
    return None if bool(mask.all()) else mask
