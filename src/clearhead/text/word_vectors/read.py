"""Files of word vectors, told apart by looking: GloVe's text, word2vec's text and word2vec's binary; gzipped or not.

GloVe text        a line for each word: the word and its numbers
word2vec text     the same, below a line with two numbers: how many words, how many numbers each
word2vec binary   that line, then for each word its bytes, a space, and its numbers as float32, little-endian
"""

from __future__ import annotations

import gzip
import logging
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np

from clearhead.errors import CheckpointError
from clearhead.text.word_vectors.rows import RaggedRow, is_number, read_line, read_rows

log = logging.getLogger("clearhead")
Format = Literal["glove", "word2vec", "word2vec-binary"]
Block = tuple[bytes, np.ndarray]  # words, a line end behind each, and their numbers (rows, width)

TOGETHER = 8 * 2**20  # bytes that are read at once
LONGEST_WORD = 2**16  # bytes
WIDEST = 100_000  # numbers of a word
LONGEST_LINE = 32 * 2**20  # bytes
_LOOKED_AT = 2**16  # bytes, to tell what a file is
_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?[ \t]*(\d{1,12})[ \t]+(\d{1,12})[ \t\r]*\n")
_GZIP = b"\x1f\x8b"
_IN_NUMBERS = frozenset(b"0123456789+-.eE \t\r\n")


@dataclass(frozen=True)
class VectorFile:
    """
    count    how many words the file says it has; None where it does not say
    width    how many numbers each has
    begins   where the first row begins, in bytes
    """

    path: Path
    format: Format
    count: int | None
    width: int
    begins: int
    zipped: bool

    def blocks(self) -> Iterator[Block]:
        """All rows in order, some at a time; an error that names the place where something is wrong."""
        with _opened(self.path, self.zipped) as file:
            file.seek(self.begins)
            yield from (_binary_blocks if self.format == "word2vec-binary" else _text_blocks)(self, file)


def look(path: Path) -> VectorFile | None:
    """What kind of file it is; None where it looks like no file of vectors."""
    with _opened(path, False) as file:
        zipped = file.read(2) == _GZIP
    with _opened(path, zipped) as file:
        start = file.read(_LOOKED_AT)
    header = _HEADER.match(start)
    if header is None:
        return _glove(path, start, zipped)
    count, width = int(header[1]), int(header[2])
    if not 1 <= width <= WIDEST or not count:
        raise CheckpointError(f"{path} says that it has {count:,} words of {width:,} numbers each: that cannot be.")
    rest = start[header.end() :]
    if not rest:
        raise CheckpointError(f"{path} says that it has {count:,} words, and ends there: it is cut off.")
    is_binary = not _is_text(rest, width)
    return VectorFile(path, "word2vec-binary" if is_binary else "word2vec", count, width, header.end(), zipped)


def _glove(path: Path, start: bytes, zipped: bool) -> VectorFile | None:
    begins = 3 if start.startswith(b"\xef\xbb\xbf") else 0
    line, end, _ = start[begins:].partition(b"\n")
    fields = re.split(rb"[ \t]+", line.strip(b" \t\r"))
    if not end and len(start) == _LOOKED_AT:
        with _opened(path, zipped) as file:  # a very long line
            fields = re.split(rb"[ \t]+", file.readline(LONGEST_LINE)[begins:].strip(b" \t\r\n"))
    width = len(fields) - 1
    if not 1 <= width <= WIDEST or not all(map(is_number, fields[1:])):
        return None
    return VectorFile(path, "glove", None, width, begins, zipped)


def _is_text(rest: bytes, width: int) -> bool:
    """Whether rows of text follow a header, rather than of bytes: behind the first word stand numbers in digits, or
    something that at least is no float32."""
    fields = rest.lstrip(b"\n").partition(b"\n")[0].split()
    if len(fields) > width and all(map(is_number, fields[-width:])):
        return True  # whatever stands in the words, which may be no UTF-8
    _, _, numbers = rest.lstrip(b"\n").partition(b" ")
    first = numbers[: 4 * width]
    if first and set(first) <= _IN_NUMBERS:
        return True
    if any(byte < 32 and byte not in b"\t\r\n" for byte in rest[:4096]):
        return False
    try:
        rest[:4096].decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start <= 4090:
            return False
    fields = rest[:4096].split()  # bytes of floats can be UTF-8 by chance, but not numbers in digits
    return b"\n" in rest[:4096] and 2 * sum(map(is_number, fields)) >= len(fields)


@contextmanager
def _opened(path: Path, zipped: bool) -> Iterator[IO[bytes]]:
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except CheckpointError:
        raise
    except EOFError:
        raise CheckpointError(f"{path} is cut off in the middle of what gzip packed. Fetch it again.") from None
    except (OSError, zlib.error) as error:  # gzip's own errors are OSErrors
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CheckpointError(f"{path} cannot be read: {why}.") from None


