"""Checks of a call's options. The test comes first, because calls are many; a refusal is worded by the one schema."""

from collections.abc import Mapping
from typing import Any, Literal

from clearhead.errors import TokenizerError
from clearhead.schema import Field

NO_LIMIT = int(1e30)  # what configuration files write for "no longest length"
ANY_LENGTH = int(1e20)  # from here on a longest length means there is none


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuses what is not one of the choices."""
    if value not in choices:
        Field(name=name, choices=choices, default=choices[0]).check(value)


def check_tensors(kind: str | None) -> None:
    """Refuses tensors of a kind not known here."""
    if kind is not None:
        check_choice("return_tensors", kind, ("pt", "np"))


def check_length(name: str, value: int | None, minimum: int) -> None:
    """Refuses what is no length; None is one not given."""
    if value is not None and (type(value) is not int or value < minimum):
        Field(name=name, type=int, least=minimum).check(value)


def side_of(value: Any, name: str) -> Literal["right", "left"]:
    """Refuses what is no side."""
    check_choice(name, value, ("right", "left"))
    side: Literal["right", "left"] = value
    return side


def longest_length(config: Mapping[str, Any]) -> int:
    """The longest text a model takes, as its tokenizer's configuration says."""
    value = config.get("model_max_length", config.get("max_len"))
    if value is None:
        return NO_LIMIT
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise TokenizerError(f"model_max_length must be a number of tokens, but it is {value!r}.")
    return int(min(value, NO_LIMIT))
