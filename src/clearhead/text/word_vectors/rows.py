"""Lines of text as rows of floats: in C (rows.c) where there is a compiler, else in numpy, with the same result."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from clearhead import native

SOURCE = Path(__file__).with_name("rows.c")
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|nan|inf|infinity)", re.IGNORECASE)


class RaggedRow(Exception):
    """What is wrong with a line, as the end of a sentence."""


def read_rows(text: bytes, width: int) -> tuple[bytes, np.ndarray, int]:
    """As many plain lines as there are: the words, each closed by a line end; their numbers (rows, width); the bytes
    that were read. It stops before a line that is anything but a word and `width` plain numbers.

    text   whole lines
    """
    library = _library()
    if library is None:
        return _read_rows(text, width)
    most = text.count(b"\n")
    values = np.empty((most, width), np.float32)
    places = np.empty((most, 2), np.int64)
    used = ctypes.c_int64()
    count = library(text, len(text), width, most, values.ctypes.data, places.ctypes.data, ctypes.byref(used))
    return _joined(text, places[:count]), values[:count], used.value


def read_line(line: bytes, width: int) -> tuple[bytes, np.ndarray]:
    """The word and the numbers of one line, whatever they look like. A word may hold spaces, as a few in large GloVe
    files do, but what stands between its first part and the numbers must not be numbers alone."""
    fields = re.split(rb"[ \t]+", line.strip(b" \t\r\n"))
    if fields == [b""]:
        raise RaggedRow("is empty")
    if line.startswith((b" ", b"\t")):
        raise RaggedRow("has no word before its numbers")
    numbers, parts = fields[-width:], fields[:-width]
    wrong = next((field for field in numbers if not _NUMBER.fullmatch(field)), None)
    if wrong is None and parts and not (len(parts) > 1 and all(map(_NUMBER.fullmatch, parts[1:]))):
        return b" ".join(parts), np.array([float(field) for field in numbers], np.float32)
    count = sum(1 for field in fields[1:] if _NUMBER.fullmatch(field))
    if wrong is not None and count < len(fields) - 1:
        bad = next(field for field in fields[1:] if not _NUMBER.fullmatch(field))
        raise RaggedRow(f"has {_shown(bad)} where a number should be")
    raise RaggedRow(f"has {count} numbers behind {_shown(fields[0])}, not {width}")


def is_number(field: bytes) -> bool:
    return _NUMBER.fullmatch(field) is not None


def _shown(field: bytes) -> str:
    return repr(field[:40].decode("utf-8", "replace"))


@cache
def _library() -> Any:
    """`read_rows` of rows.c; None where it cannot be had."""

    def wrap(library: ctypes.CDLL) -> Any:
        function = library.read_rows
        pointer, number = ctypes.c_void_p, ctypes.c_long
        function.argtypes = [ctypes.c_char_p, number, number, number, pointer, pointer, pointer]
        function.restype = number
        return function

    try:
        return native.open_library(SOURCE, wrap, name="vector-rows")
    except native.UnavailableError:
        return None


def _read_rows(text: bytes, width: int) -> tuple[bytes, np.ndarray, int]:
    words, rows, used = [], [], 0
    for line in text.replace(b"\r", b" ").replace(b"\t", b" ").splitlines(keepends=True):
        word, _, rest = line.partition(b" ")
        try:
            row = np.array(rest.split(), np.float32)
        except ValueError:
            break
        if not word or len(row) != width:
            break
        words.append(word + b"\n")
        rows.append(row)
        used += len(line)
    return b"".join(words), np.array(rows, np.float32).reshape(-1, width), used


def _joined(text: bytes, places: np.ndarray) -> bytes:
    """The words at these places (rows, 2), a line end behind each."""
    starts, lengths = places[:, 0], places[:, 1] - places[:, 0]
    ends = np.cumsum(lengths + 1)  # with the line end, in what is joined
    if not len(ends):
        return b""
    source = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths - 1), lengths + 1)
    joined = np.frombuffer(text, np.uint8)[source]
    joined[ends - 1] = ord("\n")
    return joined.tobytes()
