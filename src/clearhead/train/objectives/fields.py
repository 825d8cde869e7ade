"""The columns of a record, read with care: what is missing or of another kind is an error with its place."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearhead.errors import InputError
from clearhead.train.data.types import Record


def place(record: Record) -> str:
    """Where the record stands, to begin a message with."""
    return str(record.get("where", "A record"))


def text_of(record: Record, column: str) -> str:
    """The text in a column; an error with the place where it is none, or empty."""
    value = record[column]
    if not isinstance(value, str):
        raise InputError(f"{place(record)}: {column} must be a text, but it is {shown(value)}.")
    if not value.strip():
        raise InputError(f"{place(record)}: {column} is empty. Fill it in, or leave the record out.")
    return value


def number_of(record: Record, column: str) -> float:
    """The number in a column, which may be written as text (as in a CSV file)."""
    value = record[column]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool) or not np.isfinite(number):
        raise InputError(f"{place(record)}: {column} must be a number, but it is {shown(value)}.")
    return number


def list_of(record: Record, column: str, may_be_empty: bool = False) -> list[Any]:
    """The list in a column; an error with the place where it is none."""
    value = record[column]
    if not isinstance(value, list | tuple):
        raise InputError(f"{place(record)}: {column} must be a list, but it is {shown(value)}.")
    if not value and not may_be_empty:
        raise InputError(f"{place(record)}: {column} is an empty list. Fill it in, or leave the record out.")
    return list(value)


def shown(value: Any) -> str:
    return "missing" if value is None else f"{str(value)[:60]!r} ({type(value).__name__})"
