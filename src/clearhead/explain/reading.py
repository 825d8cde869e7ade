"""A text as a model reads it: the tensors to call it with, and the tokens to show beside every number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.heads import ChoiceHead
from clearhead.models.model import Model
from clearhead.models.stack_model import TokenModel
from clearhead.nn.segment_recurrence import RelativeAttention
from clearhead.nn.stack import Stack
from clearhead.pipeline import Pipeline
from clearhead.text.units import units_of, units_of_ids
from clearhead.units import TokenUnit


@dataclass(frozen=True)
class Reading:
    """
    inputs   what the model is called with, each (1, time)
    tokens   what its (only) stack reads; of an encoder–decoder, what the encoder reads
    target   what the decoder reads, from its start token on; empty without one
    """

    inputs: dict[str, Tensor]
    tokens: list[TokenUnit]
    target: list[TokenUnit]

    @property
    def written(self) -> list[TokenUnit]:
        """The tokens at which the head gives its answers: the decoder's, where there is one."""
        return self.target or self.tokens


def read(pipe: Pipeline, text: str, pair: str | None = None, target: str | None = None) -> Reading:
    """How `pipe` reads a text, or a pair of texts.

    target   of an encoder–decoder: what it is made to write. Without one it writes its own answer first.
    """
    model = pipe.model
    for name, given in (("text", text), ("pair", pair), ("target", target)):
        if given is not None and not isinstance(given, str):
            raise InputError(f"The {name} must be a string, not {type(given).__name__}.")
    if text is None or not text.strip():
        raise InputError("There is no text to explain. Give at least one word.")
    if pair is not None and not pair.strip():
        raise InputError("The second text is empty. Leave it out, or give at least one word.")
    if isinstance(model.head, ChoiceHead):
        raise InputError(
            f"{_name(pipe)} is loaded for {model.task}, which reads several texts at once. Load it for another task."
        )
    if isinstance(model, EncoderDecoderModel):
        if pair is not None:
            raise InputError("An encoder–decoder reads one text: leave the second out.")
        return _read_and_write(pipe, model, text, target)
    if target is not None:
        raise InputError(f"{_name(pipe)} has one stack, which reads; only an encoder–decoder has a target.")
    assert isinstance(model, TokenModel)
    if model.stack.causal and pair is None and model.language_head is not None:
        ids = pipe.encode_prompts(text)[1]  # without an end token: the model is to go on
        _check_length(pipe, "text", model.stack, ids.shape[1])
        return Reading({"input_ids": ids}, units_of_ids(pipe.tokenizer, ids[0].tolist(), text), [])
    encoding = pipe.tokenizer(text, pair)
    ids = torch.tensor([encoding["input_ids"]], device=model.device)
    if ids.shape[1] == 0:
        raise InputError("The text has no tokens: the tokenizer left nothing of it. Give at least one word.")
    _check_length(pipe, "text" if pair is None else "two texts together", model.stack, ids.shape[1])
    inputs = {"input_ids": ids}
    if "token_type_ids" in encoding and _knows_segments(model.stack):
        inputs["token_type_ids"] = torch.tensor([encoding["token_type_ids"]], device=model.device)
    return Reading(inputs, units_of(pipe.tokenizer, encoding, text, pair), [])


def _name(pipe: Pipeline) -> str:
    return pipe.name or "This model"


def _knows_segments(stack: Stack) -> bool:
    attention: Any = stack.blocks[0].attention
    return stack.embed.segments is not None or (
        isinstance(attention, RelativeAttention) and attention.segments is not None
    )


def _check_length(pipe: Pipeline, what: str, stack: Stack, length: int) -> None:
    room = stack.embed.max_length
    if room is not None and length > room:
        raise InputError(f"The {what} has {length} tokens, but {_name(pipe)} reads at most {room}. Shorten it.")


# ---- encoder–decoders


def _read_and_write(pipe: Pipeline, model: EncoderDecoderModel, text: str, target: str | None) -> Reading:
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
            raise InputError(f"{_name(pipe)} is loaded for {model.task} and does not write: give the target to read.")
        given = model.shift_right(source)  # the decoder reads the source, one step late
        inputs["decoder_input_ids"] = given
        _check_length(pipe, "text", model.decoder, given.shape[1])
        return Reading(inputs, read_tokens, units_of_ids(writer, given[0].tolist(), text))
    if start is None:
        raise InputError(
            "The configuration does not say which token starts the output. "
            "For a model that knows languages, set pipe.tokenizer.tgt_lang first."
        )
    if target is None:
        written = pipe.write(text, num_return_sequences=1)[0]
        ids = [start, *written.token_ids]
        ids = (
            ids[:-1] if written.finish_reason == "end" else ids[: model.decoder.embed.max_length]
        )  # the last is read by nobody
        target = written.new_text
    else:
        ids = [start] if forced is None else [start, forced]
        ids += writer.encode(target, add_special_tokens=False) if target else []
    _check_length(pipe, "target", model.decoder, len(ids))
    inputs["decoder_input_ids"] = torch.tensor([ids], device=model.device)
    return Reading(inputs, read_tokens, units_of_ids(writer, ids, target))


# ---- where to look


def place(name: str, value: int, size: int, whole: str) -> int:
    """A layer, head or position, counted from the end if negative. whole: what has them, "the model has 12 layers"."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"A {name} is a whole number, not {value!r}.")
    if not -size <= value < size:
        raise InputError(f"There is no {name} {value}: {whole}, counted from 0.")
    return value % size


def places(name: str, asked: int | list[int] | range | tuple[int, ...] | None, size: int, whole: str) -> list[int]:
    """All of them (None), one, or several, each once and in the order asked for."""
    if asked is None:
        return list(range(size))
    if not isinstance(asked, list | tuple | range):
        asked = [asked]
    found = list(dict.fromkeys(place(name, n, size, whole) for n in asked))
    if not found:
        raise InputError(f"The list of {name}s is empty. Leave it out for all of them.")
    return found


@contextmanager
def at_rest(model: Model) -> Iterator[None]:
    """The model as it answers, without dropout and without gradients; a model in training goes on training after."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            model.train()


def call(pipe: Pipeline, reading: Reading, **more: Any) -> Any:
    """The model's output for a reading."""
    return pipe.model(**reading.inputs, **more)
