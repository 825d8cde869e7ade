"""A model being asked for one token after another: it reads the prompt once, then each new token once.

Two kinds, one interface: a causal model continues its prompt; an encoder–decoder reads the source and starts afresh.
Padding may be on either side: masks hide it, and positions count real tokens only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.model import Model
from clearhead.models.output import Output
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Stack
from clearhead.nn.state import State

_ROOM = 4096  # tokens that a model without a limit is given room for at first


class Session:
    """
    given     the prompt as it was given, (texts, prompt); of an encoder–decoder, its start token
    tokens    what the decoder has been given so far, (rows, time), with padding on the left, as -1: it is no token,
              so that no rule counts it and a padded text is written as it would be alone
    source    what an encoder has read, (texts, time), padding as -1; None without one
    hidden    with keep_hidden: the last hidden states of what was read last, (rows, read, width)
    """

    def __init__(
        self,
        model: Model,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        room: int,
        start: int | None = None,
        *,
        past: PromptCache | None = None,
        keep_hidden: bool = False,
    ) -> None:
        """room: how many positions to set aside; start: the token an encoder–decoder writes from."""
        self.model = model
        self.keep_hidden = keep_hidden
        self.hidden: Tensor | None = None
        self.source: Tensor | None = None
        self._read_by_encoder: Tensor | None = None
        self.taken_over = False  # whether another text goes on with the cache
        self._mask = _padding_of(model, input_ids, attention_mask)
        self._memory: Tensor | None = None
        given = input_ids
        if isinstance(model, EncoderDecoderModel):
            if start is None:
                raise InputError(
                    "The configuration does not say which token starts the output: pass decoder_start_token_id. "
                    "(For mBART it is the id of the target language.)"
                )
            if start >= model.config.vocab_size:
                raise InputError(
                    f"decoder_start_token_id is {start}, but this model knows ids 0 to {model.config.vocab_size - 1}."
                )
            if self._mask is not None:  # real tokens come first: positions must not count padding before them
                order = self._mask.argsort(dim=-1, descending=True, stable=True)
                input_ids, self._mask = input_ids.gather(-1, order), self._mask.gather(-1, order)
            self.source = input_ids if self._mask is None else input_ids.masked_fill(self._mask == 0, -1)
            self._read_by_encoder = input_ids
            self._memory = model.encode(input_ids, self._mask, None)
            given = torch.full_like(input_ids[:, :1], start)
        stack = writing_stack(model)
        self.given, self.prompt = given, given.shape[1]
        self.limit = stack.embed.max_length
        room = min(room, _ROOM if self.limit is None else max(self.limit + 1 - self.prompt, 1))
        self.first_position = stack.embed.first_position
        self._tokens = given.new_empty(len(given), self.prompt + room)
        self._tokens[:, : self.prompt] = given
        self._time = self.prompt
        # _read: how many of the tokens the model has read
        reusable = past is not None and self._mask is None and self._memory is None and len(given) == 1
        reusable = reusable and not keep_hidden  # what was read before is not here to be looked at
        known, self._read = past.matching(model, given[0]) if past is not None and reusable else (None, 0)
        self.cache: State = known if known is not None else model.start_state(self.prompt + room)
        if past is not None and reusable:
            past.keep(self)
        if self._mask is not None and self._memory is None:
            # Real tokens move to the end of their rows: a window or a bias by distance must not count padding between.
            order = self._mask.argsort(dim=-1, stable=True)
            self._mask = self._mask.gather(-1, order)
            self._aligned: Tensor | None = given.gather(-1, order)
            self._tokens[:, : self.prompt] = self._aligned.masked_fill(self._mask == 0, -1)
        else:
            self._aligned = None

    @property
    def tokens(self) -> Tensor:
        return self._tokens[:, : self._time]

    def aligned_prompt(self) -> tuple[Tensor, Tensor]:
        """The prompt with padding on the left, and which of it is real: both (rows, prompt)."""
        given = self.given if self._aligned is None else self._aligned
        return given, torch.ones_like(given) if self._mask is None else self._mask

    def asked(self) -> tuple[Tensor, Tensor]:
        """Ids and mask with which another model is asked the same."""
        if self._read_by_encoder is None:
            return self.aligned_prompt()
        ids = self._read_by_encoder
        return ids, torch.ones_like(ids) if self._mask is None else self._mask

    def start(self) -> Tensor:
        """Scores for the first new token, (rows, vocab). Of the prompt, only the last position gets scores."""
        given = self.tokens if self._aligned is None else self._aligned
        return self._run(given[:, self._read :], 1)[:, -1]

    def step(self, chosen: Tensor) -> Tensor:
        """Add a token to every row; scores for the one after it, (rows, vocab)."""
        return self.read(chosen[:, None])[:, -1]

    def read(self, chosen: Tensor) -> Tensor:
        """Add several tokens to every row, (rows, n); scores after each of them, (rows, n, vocab)."""
        new = chosen.shape[1]
        if self._time + new > self._tokens.shape[1]:
            self._tokens = torch.cat([self.tokens, chosen.new_empty(len(chosen), 64 + new)], 1)
        self._tokens[:, self._time : self._time + new] = chosen
        self._time += new
        return self._run(chosen, new)

    def forget(self, count: int) -> None:
        """Take back the last `count` tokens."""
        if count:
            self._time -= count
            self._read = min(self._read, self._time)
            self.cache.crop(self._read)

    def real_positions(self) -> Tensor:
        """(rows, read) bool: which of the positions read so far are text and not padding, in the order of reading."""
        if self._mask is None or self._memory is not None:
            return torch.ones(len(self._tokens), self._read, dtype=torch.bool, device=self._tokens.device)
        return self._mask[:, : self._read] != 0

    def copies(self, count: int) -> None:
        """Every row `count` times, side by side. Copies share what the encoder gave them."""
        if count > 1:
            self._tokens = self._tokens.repeat_interleave(count, 0)
            self.cache.repeat(count)
            if self._memory is None and self._mask is not None:
                self._mask = self._mask.repeat_interleave(count, 0)

    def select(self, rows: Tensor) -> None:
        """Put the copies of each text in another order; a copy may be taken more than once, another dropped."""
        self._tokens = self._tokens[rows]
        self.cache.reorder(rows, since=self.prompt)

    def _run(self, new: Tensor, scored: int) -> Tensor:
        """The model reads these tokens; scores of the last `scored` of them, in fp32."""
        if self.taken_over:
            raise InputError("Another call goes on with this text's cache: a PromptCache serves one text at a time.")
        before, after = self._read, self._read + new.shape[1]
        if self._memory is not None:
            out = self.model(
                encoder_outputs=self._memory,
                attention_mask=self._mask,
                decoder_input_ids=new,
                past_key_values=self.cache,
                logits_to_keep=scored,
                output_hidden_states=self.keep_hidden,
            )
        elif self._mask is None:
            places = torch.arange(before, after, device=new.device)[None] + self.first_position
            out = self._continue(new, None, places, scored)
        else:
            ones = self._mask.new_ones(len(new), after - self._mask.shape[1])  # new tokens are never padding
            mask = torch.cat([self._mask, ones], dim=1)
            places = (mask.cumsum(-1) - 1).clamp(min=0)[:, before:] + self.first_position
            out = self._continue(new, mask, places, scored)
        self._read = after  # not before: an interrupted call has read nothing
        if self.keep_hidden:
            assert out.hidden_states is not None
            self.hidden = out.hidden_states[-1]
        scores: Tensor = out.logits[:, -scored:].float()
        return scores

    def _continue(self, new: Tensor, mask: Tensor | None, places: Tensor, scored: int) -> Output:
        out: Output = self.model(
            new,
            attention_mask=mask,
            position_ids=places,
            past_key_values=self.cache,
            logits_to_keep=scored,
            output_hidden_states=self.keep_hidden,
        )
        return out


class PromptCache:
    """What a model has read in an earlier call, so that a text with the same beginning need not be read again.

    Hand the same one to several calls: `generate(model, ids, past=cache)`. It serves one text at a time, without
    padding; other calls go by without it.
    """

    def __init__(self) -> None:
        self._last: Session | None = None

    def matching(self, model: Model, ids: Tensor) -> tuple[State | None, int]:
        """The cache to go on with, and how many of these tokens (not all: one must be read) it holds."""
        last = self._last
        if last is None or last.model is not model or len(last.tokens) != 1:
            return None, 0
        shared = shared_beginning(last.tokens[:, : last._read], ids[None])
        try:
            last.cache.crop(shared)
        except InputError:  # a window or a memory that has moved on
            return None, 0
        last.taken_over = True
        return last.cache, shared

    def keep(self, session: Session) -> None:
        self._last = session

    @property
    def tokens(self) -> list[int]:
        """What is remembered."""
        return [] if self._last is None else self._last.tokens[0, : self._last._read].tolist()


def shared_beginning(known: Tensor, wanted: Tensor) -> int:
    """How many tokens both (rows, time) begin with, but not all that are wanted: one must be read to get scores."""
    length = min(known.shape[1], wanted.shape[1] - 1)
    differs = (known[:, :length] != wanted[:, :length]).any(0).nonzero()
    return int(differs[0]) if len(differs) else length


def writing_stack(model: Model) -> Stack:
    """The stack that writes; an error for a model that cannot."""
    if isinstance(model, EncoderDecoderModel) and model.language_head is not None:
        return model.decoder
    if isinstance(model, TokenModel) and model.stack.causal and (head := model.language_head) and head.shift:
        return model.stack
    hint = " To guess hidden words, use fill." if model.task == "masked-lm" else ""
    raise InputError(
        f"{model.family.title} loaded for {model.task} cannot write text: it has no language head that reads left to "
        f"right and scores the next token.{hint}"
    )


def _padding_of(model: Model, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor | None:
    """The padding mask as whole numbers, or None where nothing is hidden."""
    if attention_mask is None:
        pad, eos = model.config.pad_token_id, model.config.eos_token_id
        ends = [eos] if isinstance(eos, int) else eos or []
        if pad is None or pad in ends or not bool((input_ids == pad).any()):
            return None
        attention_mask = input_ids != pad
    if not isinstance(attention_mask, Tensor):
        raise InputError(f"attention_mask must be a tensor, not {type(attention_mask).__name__}.")
    if attention_mask.shape != input_ids.shape:
        raise InputError(
            f"attention_mask must have the shape of input_ids, {tuple(input_ids.shape)}, "
            f"not {tuple(attention_mask.shape)}."
        )
    mask = attention_mask.long()
    if bool((mask.sum(-1) == 0).any()):
        raise InputError("A row of the batch is padding only: there is nothing to continue.")
    return None if bool(mask.all()) else mask
