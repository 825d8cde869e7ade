"""The vocabulary that word vectors are learnt for: the words of a text, the commonest first, and how often each comes.

A text is read as sentences (text/words.py) of words in lower case, signs left out; an empty line ends a sentence too.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.errors import InputError, TokenizerError
from clearhead.files import atomic_write, read_text
from clearhead.text.word_vectors.words import Words
from clearhead.text.words import lowercase_sentences

COUNTS = "counts.txt"  # a number a line, for the words of words.txt
_EMPHASIS = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")
_EMPTY_LINE = re.compile(r"\n\s*\n")


class CountedWords:
    """
    words    in the order of their rows
    counts   (words): how often each comes in the text
    """

    def __init__(self, words: Words, counts: np.ndarray) -> None:
        self.words, self.counts = words, counts

    @classmethod
    def count(cls, texts: Iterable[str], min_count: int, most: int) -> CountedWords:
        """Those that come `min_count` times, `most` of them at most; equals in alphabetical order."""
        found: Counter[str] = Counter()
        for text in texts:
            for sentence in sentences(text):
                found.update(sentence)
        ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        kept = [(word, count) for word, count in ranked[:most] if count >= min_count]
        if len(kept) < 2:
            raise InputError(_too_few(ranked, min_count, most))
        return cls(Words.of(word for word, _ in kept), np.array([count for _, count in kept], np.int64))

    @classmethod
    def load(cls, folder: Path) -> CountedWords:
        path = folder / COUNTS
        if not path.is_file():
            raise TokenizerError(
                f"{folder} does not say how often its words come ({COUNTS}), which decides what is learnt. Count them "
                "in your text: tokenizer.kind=words."
            )
        words = Words.load(folder)
        try:
            counts = np.array([int(line) for line in read_text(path, TokenizerError).split()], np.int64)
        except (ValueError, OverflowError):
            counts = np.zeros(0, np.int64)
        if len(counts) != len(words) or counts.min(initial=1) < 1:
            raise TokenizerError(f"{path} must hold a whole number for each of the {len(words):,} words beside it.")
        return cls(words, counts)

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        path = Path(folder) / COUNTS
        atomic_write(path, "".join(f"{count}\n" for count in self.counts.tolist()).encode(), TokenizerError)
        return [*self.words.save(folder), path]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def target(self) -> CountedWords:
        """What is written has the same words as what is read."""
        return self

    def encode(self, text: str) -> Iterator[list[int]]:
        """The numbers of the words of each sentence, those that have none left out."""
        row_of = self._rows.get
        for sentence in sentences(text):
            yield [row for row in map(row_of, sentence) if row is not None]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {word: n for n, word in enumerate(self.words)}

    def __call__(self, text: str) -> dict[str, Any]:
        return self.words(text)

    def units(self, text: str) -> list[Any]:
        return list(self.words.units(text))


def sentences(text: str) -> Iterator[list[str]]:
    """Words in lower case; an apostrophe is always the straight one, and the marks of _emphasis_ are no part of one."""
    text = text.replace("’", "'")
    if "_" in text:
        text = _EMPHASIS.sub("", text)
    for paragraph in _EMPTY_LINE.split(text):
        yield from lowercase_sentences(paragraph)


def _too_few(ranked: list[tuple[str, int]], min_count: int, most: int) -> str:
    """Why there are no two words to be told from each other, and what would leave some."""
    if not ranked:
        return "There is no word in the text, only signs: word vectors are learnt from words."
    if len(ranked) == 1:
        return (
            f"The text has one word, {ranked[0][0]!r}, {ranked[0][1]:,} times. A word is learnt by telling it from "
            "others: give a text with some."
        )
    if most < 2:
        return f"A vocabulary of {most} word leaves nothing to tell it from: raise tokenizer.vocab_size."
    (first, often), (_, second) = ranked[:2]
    left = f"only {first!r} comes so often" if often >= min_count else "no word comes so often"
    fewer = min(5, ranked[min(len(ranked), 100) - 1][1])  # leaves a hundred words, or all
    fewer = fewer if fewer < min_count else second
    return (
        f"tokenizer.min_count is {min_count}, and {left}: the commonest, {first!r}, comes {often:,} times. "
        f"tokenizer.min_count={fewer} leaves {sum(count >= fewer for _, count in ranked):,} of the {len(ranked):,} "
        "words; or give more text."
    )
