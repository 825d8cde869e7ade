"""A model that writes: it reads the prompt once (prefill), then each new token once (a step), and carries a state.

Two kinds, one interface: a causal model continues its prompt; an encoder–decoder reads the source and starts afresh.
What the model carries is its own business (keys and values, segment memories, an LSTM's states): `model.start_state`
gives it, and `State` says what can be done with it. Padding may be on either side: masks hide it, and positions count
real tokens only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.memory import check_fits
from clearhead.messages import say
from clearhead.models.model import Model
from clearhead.models.retrieval import RetrievalModel
from clearhead.nn.state import State

# What finds neighbours: token ids of finished chunks, (chunks, chunk_size) -> their neighbours', (chunks, k, tokens)
NeighborProvider = Callable[[Tensor], Tensor]
_UNLIMITED_CAPACITY = 4096  # new tokens that a model without a limit gets memory for at first


class DecodingSession:
    """
    prompt_ids    the prompt as it was given, (texts, prompt_length); of an encoder–decoder, its start token
    tokens        what the decoder has been given so far, (rows, time), with padding on the left, as -1: it is no token,
                  so that no processor counts it and a padded text is written as it would be alone
    encoder_ids   what an encoder has read, (texts, time), padding as -1; None without one
    max_length    how many tokens the model can read; None: no limit
    state         what the model carries from step to step
    neighbors     what finds the neighbours of chunks as they are finished, for a model that looks at them
    hidden        with keep_hidden: the last hidden states of what was read last, (rows, read, width)
    """

    def __init__(
        self,
        model: Model,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        capacity: int,
        decoder_start_token_id: int | None = None,
        *,
        past: PromptCache | None = None,
        keep_hidden: bool = False,
        neighbors: NeighborProvider | None = None,
    ) -> None:
        """capacity: how many new tokens to set memory aside for; decoder_start_token_id: what an encoder–decoder
        writes from."""
        check_can_generate(model)
        if neighbors is not None and not isinstance(model, RetrievalModel):
            raise InputError(say("generation.no_neighbors", family=model.family.title))
        self.model, self.neighbors = model, neighbors
        self.keep_hidden = keep_hidden
        self.hidden: Tensor | None = None
        self.taken_over = False  # whether another text goes on with the state
        self._mask = _padding_mask(model, input_ids, attention_mask)  # of the prompt, or of what the encoder read
        self._aligned: Tensor | None = None  # the prompt with its padding on the left
        self.encoder_ids: Tensor | None = None
        self._encoder_input: Tensor | None = None
        self._encoder_states: Tensor | None = None
        if model.is_encoder_decoder:
            self.prompt_ids = self._encode(input_ids, decoder_start_token_id)
        else:
            self.prompt_ids = input_ids
        self.prompt_length = self.prompt_ids.shape[1]
        self.max_length = model.max_length
        max_new = _UNLIMITED_CAPACITY if self.max_length is None else max(self.max_length + 1 - self.prompt_length, 1)
        capacity = self.prompt_length + min(capacity, max_new)
        self._tokens = self.prompt_ids.new_empty(len(self.prompt_ids), capacity)
        self._tokens[:, : self.prompt_length] = self.prompt_ids
        self._length = self.prompt_length
        # What was read before is not here to be looked at, so hidden states are read anew.
        reuses = past is not None and self._mask is None and not model.is_encoder_decoder and not keep_hidden
        reuses = reuses and len(self.prompt_ids) == 1
        past_state, self._num_read = (
            past.take_over(model, self.prompt_ids[0], neighbors) if past is not None and reuses else (None, 0)
        )
        self.state: State = past_state if past_state is not None else model.start_state(capacity)
        if past is not None and reuses:
            past.keep(self)
        if self._mask is not None and not model.is_encoder_decoder:
            # Real tokens move to the end of their rows: a window or a bias by distance must not count padding between.
            order = self._mask.argsort(dim=-1, stable=True)
            self._mask = self._mask.gather(-1, order)
            self._aligned = self.prompt_ids.gather(-1, order)
            self._tokens[:, : self.prompt_length] = self._aligned.masked_fill(self._mask == 0, -1)

    def _encode(self, input_ids: Tensor, start: int | None) -> Tensor:
        """The encoder reads the source; the decoder's prompt, (texts, 1)."""
        model: Any = self.model
        if start is None:
            raise InputError(say("generation.no_start_token"))
        if start >= model.config.vocab_size:
            raise InputError(
                f"decoder_start_token_id is {start}, but this model knows ids 0 to {model.config.vocab_size - 1}."
            )
        if self._mask is not None:  # real tokens come first: positions must not count padding before them
            order = self._mask.argsort(dim=-1, descending=True, stable=True)
            input_ids, self._mask = input_ids.gather(-1, order), self._mask.gather(-1, order)
        self._encoder_input = input_ids
        self.encoder_ids = input_ids if self._mask is None else input_ids.masked_fill(self._mask == 0, -1)
        self._encoder_states = model.encode(input_ids, self._mask, None)
        return torch.full_like(input_ids[:, :1], start)

    @property
    def tokens(self) -> Tensor:
        return self._tokens[:, : self._length]

    @property
    def num_read(self) -> int:
        """How many of the tokens the model has read: the last one that was chosen is not among them."""
        return self._num_read

    def left_padded_prompt(self) -> tuple[Tensor, Tensor]:
        """The prompt with padding on the left, and which of it is real: both (rows, prompt)."""
        ids = self.prompt_ids if self._aligned is None else self._aligned
        return ids, torch.ones_like(ids) if self._mask is None else self._mask

    def inputs(self) -> tuple[Tensor, Tensor]:
        """Ids and mask with which another model begins the same text."""
        if self._encoder_input is None:
            return self.left_padded_prompt()
        ids = self._encoder_input
        return ids, torch.ones_like(ids) if self._mask is None else self._mask

    def prefill(self) -> Tensor:
        """Read the prompt; scores for the first new token, (rows, vocab). Only the last position gets scores."""
        prompt = self.tokens if self._aligned is None else self._aligned
        scores = self._run(prompt[:, self._num_read :], 1)[:, -1]
        check_numbers(scores, self.model)
        return scores

    def step(self, chosen: Tensor) -> Tensor:
        """Add a token to every row; scores for the one after it, (rows, vocab)."""
        return self.append(chosen[:, None])[:, -1]

    def append(self, chosen: Tensor) -> Tensor:
        """Add several tokens to every row, (rows, n); scores after each of them, (rows, n, vocab)."""
        new = chosen.shape[1]
        if self._length + new > self._tokens.shape[1]:
            self._tokens = torch.cat([self.tokens, chosen.new_empty(len(chosen), 64 + new)], 1)
        self._tokens[:, self._length : self._length + new] = chosen
        self._length += new
        return self._run(chosen, new)

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens; an error where the state cannot go back."""
        if count:
            self.state.crop(min(self._num_read, self._length - count))
            self._length -= count
            self._num_read = min(self._num_read, self._length)

    def real_positions(self) -> Tensor:
        """(rows, read) bool: which of the positions read so far are text and not padding, in the order of reading."""
        if self._mask is None or self._encoder_states is not None:
            return torch.ones(len(self._tokens), self._num_read, dtype=torch.bool, device=self._tokens.device)
        return self._mask[:, : self._num_read] != 0

    def repeat(self, count: int) -> None:
        """Every row `count` times, side by side. Copies share what the encoder gave them."""
        if count > 1:
            check_fits(count, self.state.nbytes, self._tokens.device)
            self._tokens = self._tokens.repeat_interleave(count, 0)
            self.state.repeat(count)
            if self._encoder_states is None and self._mask is not None:
                self._mask = self._mask.repeat_interleave(count, 0)

    def reorder(self, rows: Tensor) -> None:
        """Put the copies of each text in another order; a copy may be taken more than once, another dropped."""
        self._tokens = self._tokens[rows]
        self.state.reorder(rows, since=self.prompt_length)

    def _run(self, new: Tensor, num_scored: int) -> Tensor:
        """The model reads these tokens; scores of the last `num_scored` of them, in fp32."""
        if self.taken_over:
            raise InputError("Another call goes on with this text's cache: a PromptCache serves one text at a time.")
        inputs: dict[str, Any] = {"past_key_values": self.state, "logits_to_keep": num_scored}
        if self.keep_hidden:
            inputs["output_hidden_states"] = True
        after = self._num_read + new.shape[1]
        if self._encoder_states is not None:
            inputs |= {"encoder_outputs": self._encoder_states, "attention_mask": self._mask}
            out = self.model(decoder_input_ids=new, **inputs)
        else:
            out = self.model(new, **inputs, **self._mask_and_positions(new, after), **self._neighbors(after))
        self._num_read = after  # not before: an interrupted call has read nothing
        if self.keep_hidden:
            self.hidden = out.hidden_states[-1]
        scores: Tensor = out.logits[:, -num_scored:].float()
        return scores

    def _mask_and_positions(self, new: Tensor, num_read: int) -> dict[str, Tensor]:
        """What a causal model is told of its tokens: padding, if there is any, and where each stands."""
        first = self.model.first_position
        if self._mask is None:
            positions = torch.arange(self._num_read, num_read, device=new.device)[None]
            return {} if first is None else {"position_ids": positions + first}
        ones = self._mask.new_ones(len(new), num_read - self._mask.shape[1])  # new tokens are never padding
        mask = torch.cat([self._mask, ones], dim=1)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, self._num_read :]
        return {"attention_mask": mask} | ({} if first is None else {"position_ids": positions + first})

    def _neighbors(self, num_read: int) -> dict[str, Tensor]:
        """The neighbours of the chunks that the next call finishes, (rows, chunks, k, tokens)."""
        if self.neighbors is None:
            return {}
        model, tokens = self.model, self.tokens
        assert isinstance(model, RetrievalModel)
        size = model.chunk_size
        padding = [0] * len(tokens) if self._mask is None else (self._mask == 0).sum(-1).tolist()
        places, chunks = [], []  # (row, number in this call) of every finished chunk, and its tokens
        for row, before in enumerate(padding):
            finished = range(max(self._num_read - before, 0) // size, max(num_read - before, 0) // size)
            places += [(row, n) for n in range(len(finished))]
            chunks += [tokens[row, before + n * size : before + (n + 1) * size] for n in finished]
        if not chunks:
            return {"neighbor_ids": tokens.new_zeros(len(tokens), 0, 0, 0)}
        different, which = torch.stack(chunks).unique(dim=0, return_inverse=True)  # copies of a text ask once
        found = self.neighbors(different)
        if not isinstance(found, Tensor) or found.ndim != 3 or len(found) != len(different):
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(f"neighbors must give token ids of the shape ({len(different)}, k, tokens), not {shape}.")
        found = found.to(tokens.device)[which]
        rows, numbers = torch.tensor(places, device=tokens.device).unbind(1)
        ids = found.new_zeros(len(tokens), int(numbers.max()) + 1, *found.shape[1:])
        ids[rows, numbers] = found
        return {"neighbor_ids": ids}


class PromptCache:
    """What a model has read in an earlier call, so that a text with the same beginning need not be read again.

    Hand the same one to several calls: `generate(model, ids, past=cache)`. It serves one text at a time, without
    padding; other calls go by without it.
    """

    def __init__(self) -> None:
        self._last: DecodingSession | None = None

    def take_over(
        self, model: Model, ids: Tensor, neighbors: NeighborProvider | None = None
    ) -> tuple[State | None, int]:
        """The state to go on with, and how many of these tokens (not all: one must be read) it holds."""
        last = self._last
        if last is None or last.model is not model or len(last.tokens) != 1 or not last.state.can_crop:
            return None, 0
        if last.neighbors != neighbors:  # what was read looked at something else
            return None, 0
        shared = shared_prefix(last.tokens[:, : last.num_read], ids[None])
        try:
            last.state.crop(shared)
        except InputError:  # a window that has moved on
            return None, 0
        last.taken_over = True
        return last.state, shared

    def keep(self, session: DecodingSession) -> None:
        self._last = session

    @property
    def tokens(self) -> list[int]:
        """What is remembered."""
        return [] if self._last is None else self._last.tokens[0, : self._last.num_read].tolist()


def shared_prefix(read: Tensor, ids: Tensor) -> int:
    """How many tokens both (rows, time) begin with, but not all of `ids`: one must be read to get scores."""
    length = min(read.shape[1], ids.shape[1] - 1)
    differs = (read[:, :length] != ids[:, :length]).any(0).nonzero()
    return int(differs[0]) if len(differs) else length


def check_numbers(scores: Tensor, model: Model) -> None:
    """An error for a model that computes NaN. It is asked once for a text: what begins well seldom ends so."""
    if bool(scores.amax(-1).isnan().any()):
        is_half = model.dtype in (torch.float16, torch.bfloat16)
        raise InputError(
            "The model computes NaN in place of scores: its weights hold NaN (a training run that diverged, a damaged "
            "file). Take another checkpoint" + (", or try dtype float32: they may overflow here." if is_half else ".")
        )


def check_can_generate(model: Model) -> None:
    """An error for a model that cannot write."""
    if not model.can_generate:
        hint = say("generation.use_fill") if model.task in ("masked-lm", "pretraining") else ""
        raise InputError(say("generation.cannot_write", family=model.family.title, task=model.task, hint=hint))


def _padding_mask(model: Model, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor | None:
    """The padding mask as whole numbers, or None where nothing is hidden."""
    if attention_mask is None:
        pad, eos = model.config.pad_token_id, model.config.eos_token_id
        eos_ids = [eos] if isinstance(eos, int) else eos or []
        if pad is None or pad in eos_ids or not bool((input_ids == pad).any()):
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
