"""Word vectors as files that others read: word2vec's text and binary. Written whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from clearhead.errors import InputError
from clearhead.files import atomic_paths
from clearhead.text.word_vectors.words import Words

TOGETHER = 4096  # rows
ENDINGS = (".txt", ".vec", ".bin")

Rows = Callable[[int, int], np.ndarray]  # (first, last) -> (rows, width), float32


def write_vectors(path: Path, words: Words, rows: Rows, width: int, overwrite: bool = False) -> None:
    """By the file's ending: .txt (or .vec) is text with a header, .bin binary. A float32 comes back as it was."""
    if path.suffix.lower() not in ENDINGS:
        raise InputError(
            f"Word vectors are saved as .txt (text) or .bin (binary), or to a folder, not as {path.name!r}."
        )
    if path.is_dir():
        raise InputError(f"{path} is a folder. Give the name of a file in it, or of a new folder.")
    if path.exists() and not overwrite:
        raise InputError(f"{path} is there already. Choose another name, or pass overwrite=True to replace it.")
    _check_words(words)
    write = _write_binary if path.suffix.lower() == ".bin" else _write_text
    try:
        with atomic_paths(path) as [part], part.open("wb") as file:
            file.write(f"{len(words)} {width}\n".encode())
            for block, values in _blocks(words, rows):
                write(file, block, np.ascontiguousarray(values, "<f4"))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None


def _check_words(words: Words) -> None:
    """A space ends a word in these files, of whatever kind."""
    if any(blank in words.buffer for blank in (b" ", b"\t", b"\r")):
        spaced = [word for word in words if {" ", "\t", "\r"} & set(word)]
        raise InputError(
            f"{len(spaced):,} of the words hold a space ({', '.join(map(repr, spaced[:3]))} …), which ends a word in "
            "this format. Save to a folder instead: its format holds them."
        )
    if words.buffer.startswith(b"\n") or b"\n\n" in words.buffer:
        raise InputError("One of the words is empty, which these formats cannot hold. Save to a folder instead.")


def _blocks(words: Words, rows: Rows) -> Iterator[tuple[list[bytes], np.ndarray]]:
    names = words.buffer.split(b"\n")
    for first in range(0, len(words), TOGETHER):
        last = min(first + TOGETHER, len(words))
        yield names[first:last], rows(first, last)


def _write_text(file: IO[bytes], words: list[bytes], rows: np.ndarray) -> None:
    """With as few digits as name each float32."""
    texts = rows.astype("U").tolist()
    file.write(b"".join(b"%b %b\n" % (word, " ".join(row).encode()) for word, row in zip(words, texts, strict=True)))


def _write_binary(file: IO[bytes], words: list[bytes], rows: np.ndarray) -> None:
    file.write(b"".join(b"%b %b\n" % (word, row.tobytes()) for word, row in zip(words, rows, strict=True)))
