"""Checks the options of a call, and gives each of them one name."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from clearhead.errors import InputError, TokenizerError, did_you_mean

NO_LIMIT = int(1e30)  # what configuration files write for "no longest length"
ANY_LENGTH = int(1e20)  # from here on a longest length means there is none
_PADDINGS = ("longest", "max_length", "do_not_pad")
_TRUNCATIONS = ("longest_first", "only_first", "only_second", "do_not_truncate")

Padding = bool | str
Truncation = bool | str | None


def padding_of(asked: Padding) -> str:
    """The padding by its full name."""
    if isinstance(asked, bool):
        asked = "longest" if asked else "do_not_pad"
    check_choice("padding", asked, _PADDINGS)
    return asked


def truncation_of(asked: Truncation, padding: str, length: int | None) -> str:
    """The truncation by its full name. Left out, a length that is not for padding is one to cut to."""
    if asked is None:
        asked = length is not None and padding == "do_not_pad"
    if isinstance(asked, bool):
        asked = "longest_first" if asked else "do_not_truncate"
    check_choice("truncation", asked, _TRUNCATIONS)
    return asked


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuses what is not one of the choices."""
    if value not in choices:
        raise InputError(
            f"{name} is {value!r}; it must be one of {', '.join(choices)}." + did_you_mean(str(value), choices)
        )


def check_tensors(kind: str | None) -> None:
    """Refuses tensors of a kind not known here."""
    if kind is not None:
        check_choice("return_tensors", kind, ("pt", "np"))


def check_length(name: str, value: int | None, least: int) -> None:
    """Refuses what is no length; None is one not given."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, but it is {value!r}.")


def side_of(value: Any, name: str) -> Literal["right", "left"]:
    """Refuses what is no side."""
    if value not in ("right", "left"):
        raise InputError(f"{name} must be right or left, but it is {value!r}.")
    return value


def longest_length(config: Mapping[str, Any]) -> int:
    """The longest text a model takes, as its tokenizer's configuration says."""
    value = config.get("model_max_length", config.get("max_len"))
    if value is None:
        return NO_LIMIT
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise TokenizerError(f"model_max_length must be a number of tokens, but it is {value!r}.")
    return int(min(value, NO_LIMIT))


def round_up(length: int, multiple: int | None) -> int:
    """The length, or the next multiple."""
    return -(-length // multiple) * multiple if multiple else length
