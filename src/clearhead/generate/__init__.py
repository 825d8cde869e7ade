"""Decoding: from scores to tokens. One loop yields a token for every row at a time; `generate` collects them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.beam import beam_search
from clearhead.generate.filters import pipeline
from clearhead.generate.options import Options
from clearhead.generate.session import Session
from clearhead.models.model import Model

log = logging.getLogger("clearhead")


@torch.no_grad()
def generate(model: Model, input_ids: Tensor | None, attention_mask: Tensor | None = None, **options: Any) -> Tensor:
    """Tokens in, tokens out: (rows, prompt + new), padded after the end token. Options: see `Options`.

    A causal model returns the prompt and what follows; an encoder–decoder returns the target from its start token.
    """
    asked = Options.from_keywords(options, model.generation).filled_in(model.config)
    session, new_tokens = _open(model, input_ids, attention_mask, asked)
    eos, pad = asked.eos_ids(model.config), asked.pad_id(model.config)
    if asked.num_beams > 1:
        filters = pipeline(asked, session.prompt, eos, new_tokens)
        return beam_search(session, asked, filters, eos, pad, new_tokens)[0]
    chosen = list(_tokens(session, asked, eos, pad, new_tokens))
    return torch.cat([_prompt_of(session, len(chosen)), torch.stack(chosen, 1)], dim=1)


@torch.no_grad()
def stream(
    model: Model, input_ids: Tensor | None, attention_mask: Tensor | None = None, **options: Any
) -> Iterator[Tensor]:
    """One token for every row at a time, (rows,); a finished row yields padding."""
    stored = {name: value for name, value in model.generation.items() if name != "num_beams"}
    asked = Options.from_keywords(options, stored).filled_in(model.config)
    if asked.num_beams > 1:
        raise InputError("A beam search knows its answer only at the end, so it cannot stream. Use generate.")
    session, new_tokens = _open(model, input_ids, attention_mask, asked)
    yield from _tokens(session, asked, asked.eos_ids(model.config), asked.pad_id(model.config), new_tokens)


def _open(
    model: Model, input_ids: Tensor | None, attention_mask: Tensor | None, options: Options
) -> tuple[Session, int]:
    if input_ids is None:
        if model.config.bos_token_id is None:
            raise InputError("There is no prompt, and the model has no token to begin with. Give input_ids.")
        input_ids = torch.tensor([[model.config.bos_token_id]], device=model.device)
    if not isinstance(input_ids, Tensor) or input_ids.ndim != 2 or input_ids.shape[1] == 0:
        shape = tuple(input_ids.shape) if isinstance(input_ids, Tensor) else type(input_ids).__name__
        raise InputError(f"input_ids must be a tensor of the shape (batch, time) with at least one token, not {shape}.")
    not_done = Options.not_done(model.generation)
    if not_done:
        log.warning("generation_config.json asks for %s, which is not done here.", ", ".join(not_done))
    wanted = options.max_new_tokens or options.max_length or 50
    session = Session(model, input_ids, attention_mask, room=wanted, start=options.decoder_start_token_id)
    new_tokens = options.new_tokens(session.prompt, session.limit)
    if options.max_new_tokens is not None and new_tokens < options.max_new_tokens:
        log.warning(
            "The model has %s positions, so it stops after %s new tokens instead of %s.",
            session.limit,
            new_tokens,
            options.max_new_tokens,
        )
    return session, new_tokens


def _tokens(session: Session, options: Options, eos: list[int], pad: int, new_tokens: int) -> Iterator[Tensor]:
    """The loop: scores → filters → choice → stop."""
    filters = pipeline(options, session.prompt, eos, new_tokens)
    scores = session.start()
    if options.num_return_sequences > 1:
        copies = torch.arange(len(scores), device=scores.device).repeat_interleave(options.num_return_sequences)
        session.select(copies)
        scores = scores[copies]
    ends = torch.tensor(eos, device=scores.device, dtype=torch.long)
    finished = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
    chance = torch.Generator(scores.device).manual_seed(options.seed) if options.seed is not None else None
    for written in range(1, new_tokens + 1):
        for apply in filters:
            scores = apply(session.tokens, scores)
        if options.samples:
            token = scores.softmax(-1).multinomial(1, generator=chance)[:, 0]
        else:
            token = scores.argmax(-1)
        token = token.masked_fill(finished, pad)
        yield token
        finished |= torch.isin(token, ends)
        if written == new_tokens or bool(finished.all()):
            return
        scores = session.step(token)


def _prompt_of(session: Session, written: int) -> Tensor:
    """What stood before the new tokens; the session has read all but the last of those."""
    return session.tokens[:, : session.tokens.shape[1] - (written - 1)]


__all__ = ["Options", "generate", "stream"]
