"""Checks what a caller passed as ids, and turns it into a list."""

from collections.abc import Iterable, Mapping
from typing import Any

from clearhead.errors import InputError


def ids_of(ids: Any) -> list[int]:
    """One id, any iterable of them or a one-dimensional tensor, as a list."""
    if hasattr(ids, "tolist"):
        ids = ids.tolist()
    if isinstance(ids, int):
        ids = [ids]
    if not isinstance(ids, Iterable) or isinstance(ids, str | bytes | Mapping):
        raise InputError(f"Ids are whole numbers, one or a list or a tensor; this is of type {type(ids).__name__}.")
    plain = list(ids)
    if plain and (isinstance(plain[0], list | tuple) or getattr(plain[0], "ndim", 0) > 0):
        raise InputError("These ids have several rows. Use batch_decode, or pass one row.")
    return plain


def not_an_id(ids: list[Any], size: int) -> InputError:
    """The error for ids that the vocabulary refused; it names the first that is wrong."""
    wrong = next((index for index in ids if not isinstance(index, int) or not 0 <= index < size), ids[0])
    hint = " Positions that a loss ignores (-100) are not tokens; leave them out." if wrong == -100 else ""
    return InputError(f"{wrong!r} is not a token id: ids are whole numbers from 0 to {size - 1}.{hint}")
