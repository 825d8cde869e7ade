"""Truncation: what the options of a call say about texts that are too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clearhead.errors import InputError
from clearhead.text.options import ANY_LENGTH, check_choice, check_length, side_of

if TYPE_CHECKING:
    from clearhead.text.tokenizer import Tokenizer

TruncationOption = bool | str | None
_STRATEGIES = ("longest_first", "only_first", "only_second", "do_not_truncate")


class Truncation(NamedTuple):
    """One way to truncate; `stride` is how many tokens the parts cut off overlap."""

    max_length: int
    stride: int
    strategy: str
    side: str


def truncation_strategy(option: TruncationOption, padded: bool, max_length: int | None) -> str:
    """The truncation by its full name. Left out, a length that is not for padding is one to cut to."""
    if option is None:
        option = max_length is not None and not padded
    if isinstance(option, bool):
        option = "longest_first" if option else "do_not_truncate"
    check_choice("truncation", option, _STRATEGIES)
    return option


def truncation_of(
    tokenizer: Tokenizer,
    option: TruncationOption,
    max_length: int | None,
    stride: int,
    *,
    padded: bool,
    special_tokens: bool,
    pair: bool,
) -> Truncation | None:
    """How the options of a call mean to truncate; None where nothing is cut."""
    strategy = truncation_strategy(option, padded, max_length)
    check_length("max_length", max_length, minimum=1)
    length = tokenizer.model_max_length if max_length is None else max_length
    if strategy == "do_not_truncate" or length >= ANY_LENGTH:
        return None
    for_text = length - (tokenizer.num_special_tokens_to_add(pair) if special_tokens else 0)
    if for_text < 0:
        raise InputError(
            f"max_length={length} leaves no room: this tokenizer adds {length - for_text} special tokens. "
            "Ask for a longer max_length, or for add_special_tokens=False."
        )
    if stride and stride >= for_text:
        raise InputError(
            f"stride={stride} must be smaller than the {for_text} tokens that max_length={length} leaves for text."
        )
    return Truncation(length, stride, strategy, side_of(tokenizer.truncation_side, "truncation_side"))
