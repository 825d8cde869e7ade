"""How a text is read for an explanation: the tensors of one call, and the units at its places."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch

from clearhead.errors import InputError
from clearhead.messages import say
from clearhead.nn.stack import Stack
from clearhead.pipeline.base import Reading
from clearhead.text.units import units_of, units_of_ids
from clearhead.units import TokenUnit, WrittenUnit

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline


def read_text(pipe: TextPipeline, text: str, pair: str | None = None, target: str | None = None) -> Reading:
    """How `pipe` reads a text, or a pair of texts.

    target   of an encoder–decoder: what it is made to write. Without one it writes its own answer first.
    """
    model = pipe.model
    for name, value in (("text", text), ("pair", pair), ("target", target)):
        if value is not None and not isinstance(value, str):
            raise InputError(say("reading.must_be_string", name=name, got=type(value).__name__))
    if text is None or not text.strip():
        raise InputError(say("questions.no_text"))
    if pair is not None and not pair.strip():
        raise InputError(say("reading.second_is_empty"))
    if model.reads_choices:
        raise InputError(say("reading.several_texts", title=pipe.title, task=model.task))
    if model.is_encoder_decoder:
        if pair is not None:
            raise InputError(say("reading.one_text"))
        return _read_and_write(pipe, model, text, target)
    if target is not None:
        raise InputError(say("reading.no_target", title=pipe.title))
    stack = model.output_stack
    if model.is_causal and pair is None and model.language_head is not None:
        ids = pipe.encode_prompts(text)[1]  # without an end token: the model is to go on
        _check_length(pipe, "text", stack, ids.shape[1])
        return Reading({"input_ids": ids}, units_of_ids(pipe.tokenizer, ids[0].tolist(), text), [])
    encoding = pipe.tokenizer(text, pair)
    ids = torch.tensor([encoding["input_ids"]], device=model.device)
    if ids.shape[1] == 0:
        raise InputError(say("reading.no_tokens"))
    _check_length(pipe, "text" if pair is None else "two_texts", stack, ids.shape[1])
    inputs = {"input_ids": ids}
    if "token_type_ids" in encoding and model.reads_segments:
        inputs["token_type_ids"] = torch.tensor([encoding["token_type_ids"]], device=model.device)
    return Reading(inputs, units_of(pipe.tokenizer, encoding, text, pair), [])


def _check_length(pipe: TextPipeline, kind: str, stack: Stack, length: int) -> None:
    limit = stack.embed.max_length
    if limit is not None and length > limit:
        what = say(f"reading.{kind}")
        raise InputError(say("reading.too_long", what=what, count=length, title=pipe.title, limit=limit))


# ---- encoder–decoders


def _read_and_write(pipe: TextPipeline, model: Any, text: str, target: str | None) -> Reading:
    reader, options = pipe.in_languages({})
    source = pipe.encode_prompts(text, reader)[1]
    _check_length(pipe, "text", model.encoder, source.shape[1])
    read_tokens = units_of_ids(reader or pipe.tokenizer, source[0].tolist(), text)
    inputs = {"input_ids": source}
    writer = pipe.tokenizer.target
    start = options.get("decoder_start_token_id", getattr(model.config, "decoder_start_token_id", None))
    forced = options.get("forced_bos_token_id", getattr(model.config, "forced_bos_token_id", None))
    if target is None and model.language_head is None:
        if not model.target_is_source:
            raise InputError(say("reading.give_the_target", title=pipe.title, task=model.task))
        decoder_ids = model.shift_right(source)  # the decoder reads the source, one step late
        inputs["decoder_input_ids"] = decoder_ids
        _check_length(pipe, "text", model.decoder, decoder_ids.shape[1])
        return Reading(inputs, read_tokens, units_of_ids(writer, decoder_ids[0].tolist(), text))
    if start is None:
        raise InputError(say("reading.no_start_token"))
    if target is None:
        answer = pipe.write(text, num_return_sequences=1)[0]
        all_ids = [start, *answer.token_ids]
        # the end token is read by nobody
        ids = all_ids[:-1] if answer.finish_reason == "end" else all_ids[: model.decoder.embed.max_length]
        target = answer.new_text
    else:
        ids = [start] if forced is None else [start, forced]
        ids += writer.encode(target, add_special_tokens=False) if target else []
        all_ids = ids
    _check_length(pipe, "target", model.decoder, len(ids))
    inputs["decoder_input_ids"] = torch.tensor([ids], device=model.device)
    read = units_of_ids(writer, ids, target)
    if model.language_head is None:
        return Reading(inputs, read_tokens, read)
    written = units_of_ids(writer, all_ids[1 : len(ids) + 1], target)
    steps = [written_after(unit, before) for unit, before in zip(written, read, strict=False)]
    return Reading(inputs, read_tokens, read, steps)


def written_after(unit: TokenUnit, read: TokenUnit, guessed: bool = False) -> WrittenUnit:
    """What is written at the step at which `read` has just been read."""
    fields_of_unit = {item.name: getattr(unit, item.name) for item in fields(unit) if item.init}
    return WrittenUnit(**fields_of_unit, read=read.text, guessed=guessed)
