"""The words of a table of vectors: which row a word has, and which word a row. Millions of them in tens of megabytes.

A million Python strings in a dict take more than a hundred megabytes. Here all words stand in one buffer, each closed
by a line end, as in words.txt; rows are found by sorted hashes (FNV-1a, 64 bits), and the bytes are compared then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.errors import CheckpointError, InputError, UnknownWordError, did_you_mean
from clearhead.files import atomic_write
from clearhead.messages import say
from clearhead.units import TokenUnit

WORDS = "words.txt"
_BASIS, _PRIME, _BITS = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1
_COMPARED = 20_000  # words that a misspelt one is compared with


class Words:
    """Words by row, in order: `words[3]` is one, `words.find("king")` its row, and -1 where there is none.

    buffer   UTF-8, a line end behind each word
    """

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.bytes = np.frombuffer(buffer, np.uint8)
        self.ends = np.flatnonzero(self.bytes == ord("\n"))

    @classmethod
    def of(cls, words: Iterable[str]) -> Words:
        return cls("".join(f"{word}\n" for word in words).encode())

    @classmethod
    def load(cls, folder: Path) -> Words:
        """Of a saved folder: a word a line."""
        path = folder / WORDS
        try:
            words = cls(path.read_bytes())
            words.buffer.decode("utf-8")
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from None
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{path} is not UTF-8: byte {error.start}. The file is damaged.") from None
        if not words.buffer.endswith(b"\n"):
            raise CheckpointError(f"{path} does not end with a line end: the file is damaged, or cut off.")
        return words

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        path = Path(folder) / WORDS
        atomic_write(path, self.buffer, CheckpointError)
        return [path]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> str:
        return self._bytes_of(row).decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.buffer.decode().split("\n")[:-1])

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.find(word) >= 0

    def _bytes_of(self, row: int) -> bytes:
        first = int(self.ends[row - 1]) + 1 if row else 0
        return self.buffer[first : int(self.ends[row])]

    # ---- from a word to its row

    def find(self, word: str) -> int:
        """The row of a word; -1 where there is none."""
        try:
            wanted = word.encode()
        except UnicodeEncodeError:  # half a character
            return -1
        hashes, rows = self._index
        value = hash_of(wanted)
        at = int(np.searchsorted(hashes, np.uint64(value)))
        while at < len(hashes) and int(hashes[at]) == value:
            if self._bytes_of(int(rows[at])) == wanted:
                return int(rows[at])
            at += 1
        return -1

    def row(self, word: Any) -> int:
        """The same; an error that names near words where there is none."""
        if not isinstance(word, str):
            raise InputError(say("vectors.word_is_text", got=type(word).__name__))
        row = self.find(word)
        if row < 0:
            raise UnknownWordError(say("vectors.unknown_word", word=word[:60], hint=self._hint(word[:60])))
        return row

    def find_any_case(self, word: str) -> int:
        """The row of a word as it stands in a text: as it is written, or else in lower case; -1 where there is none."""
        row = self.find(word)
        return row if row >= 0 else self.find(word.lower())

    def spelled(self, word: str) -> str:
        """The word as the table has it: as it is written, or in lower case. An error where it has neither."""
        row = self.find_any_case(word) if isinstance(word, str) else -1
        return self[row if row >= 0 else self.row(word)]

    @cached_property
    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        """The hashes of all words in order, and their rows; of equal hashes, the first row first."""
        hashes = self._hashes()
        rows = np.argsort(hashes, kind="stable").astype(np.int32)
        return hashes[rows], rows

    def _hashes(self) -> np.ndarray:
        """One step for the nth byte of all words that have one: the words are taken in order of their lengths."""
        starts = np.concatenate([[0], self.ends[:-1] + 1]) if len(self) else self.ends
        lengths = self.ends - starts
        order = np.argsort(lengths, kind="stable")
        lengths, starts = lengths[order], starts[order]
        values = np.full(len(order), _BASIS, np.uint64)
        for n in range(int(lengths[-1]) if len(order) else 0):
            first = int(np.searchsorted(lengths, n, side="right"))
            longer = values[first:]
            longer ^= self.bytes[starts[first:] + n]
            longer *= np.uint64(_PRIME)
        hashes = np.empty_like(values)
        hashes[order] = values
        return hashes

    def repeated(self) -> np.ndarray:
        """The rows of words that stood before already, in order."""
        hashes, rows = self._index
        bounds = np.flatnonzero(np.diff(hashes, prepend=hashes[:1] ^ np.uint64(1), append=hashes[-1:] ^ np.uint64(1)))
        again = []
        for n in np.flatnonzero(np.diff(bounds) > 1).tolist():  # rows of one hash
            seen: set[bytes] = set()
            for row in rows[bounds[n] : bounds[n + 1]].tolist():
                word = self._bytes_of(row)
                if word in seen:
                    again.append(row)
                seen.add(word)
        return np.array(sorted(again), np.int64)

    def without(self, rows: np.ndarray) -> Words:
        """All but these."""
        left_out = set(rows.tolist())
        kept = (word for n, word in enumerate(self.buffer.split(b"\n")[:-1]) if n not in left_out)
        return Words(b"".join(word + b"\n" for word in kept))

    def _hint(self, word: str) -> str:
        """What may be meant: the word with other capitals, or one that is spelt alike. Looked at are words of about its
        length with its first letter; the first of them, which are the most frequent where the table is sorted so."""
        if cases := [form for form in (word.lower(), word.capitalize(), word.upper()) if form in self]:
            return say("errors.did_you_mean", names=cases[0])
        size = len(word.encode("utf-8", "replace"))
        starts = np.concatenate([[0], self.ends[:-1] + 1])
        lengths = self.ends - starts
        first = word.lower().encode("utf-8", "replace")[:1] or b" "
        like = (np.abs(lengths - size) <= 2) & (self.bytes[starts] == first[0])
        return did_you_mean(word, [self[row] for row in np.flatnonzero(like)[:_COMPARED].tolist()])

    # ---- as a codec: words in a text, parted by spaces

    def __call__(self, text: str) -> dict[str, Any]:
        import torch

        return {"input_ids": torch.tensor([[self.row(word) for word in text.split()]])}

    def units(self, text: str) -> list[TokenUnit]:
        return [TokenUnit(word, id=self.row(word), word=n) for n, word in enumerate(text.split())]


def hash_of(word: bytes) -> int:
    value = _BASIS
    for byte in word:
        value = (value ^ byte) * _PRIME & _BITS
    return value
