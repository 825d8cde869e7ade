"""A text together with what the model writes after it, as one reading: what saliency, neurons and factors look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from clearhead.errors import InputError
from clearhead.explain.indices import checked_count
from clearhead.messages import say
from clearhead.pipeline import Pipeline, Reading, as_text
from clearhead.text.units import units_of_ids

NEW_TOKENS = 16  # that a model which goes on writes, where nobody says how many


@dataclass(frozen=True)
class Continuation:
    """
    reading   all of it: what was read and, after it, what was written
    begin     where the written part begins in `reading.outputs`; its length where nothing is written
    """

    reading: Reading
    begin: int


def continued(
    pipe: Pipeline,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    max_new_tokens: int | None = None,
    **options: Any,
) -> Continuation:
    """The text and what is written after it: `target`, or else what the model writes itself.

    max_new_tokens   at most so many (0: none); None: as many as the model likes, 16 where it goes on with a text
    options          of `write`, for a model that goes on with a text
    """
    if max_new_tokens is not None:
        checked_count("max_new_tokens", max_new_tokens, least=0)
    if not pipe.model.can_generate:
        if max_new_tokens:
            raise InputError(say("explain.does_not_write", task=pipe.model.task))
        reading = pipe.read(text, pair, target)
        return Continuation(reading, len(reading.outputs))
    if pipe.model.is_encoder_decoder:
        return _after_source(pipe, text, pair, target, max_new_tokens)
    reading = pipe.read(text, pair)
    ids = reading.inputs["input_ids"][0].tolist()
    begin = len(ids)
    if target is not None:
        new, full_text = pipe.tokenizer.encode(_words(target), add_special_tokens=False), text + target
    elif max_new_tokens == 0:
        return Continuation(reading, begin)
    else:
        limit = {"max_new_tokens": max_new_tokens or NEW_TOKENS, "num_return_sequences": 1}
        written = as_text(pipe).write(text, **limit, **options)[0]
        new, full_text = written.token_ids, written.text
    ids = _cut(pipe, [*ids, *new])
    inputs = {"input_ids": torch.tensor([ids], device=pipe.model.device)}
    return Continuation(Reading(inputs, units_of_ids(pipe.tokenizer, ids, full_text), []), begin)


def _after_source(
    pipe: Pipeline, text: str, pair: str | None, target: str | None, max_new_tokens: int | None
) -> Continuation:
    if target is not None:
        reading = pipe.read(text, pair, _words(target))
    elif max_new_tokens == 0:
        raise InputError(say("explain.nothing_written"))
    else:
        limit = {} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}
        written = as_text(pipe).write(text, num_return_sequences=1, **limit)[0]
        reading = pipe.read(text, pair, "")  # the source, and the token that starts the output
        start = reading.inputs["decoder_input_ids"][0, :1].tolist()
        ids = _cut(pipe, [*start, *written.token_ids])
        inputs = {**reading.inputs, "decoder_input_ids": torch.tensor([ids], device=pipe.model.device)}
        reading = Reading(inputs, reading.units, units_of_ids(pipe.tokenizer.target, ids, written.new_text))
    return Continuation(reading, 1)


def _words(target: str) -> str:
    if not isinstance(target, str) or not target.strip():
        raise InputError(say("explain.empty_target"))
    return target


def _cut(pipe: Pipeline, ids: list[int]) -> list[int]:
    """A last token just beyond the model's length was written, but cannot be read: it is left off."""
    most = pipe.model.max_length
    if most is not None and len(ids) > most + 1:
        raise InputError(say("explain.too_long_together", count=len(ids), most=most))
    return ids[:most]
