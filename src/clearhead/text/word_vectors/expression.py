"""Sums of words as a person writes them: "king - man + woman"."""

from __future__ import annotations

from clearhead.errors import InputError
from clearhead.messages import say

SIGNS = {"+": 1, "-": -1, "−": -1}  # the last one is what articles print


def parse(text: str) -> list[tuple[str, int]]:
    """Each word with its sign. Operators stand between spaces: "e-mail" is a word, and so is "-" where one belongs."""
    if not isinstance(text, str):
        raise InputError(say("vectors.word_is_text", got=type(text).__name__))
    parts = text.split()
    terms: list[tuple[str, int]] = []
    sign = 1
    if len(parts) > 1 and parts[0] in SIGNS and parts[1] not in SIGNS:
        sign = SIGNS[parts.pop(0)]
    for n, part in enumerate(parts):
        if n % 2 == 0:
            terms.append((part, sign))
        elif part in SIGNS:
            sign = SIGNS[part]
        else:
            raise InputError(say("vectors.no_sign", before=parts[n - 1], after=part))
    if not parts:
        raise InputError(say("vectors.nothing_asked"))
    if len(parts) % 2 == 0:
        raise InputError(say("vectors.no_word_behind", sign=parts[-1]))
    return terms
