"""Checks what a caller passed as text, and turns it into the rows the wrapped tokenizer takes."""

from typing import Any

from clearhead.errors import InputError


def rows_of(text: Any, pair: Any, is_split: bool) -> tuple[list[Any], bool]:
    """The rows to encode, and whether the caller passed a batch."""
    one = "a list of words" if is_split else "a string"
    if is_split and not _is_list(text):
        raise InputError(f"With is_split_into_words=True the text must be {one}, but it is {_kind(text)}.")
    batched = bool(text) and _is_list(text[0]) if is_split else _is_list(text)
    if not batched:
        _check_one(text, "the text", is_split)
        if pair is None:
            return [text], False
        _check_one(pair, "text_pair", is_split)
        return [(text, pair)], False
    if pair is None:
        return [_row(item, f"item {n} of the batch", is_split) for n, item in enumerate(text)], True
    if not _is_list(pair):
        raise InputError(f"The text is a batch of {len(text)}, so text_pair must be a list, but it is {_kind(pair)}.")
    if len(pair) != len(text):
        raise InputError(
            f"The text is a batch of {len(text)} and text_pair one of {len(pair)}. Each text needs its second text."
        )
    for n, (first, second) in enumerate(zip(text, pair, strict=True)):
        _check_one(first, f"item {n} of the batch", is_split)
        _check_one(second, f"item {n} of text_pair", is_split)
    return list(zip(text, pair, strict=True)), True


def is_pair(row: Any, is_split: bool) -> bool:
    """Whether a row is two texts."""
    return isinstance(row, tuple) and len(row) == 2 and (not is_split or _is_list(row[0]))


def explain_refusal(rows: list[Any]) -> InputError:
    """Why the library refused rows that passed the checks: half a surrogate pair is not text."""
    for n, row in enumerate(rows):
        for text in _strings(row):
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                return InputError(
                    f"Row {n} holds a lone surrogate ({text[error.start]!a}) at character {error.start}, which is "
                    'not valid text. Clean it with text.encode("utf-8", "replace").decode("utf-8").'
                )
    return InputError("The text could not be encoded.")


def _strings(row: Any) -> list[str]:
    return [row] if isinstance(row, str) else [text for part in row for text in _strings(part)]


def _row(item: Any, location: str, is_split: bool) -> Any:
    if _is_list(item) and len(item) == 2 and all(_is_list(part) == is_split for part in item):
        for part in item:
            _check_one(part, location, is_split)
        return tuple(item)
    _check_one(item, location, is_split)
    return item


def _check_one(value: Any, location: str, is_split: bool) -> None:
    if is_split:
        if not _is_list(value):
            raise InputError(
                f"With is_split_into_words=True {location} must be a list of words, but it is {_kind(value)}."
            )
        for word in value:
            if not isinstance(word, str):
                raise InputError(f"In {location}, every word must be a string, but one is {_kind(word)}.")
    elif not isinstance(value, str):
        hint = " Decode bytes first: text.decode()." if isinstance(value, bytes) else ""
        if hasattr(value, "tolist"):
            hint = " Arrays of texts must be lists: pass texts.tolist()."
        raise InputError(
            f"{location[0].upper()}{location[1:]} must be a string (or a list of strings), but it is "
            f"{_kind(value)}.{hint}"
        )


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _kind(value: Any) -> str:
    return f"of type {type(value).__name__}"
