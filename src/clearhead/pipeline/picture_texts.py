"""The texts of a drawing as the states that a UNet listens to; what a text tower cannot read is said."""

from __future__ import annotations

import logging
from typing import Any

from torch import Tensor

from clearhead.errors import InputError
from clearhead.messages import say
from clearhead.models import Model
from clearhead.text import Tokenizer

log = logging.getLogger("clearhead")


def texts_of(name: str, given: Any) -> list[str]:
    """One text or several, as a list."""
    texts = list(given) if isinstance(given, list | tuple) else [given]
    for text in texts:
        if not isinstance(text, str):
            raise InputError(say("drawing.not_a_text", name=name, kind=type(text).__name__))
    if not texts:
        raise InputError(say("drawing.no_text"))
    return texts


def length_of(text_encoder: Model, tokenizer: Tokenizer, length: int | None = None) -> int:
    """How many tokens a text is brought to: what the tokenizer and the tower read, 77 in Stable Diffusion."""
    known = [tokenizer.model_max_length, text_encoder.max_length, length]
    return min(each for each in known if each is not None)


def encode_texts(text_encoder: Model, tokenizer: Tokenizer, texts: list[str], length: int | None = None) -> Tensor:
    """(texts, tokens, width): each text padded or cut to the same length, and a warning with what was cut."""
    most = length_of(text_encoder, tokenizer, length)
    encoded = tokenizer(texts, padding="max_length", max_length=most, truncation=True, return_tensors="pt")
    for text in texts:
        whole = tokenizer(text)["input_ids"]
        if len(whole) > most:
            rest = tokenizer.decode(whole[most - 1 : -1])
            log.warning(say("drawing.cut", count=len(whole), most=most, rest=rest))
    mask = None
    if getattr(text_encoder.config, "also_stored", {}).get("use_attention_mask"):
        mask = encoded["attention_mask"].to(text_encoder.device)
    states: Tensor = text_encoder(
        input_ids=encoded["input_ids"].to(text_encoder.device), attention_mask=mask
    ).last_hidden_state
    return states