# ---- text


def _text_blocks(file: VectorFile, stream: IO[bytes]) -> Iterator[Block]:
    rows = 0
    lines = 0 if file.begins < 4 else 1  # that were read, for messages
    for text in _whole_lines(file.path, stream):
        while text:
            words, values, used = read_rows(text, file.width)
            if not used:
                line, _, text = text.partition(b"\n")
                if not line.strip() and not text.strip() and not stream.read(2**20).strip():
                    break  # nothing but empty lines to the end
                words, values = _odd_line(file, line, lines + 1)
                lines += 1
            else:
                lines += len(values)
                text = text[used:]
            rows += len(values)
            _check_words(file.path, words, rows - len(values))
            if file.count is not None and rows > file.count:
                raise _wrong_count(file, f"more than {file.count:,}")
            yield words, values
    if file.count is not None and rows < file.count:
        raise _wrong_count(file, f"{rows:,}")


def _whole_lines(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    """The file in parts that end with a line end; blank lines at its end are left out."""
    rest = b""
    while block := stream.read(TOGETHER):
        cut = block.rfind(b"\n") + 1
        if cut:
            yield rest + block[:cut]
            rest = block[cut:]
        else:
            rest += block
        if len(rest) > LONGEST_LINE:
            raise CheckpointError(f"{path} has a line of more than {LONGEST_LINE >> 20} MB: it holds no word vectors.")
    if rest.strip():
        yield rest + b"\n"


def _odd_line(file: VectorFile, line: bytes, number: int) -> Block:
    try:
        word, row = read_line(line, file.width)
    except RaggedRow as wrong:
        said = "the file's first line says" if file.count is not None else "the first line has"
        raise CheckpointError(
            f"{file.path}, line {number}, {wrong}; {said} {file.width} numbers for each word. Every line holds a word "
            "and its numbers, with spaces between."
        ) from None
    return word + b"\n", row[None]


def _wrong_count(file: VectorFile, there: str) -> CheckpointError:
    return CheckpointError(
        f"{file.path} says in its first line that it has {file.count:,} words, but there are {there}. Is the file "
        "whole? If it is, correct the number."
    )


def _check_words(path: Path, words: bytes, before: int) -> None:
    """They are UTF-8, and not endless. before: how many words stand before them, for messages"""
    try:
        words.decode("utf-8")
    except UnicodeDecodeError as error:
        number = before + words.count(b"\n", 0, error.start) + 1
        wrong = words[words.rfind(b"\n", 0, error.start) + 1 :].partition(b"\n")[0]
        raise CheckpointError(
            f"{path} is not UTF-8: word {number:,} is {wrong[:40]!r}. Was it saved in another encoding? Convert it: "
            "iconv -f latin1 -t utf-8."
        ) from None
    longest = max(map(len, words.split(b"\n"))) if len(words) > LONGEST_WORD else 0
    if longest > LONGEST_WORD:
        raise CheckpointError(f"{path} has a word of {longest:,} bytes: that is none.")


# ---- binary


def _binary_blocks(file: VectorFile, stream: IO[bytes]) -> Iterator[Block]:
    assert file.count is not None
    size, done, data = 4 * file.width, 0, b""
    while done < file.count:
        more = stream.read(max(TOGETHER, size + LONGEST_WORD))
        data += more
        words: list[bytes] = []
        rows: list[bytes] = []
        at = 0
        while done + len(words) < file.count:
            space = data.find(b" ", at, at + LONGEST_WORD + 1)
            if space < 0 or space + 1 + size > len(data):
                break
            words.append(data[at:space].lstrip(b"\n") + b"\n")
            at = space + 1 + size
            rows.append(data[space + 1 : at])
        if not words:
            raise _broken(file, done, data, bool(more))
        joined = b"".join(words)
        if joined.count(b"\n") != len(words) or joined.startswith(b"\n") or b"\n\n" in joined:
            raise _broken(file, done, data, True)
        _check_words(file.path, joined, done)
        done += len(words)
        data = data[at:]
        yield joined, np.frombuffer(b"".join(rows), "<f4").reshape(-1, file.width)
    if data.strip(b"\n") or stream.read(1).strip(b"\n"):
        raise _wrong_count(file, "more")


def _broken(file: VectorFile, done: int, data: bytes, more: bool) -> CheckpointError:
    if not more or len(data) < LONGEST_WORD:
        return _wrong_count(file, f"{done:,}, and then the file ends" + (" inside a word's numbers" if data else ""))
    return CheckpointError(
        f"{file.path}: behind word {done:,} stands no other one. It says that each word has {file.width} numbers; is "
        "that right? The file may be damaged."
    )
