"""From texts to the ids a model is asked with: languages, start tokens, padding on the left."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.messages import say
from clearhead.text import Tokenizer

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline


log = logging.getLogger("clearhead")


def check_text(text: Any) -> str:
    if not isinstance(text, str):
        raise InputError(say("generation.text_is_string", got=type(text).__name__))
    if not text.strip():
        raise InputError(say("generation.empty_text"))
    return text


def in_languages(pipe: TextPipeline, options: dict[str, Any]) -> tuple[Tokenizer | None, dict[str, Any]]:
    """The tokenizer for the language asked for, and options that make the model write the other one."""
    tokenizer = pipe.codec
    if tokenizer is None or tokenizer.languages is None:
        if options.get("src_lang") or options.get("tgt_lang"):
            raise InputError(say("generation.no_languages", title=pipe.title))
        return tokenizer, {name: v for name, v in options.items() if name not in ("src_lang", "tgt_lang")}
    options = dict(options)
    source, target = options.pop("src_lang", None), options.pop("tgt_lang", None) or tokenizer.tgt_lang
    if target is not None:
        first = tokenizer.convert_tokens_to_ids(tokenizer.languages.token(target))
        starts = tokenizer.languages.starts_decoder
        options.setdefault("decoder_start_token_id" if starts else "forced_bos_token_id", first)
    return tokenizer if source is None else tokenizer.with_src_lang(source), options


def encode_prompts(
    pipe: TextPipeline, text: str | list[str] | None, reader: Tokenizer | None = None, truncation: bool = False
) -> tuple[list[str], Tensor, Tensor]:
    """The texts, and their ids padded on the left.

    truncation   what an encoder cannot read is cut off, and a warning says so
    """
    if text is None:
        if pipe.model.is_encoder_decoder:
            raise InputError(say("generation.no_text"))
        start = pipe.model.config.bos_token_id
        if start is None or start >= pipe.model.config.vocab_size:
            start = pipe.codec.bos_token_id if pipe.codec is not None else None
        if start is None:
            raise InputError(say("generation.needs_prompt"))
        rows, prompts = [[start]], [""]
    else:
        prompts = list(text) if isinstance(text, list | tuple) else [text]
        if not prompts:
            raise InputError("The list of texts is empty.")
        rows = [_prompt_ids(pipe, check_text(prompt), reader) for prompt in prompts]
        if truncation and pipe.model.is_encoder_decoder:
            rows = _cut(pipe, prompts, rows, reader)
    longest = max(map(len, rows))
    pad = pipe.model.config.pad_token_id or 0
    ids = torch.tensor([[pad] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return prompts, ids.to(pipe.model.device), mask.to(pipe.model.device)


def _cut(pipe: TextPipeline, prompts: list[str], rows: list[list[int]], reader: Tokenizer | None) -> list[list[int]]:
    """The rows, those that the encoder cannot read whole cut to its length."""
    limit = next(iter(pipe.model.stacks.values())).embed.max_length
    too_long = [n for n, row in enumerate(rows) if limit is not None and len(row) > limit]
    if not too_long:
        return rows
    log.warning("%s of %s texts were cut to the %s tokens that the model can read.", len(too_long), len(rows), limit)
    tokenizer = reader or pipe.tokenizer
    short = {n: tokenizer.encode(prompts[n], truncation=True, max_length=limit) for n in too_long}
    return [short.get(n, row) for n, row in enumerate(rows)]


def _prompt_ids(pipe: TextPipeline, text: str, reader: Tokenizer | None = None) -> list[int]:
    if pipe.model.is_encoder_decoder:
        return (reader or pipe.tokenizer).encode(text)
    ids = pipe.tokenizer.encode(text)
    closing = {pipe.tokenizer.eos_token_id, pipe.tokenizer.sep_token_id} - {None}
    return ids[:-1] if len(ids) > 1 and ids[-1] in closing else ids  # a closed text would not be continued
