"""How much may be asked of the studio at once; the page is told, and what is more is refused in words."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from clearhead.errors import InputError


@dataclass(frozen=True)
class Limits:
    characters: int = 20_000  # of a text
    tokens: int = 512  # of a text, for a question: attention grows with its square
    new_tokens: int = 512  # written at once
    beams: int = 10
    texts: int = 2
    answer_bytes: int = 96 * 2**20  # of the numbers of a finding
    at_once: int = max(2, min(4, os.cpu_count() or 2))  # questions that are worked on
    waiting: int = 32  # questions that may wait for their turn

    def text(self, name: str, value: Any) -> str:
        """A text from the page, looked at before anything else sees it."""
        if not isinstance(value, str):
            raise InputError(f"{name} must be a text, not {kind_of(value)}.")
        if len(value) > self.characters:
            raise InputError(
                f"{name} has {len(value):,} characters; the studio takes {self.characters:,} at most. Shorten it."
            )
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError(f"{name} holds half a character (a lone surrogate), which is no text.") from None
        return value


def kind_of(value: Any) -> str:
    """What JSON calls it."""
    names = {type(None): "null", bool: "true or false", str: "a text", list: "a list", dict: "a table"}
    return names.get(type(value), "a number")
