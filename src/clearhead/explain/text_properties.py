"""Properties of a text that a neuron might follow, token by token: each a number after the token has been read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from clearhead.units import Unit

Property = Literal["inside-quotes", "inside-brackets", "position", "sentence-position"]
YES_OR_NO: frozenset[str] = frozenset({"inside-quotes", "inside-brackets"})
_OPENS, _CLOSES = "“«「『", "”»」』"
_ENDS = ".!?。！？"


def property_of(name: Property, tokens: Sequence[Unit]) -> np.ndarray:
    """(tokens,): 1 or 0, or a count; nan at special tokens, which say nothing."""
    values = _PROPERTIES[name]([unit.text for unit in tokens])
    return np.array([np.nan if unit.special else value for unit, value in zip(tokens, values, strict=True)])


def _inside_quotes(tokens: list[str]) -> list[float]:
    """A straight mark (") opens where none is open, and closes where one is."""
    inside, values = False, []
    for token in tokens:
        for sign in token:
            inside = not inside if sign == '"' else sign in _OPENS or (inside and sign not in _CLOSES)
        values.append(float(inside))
    return values


def _inside_brackets(tokens: list[str]) -> list[float]:
    depth, values = 0, []
    for token in tokens:
        for sign in token:
            depth = max(0, depth + (sign in "([{（【") - (sign in ")]}）】"))
        values.append(float(depth > 0))
    return values


def _position(tokens: list[str]) -> list[float]:
    """How many tokens have been read."""
    return [float(n) for n in range(1, len(tokens) + 1)]


def _sentence_position(tokens: list[str]) -> list[float]:
    """How many tokens have been read since a sentence ended."""
    count, values = 0.0, []
    for token in tokens:
        count = 0.0 if any(sign in _ENDS for sign in token) else count + 1
        values.append(count)
    return values


_PROPERTIES: dict[str, Callable[[list[str]], list[float]]] = {
    "inside-quotes": _inside_quotes,
    "inside-brackets": _inside_brackets,
    "position": _position,
    "sentence-position": _sentence_position,
}
