"""The one reader of text files: a file of any size, compressed or not, as characters, a block at a time."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from clearhead.errors import InputError

Advance = Callable[[int], None]  # hears how many bytes of the file on disk were read

BLOCK = 256 * 1024  # bytes that are read at once
UNPACK: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_BROKEN = (EOFError, zlib.error, lzma.LZMAError, OSError)


def _unpacked(path: Path, advance: Advance) -> Iterator[bytes]:
    """The bytes, unpacked; an empty block is the last."""
    opener = UNPACK.get(path.suffix.lower())
    try:
        with path.open("rb") as raw, opener(raw) if opener else nullcontext(raw) as file:
            seen = 0
            while True:
                data = file.read(BLOCK)
                at = raw.tell()
                advance(at - seen)
                seen = at
                yield data
                if not data:
                    return
    except _BROKEN as error:
        why = getattr(error, "strerror", None) or error
        hint = " The file is damaged or was cut off; get it again." if opener else ""
        raise InputError(f"{path} cannot be read: {why}.{hint}") from error


def characters(path: Path, encoding: str, advance: Advance, keep_line_ends: bool = False) -> Iterator[str]:
    """The text in blocks, without a byte-order mark. Line ends become plain newlines, unless they are to be kept; a
    lone carriage return is left alone."""
    try:
        "".encode(encoding)  # refuses what is no encoding of text, such as base64
        decoder = codecs.getincrementaldecoder(encoding)()
    except (LookupError, UnicodeError) as error:
        raise InputError(
            f"{encoding!r} is not an encoding. Usual ones are utf-8, utf-16, latin-1 and gb18030."
        ) from error
    offset, line, carry, first = 0, 1, "", True
    for data in _unpacked(path, advance):
        waiting = len(decoder.getstate()[0])  # bytes of a character whose end is still to come
        try:
            text = carry + decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].decode(encoding, "ignore").count("\n")
            raise InputError(
                f"{path}:{line} is not {encoding}: byte {offset - waiting + error.start} of the file is "
                f"{error.object[error.start]:#04x}. Convert the file, for instance with iconv, or say what it is: "
                "encoding: latin-1 in a recipe, --encoding latin-1 on the command line."
            ) from error
        offset += len(data)
        if not keep_line_ends:
            carry = "\r" if data and text.endswith("\r") else ""  # its newline may be in the next block
            text = text.removesuffix(carry).replace("\r\n", "\n")
        if text and first:
            text, first = text.removeprefix("\ufeff"), False
        line += text.count("\n")
        if text:
            yield text


def lines(path: Path, encoding: str, advance: Advance) -> Iterator[tuple[int, str]]:
    """Every line with its number from 1."""
    number, begun = 0, list[str]()
    for text in characters(path, encoding, advance):
        parts = text.split("\n")
        begun.append(parts[0])
        if len(parts) > 1:
            parts[0] = "".join(begun)
            begun = [parts.pop()]
            for line in parts:
                number += 1
                yield number, line
    if last := "".join(begun):
        yield number + 1, last
