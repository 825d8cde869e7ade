"""Which layers, heads or positions are meant: numbers from 0, or from the end if they are negative, each checked."""

from __future__ import annotations

from clearhead.errors import InputError
from clearhead.messages import Message, say

Indices = int | list[int] | range | tuple[int, ...] | None  # None: all of them


def checked_index(name: str, value: int, size: int, owner: Message) -> int:
    """A layer, head, neuron or position, from 0. owner: what has them, as a sentence, "the model has 12 layers"."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(say("explain.not_an_index", name=say(f"explain.a_{name}"), value=repr(value)))
    if not -size <= value < size:
        raise InputError(say("explain.no_such_index", name=say(f"explain.a_{name}"), value=value, owner=owner))
    return value % size


def checked_indices(name: str, values: Indices, size: int, owner: Message) -> list[int]:
    """All of them (None), one, or several, each once and in the order they are given."""
    if values is None:
        return list(range(size))
    if not isinstance(values, list | tuple | range):
        values = [values]
    indices = list(dict.fromkeys(checked_index(name, n, size, owner) for n in values))
    if not indices:
        raise InputError(say("explain.empty_list", name=say(f"explain.a_{name}")))
    return indices


def checked_count(name: str, value: int, least: int = 1) -> int:
    """How many of something: a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(say("explain.not_a_count", name=name, value=repr(value), least=least))
    return value
