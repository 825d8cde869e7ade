"""ELMo's codec: every word is read as its bytes, so that no word is unknown.

A word is a row of so many numbers (50 as published): where it begins, its UTF-8 bytes (as many as there is room for),
where it ends, then padding. A sentence stands between two words that mark its beginning and its end. All numbers are
one more than the published ones, because 0 is a place where there is no word at all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clearhead import files
from clearhead.errors import InputError, TokenizerError
from clearhead.text.words import Word, sentences_of, words_of
from clearhead.units import TokenUnit

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260
CHARACTERS = 262  # 256 bytes, the five signs above, and no word at all
BEGIN, END, UNKNOWN = "<S>", "</S>", "<UNK>"  # in a vocabulary; they come first
VOCABULARY = "words.txt"


class CharacterCodec:
    """Words to character ids. It reads any word; a vocabulary is needed only to say which word comes next.

    max_characters   numbers for a word, the marks of its beginning and end included
    vocabulary       the words that a language model can say, `BEGIN`, `END` and `UNKNOWN` first; None: there is none
    """

    def __init__(self, max_characters: int = 50, vocabulary: Sequence[str] | None = None) -> None:
        if max_characters < 3:
            raise InputError(f"A word needs room for a character between two marks: 3 or more, not {max_characters}.")
        self.max_characters = max_characters
        self.vocabulary = None if vocabulary is None else list(vocabulary)
        self._numbers = {word: n for n, word in enumerate(self.vocabulary or ())}
        if self.vocabulary is not None and self.vocabulary[:3] != [BEGIN, END, UNKNOWN]:
            raise TokenizerError(f"A vocabulary of words begins with {BEGIN}, {END} and {UNKNOWN}, in this order.")

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str], max_characters: int = 50) -> CharacterCodec:
        """With the vocabulary that lies there, if there is one."""
        path = Path(folder) / VOCABULARY
        if not path.is_file():
            return cls(max_characters)
        return cls(max_characters, files.read_text(path, TokenizerError).splitlines())

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, max_characters: int = 50) -> CharacterCodec:
        """With a vocabulary of the commonest words of the texts; of equally common ones the first come first."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(word.text for word in words_of(text))
        if vocab_size < 4:
            raise InputError(f"A vocabulary has {BEGIN}, {END}, {UNKNOWN} and some words: 4 or more, not {vocab_size}.")
        return cls(max_characters, [BEGIN, END, UNKNOWN, *(word for word, _ in counts.most_common(vocab_size - 3))])

    def __len__(self) -> int:
        """The size of the vocabulary; 0 without one."""
        return len(self._numbers)

    @property
    def target(self) -> CharacterCodec:
        """What is written has the same words as what is read."""
        return self

    # ---- to numbers

    def __call__(self, raw: str | Sequence[str] | Sequence[Sequence[str]], /) -> dict[str, Any]:
        """{"character_ids": a tensor, (sentences, words + 2, max_characters)}: of a text, of the words of one sentence,
        or of the words of several."""
        import torch

        several = not isinstance(raw, str) and len(raw) > 0 and not isinstance(raw[0], str)
        sentences = [words_in(one) for one in (raw if several else [raw])]  # type: ignore[arg-type]
        spelt = [word.encode("utf-8", "ignore") for words in sentences for word in words]
        lengths = np.array([len(one) for one in spelt], np.int64)
        rows = self.rows_of(np.frombuffer(b"".join(spelt), np.uint8), lengths, [len(words) for words in sentences])
        return {"character_ids": torch.from_numpy(rows.astype(np.int64))}

    def rows_of(self, characters: np.ndarray, lengths: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Several sentences at once, from one array with the bytes of all words: (sentences, longest, max_characters),
        in the smallest type that will do.

        lengths   of each word, in bytes; of a longer one than there is room for, the beginning counts
        counts    of each sentence, in words
        """
        count, room = np.asarray(counts), self.max_characters - 2
        out = np.zeros((len(count), count.max(initial=0) + 2, self.max_characters), np.int16)
        real = np.arange(out.shape[1]) < count[:, None] + 2
        out[real] = PADDING + 1
        out[real, 0] = BEGIN_WORD + 1
        rows = np.arange(len(count))
        out[rows, 0, 1], out[rows, count + 1, 1] = BEGIN_SENTENCE + 1, END_SENTENCE + 1
        out[rows, 0, 2], out[rows, count + 1, 2] = END_WORD + 1, END_WORD + 1
        row = np.repeat(rows, count)  # of each word, where it stands
        place = np.arange(len(lengths)) - np.repeat(np.cumsum(count) - count, count) + 1
        out[row, place, np.minimum(lengths, room) + 1] = END_WORD + 1
        word = np.repeat(np.arange(len(lengths)), lengths)  # of each byte
        inside = np.arange(len(characters)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        if inside.max(initial=0) >= room:
            word, characters, inside = (part[inside < room] for part in (word, characters, inside))
        out[row[word], place[word], inside + 1] = characters.astype(np.int16) + 1
        return out

    def word_ids(self, words: Iterable[str]) -> np.ndarray:
        """Of a sentence, its marks included: which words of the vocabulary they are."""
        if self.vocabulary is None:
            raise TokenizerError("This model came without the vocabulary of a language model: it says no words.")
        unknown = self._numbers[UNKNOWN]
        return np.array([0, *(self._numbers.get(word, unknown) for word in words), 1], np.int64)

    def sentences(self, text: str) -> list[list[str]]:
        """The words of a text, sentence by sentence."""
        return [[word.text for word in sentence] for sentence in sentences_of(text)]

    # ---- the places

    def units(self, raw: str | Sequence[str], /) -> list[TokenUnit]:
        """The words, and the marks around them."""
        if isinstance(raw, str):
            words, text = words_of(raw), raw
        else:
            words, text, at = [], " ".join(raw), 0
            for one in raw:
                words.append(Word(one, at, at + len(one)))
                at += len(one) + 1
        units = [TokenUnit(BEGIN, self._numbers.get(BEGIN, -1), None)]
        end = 0
        for n, word in enumerate(words):
            shown = f" {word.text}" if text[end : word.start] else word.text
            units.append(TokenUnit(shown, self._numbers.get(word.text, -1), n, 0, word.start, word.end))
            end = word.end
        return [*units, TokenUnit(END, self._numbers.get(END, -1), None)]

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Its vocabulary, where it has one; the rest is in the model's configuration."""
        if self.vocabulary is None:
            return []
        path = Path(folder) / VOCABULARY
        files.atomic_write(path, "".join(f"{word}\n" for word in self.vocabulary).encode(), TokenizerError)
        return [path]


def words_in(raw: str | Sequence[str]) -> list[str]:
    """The words of a text, or those of a sentence that is cut already."""
    if isinstance(raw, str):
        return [word.text for word in words_of(raw)]
    return check_words(raw, "The sentence")


def check_words(words: Any, which: str) -> list[str]:
    """A sentence's words, each of which says something; `which` names it in an error."""
    if isinstance(words, str) or not isinstance(words, list | tuple):
        got = "a string" if isinstance(words, str) else type(words).__name__
        raise InputError(f"{which} must be a list of words, not {got}. Whole texts: .embed(texts), or text.split().")
    for n, word in enumerate(words, 1):
        if not isinstance(word, str):
            raise InputError(f"{which}: word {n} must be a string, not {type(word).__name__}.")
        if not word:
            raise InputError(f"{which}: word {n} is empty.")
    return list(words)
