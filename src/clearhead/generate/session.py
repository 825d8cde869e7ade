"""A model being asked for one token after another: it reads the prompt once, then each new token once.

Two kinds, one interface: a causal model continues its prompt; an encoder–decoder reads the source and starts afresh.
Padding may be on either side: masks hide it, and positions count real tokens only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.models.model import EncoderDecoderModel, Model, StackModel
from clearhead.nn.cache import Cache


class Session:
    """`tokens` is what the decoder has been given so far, (rows, time)."""

    def __init__(self, model: Model, input_ids: Tensor, attention_mask: Tensor | None, room: int) -> None:
        self.model = model
        self.tokens = input_ids
        self._mask = _padding_of(model, input_ids, attention_mask)
        self._memory: Tensor | None = None
        if isinstance(model, EncoderDecoderModel):
            start = getattr(model.config, "decoder_start_token_id", None)
            if start is None:
                raise InputError(
                    "The configuration does not say which token starts the output (decoder_start_token_id)."
                )
            self._memory = model.encode(input_ids, self._mask, None)
            self.tokens = torch.full_like(input_ids[:, :1], start)
            stack = model.decoder
        elif isinstance(model, StackModel) and model.stack.causal and model.language_head is not None:
            stack = model.stack
        else:
            raise InputError(
                f"{model.family.title} loaded for {model.task} cannot write text: it does not read left to right "
                "with a language head. To guess hidden words, use fill."
            )
        self.limit = stack.embed.max_positions
        self._cache = Cache(len(stack.layers), capacity=self.tokens.shape[1] + room)

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
            out = self.model(self.tokens, past_key_values=self._cache, logits_to_keep=1)
            return out.logits[:, -1].float()
        # Row r's last real token may be anywhere when padding is on the right.
        positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
        last = (torch.arange(self._mask.shape[1], device=self._mask.device) * self._mask).argmax(-1)
        on_the_left = bool(self._mask[:, -1].all())
        out = self.model(
            self.tokens,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            logits_to_keep=1 if on_the_left else 0,
        )
        rows = torch.arange(len(last), device=last.device)
        return out.logits[rows, -1 if on_the_left else last].float()

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
            out = self.model(chosen[:, None], past_key_values=self._cache)
        else:
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(chosen), 1)], dim=1)
            out = self.model(
                chosen[:, None],
                attention_mask=self._mask,
                position_ids=self._mask.sum(-1, keepdim=True) - 1,
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
