"""A text together with what the model writes after it, as one reading: what saliency, neurons and factors look at."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clearhead.errors import InputError
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.stack_model import TokenModel
from clearhead.pipeline import Pipeline, Reading, as_text
from clearhead.text.units import units_of_ids

NEW_TOKENS = 16  # that a model which goes on writes, where nobody says how many


@dataclass(frozen=True)
class Answer:
    """
    reading   the whole: what was read and, after it, what was written
    begin     where the written part begins in `reading.outputs`; its length where nothing is written
    """

    reading: Reading
    begin: int


def writes(pipe: Pipeline) -> bool:
    """Whether the model produces text, token after token."""
    model, head = pipe.model, pipe.model.language_head
    return head is not None and (isinstance(model, EncoderDecoderModel) or head.shift)


def answer(
    pipe: Pipeline,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    max_new_tokens: int | None = None,
) -> Answer:
    """The text and what is written after it: `target`, or else what the model writes itself.

    max_new_tokens   at most so many (0: none); None: as many as the model likes, 16 where it goes on with a text
    """
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int | None) or (max_new_tokens or 0) < 0:
        raise InputError(f"max_new_tokens is {max_new_tokens!r}; it is a whole number, 0 or more.")
    if not writes(pipe):
        if max_new_tokens:
            raise InputError(f"{pipe.name or 'This model'} is loaded for {pipe.model.task} and does not write.")
        reading = pipe.read(text, pair, target)
        return Answer(reading, len(reading.outputs))
    if isinstance(pipe.model, EncoderDecoderModel):
        return _after_source(pipe, text, pair, target, max_new_tokens)
    reading = pipe.read(text, pair)
    ids = reading.inputs["input_ids"][0].tolist()
    begin = len(ids)
    if target is not None:
        new, whole = pipe.tokenizer.encode(_words(target), add_special_tokens=False), text + target
    elif max_new_tokens == 0:
        return Answer(reading, begin)
    else:
        written = as_text(pipe).write(text, max_new_tokens=max_new_tokens or NEW_TOKENS, num_return_sequences=1)[0]
        new, whole = written.token_ids, written.text
    ids = _fits(pipe, [*ids, *new])
    inputs = {"input_ids": torch.tensor([ids], device=pipe.model.device)}
    return Answer(Reading(inputs, units_of_ids(pipe.tokenizer, ids, whole), []), begin)


def _after_source(
    pipe: Pipeline, text: str, pair: str | None, target: str | None, max_new_tokens: int | None
) -> Answer:
    if target is not None:
        reading = pipe.read(text, pair, _words(target))
    elif max_new_tokens == 0:
        raise InputError("Without new tokens nothing is written. Give a target, or let the model write.")
    else:
        limit = {} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}
        written = as_text(pipe).write(text, num_return_sequences=1, **limit)[0]
        reading = pipe.read(text, pair, "")  # the source, and the token that starts the output
        start = reading.inputs["decoder_input_ids"][0, :1].tolist()
        ids = _fits(pipe, [*start, *written.token_ids])
        inputs = {**reading.inputs, "decoder_input_ids": torch.tensor([ids], device=pipe.model.device)}
        reading = Reading(inputs, reading.units, units_of_ids(pipe.tokenizer.target, ids, written.new_text))
    return Answer(reading, 1)


def _words(target: str) -> str:
    if not isinstance(target, str) or not target.strip():
        raise InputError("The target is what the model is made to write: give at least one word.")
    return target


def _fits(pipe: Pipeline, ids: list[int]) -> list[int]:
    """A last token just outside the room was written, but cannot be read: it is left off."""
    model = pipe.model
    assert isinstance(model, TokenModel | EncoderDecoderModel)
    room = (model.decoder if isinstance(model, EncoderDecoderModel) else model.stack).embed.max_length
    if room is not None and len(ids) > room + 1:
        raise InputError(f"Together that is {len(ids)} tokens; {pipe.name or 'this model'} reads at most {room}.")
    return ids[:room]
