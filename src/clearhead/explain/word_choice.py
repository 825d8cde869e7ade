"""Words that a person typed, as the tokens that are meant."""

from __future__ import annotations

import re

from clearhead.pipeline import Pipeline
from clearhead.text.units import token_id


def vocabulary_size(pipe: Pipeline) -> int:
    """How many words the head scores."""
    head = pipe.model.language_head
    return int(getattr(head and head.output, "out_features", pipe.model.config.vocab_size))


def token_of(pipe: Pipeline, typed: str, text: str) -> int:
    """A word as it goes on after the text; in double quotes, exactly what stands there."""
    tokenizer = pipe.tokenizer.target
    word = unquoted(typed)
    if word == typed.strip() and (not text or not text[-1].isspace()):
        ids = tokenizer.encode(f" {word}", add_special_tokens=False)
        if len(ids) == 1:
            return ids[0]
    return token_id(tokenizer, word, vocabulary_size(pipe))


def token_or_label(pipe: Pipeline, typed: str | None, text: str) -> str | int | None:
    """A token, or of a classifier a label."""
    if typed is None or pipe.model.language_head is None:
        return typed
    return token_of(pipe, typed, text)


def unquoted(typed: str) -> str:
    """Without the spaces around it; in double quotes, what stands between them."""
    typed = typed.strip()
    return typed[1:-1] if len(typed) > 2 and typed[0] == typed[-1] == '"' else typed


def comma_separated(typed: str) -> list[str]:
    """Words with commas between them; one in double quotes may hold a comma."""
    return [part for part in re.findall(r'\s*"[^"]*"\s*|[^,，、]+', typed) if part.strip()]


def lines_of(text: str) -> list[str]:
    """The texts of a corpus that was given as one."""
    return [line for line in text.splitlines() if line.strip()]


def text_or_none(text: str) -> str | None:
    """None where there is no text: the model begins one."""
    return text if text and text.strip() else None
