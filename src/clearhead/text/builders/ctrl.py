"""CTRL's tokenizer: BPE inside words, which marks where they go on (`th@@`), cut here in Python.

Its two files disagree in their spelling: merges end words with `</w>`, the vocabulary does not, and it may lack what a
merge makes. So words are cut here, and the pieces are looked up as they are published.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import tokenizers
from tokenizers import NormalizedString, PreTokenizedString, Regex, decoders, models, pre_tokenizers

from clearhead.errors import TokenizerError
from clearhead.text.builders.bpe import END_OF_WORD, MergesFiles, read_ids
from clearhead.text.builders.templates import Config, Tokens
from clearhead.text.builders.vocabulary_files import Built, Ids
from clearhead.text.files import library_errors, read_text

CONTINUES = "@@"

# The words that a text for CTRL begins with: they say what kind of text it is.
CONTROL_CODES = (
    "Alone Ask Ass Atheism Books Christianity Computing Confession Confessions Conspiracy Diet Event Explain Extract "
    "Feminism Finance Fitness Funny Gaming Horror Human India Joke Joker Learned Legal Links Movies Narcissus Netflix "
    "News Norman Notion Opinion Politics Pregnancy Questions Relationship Relationships Retail Reviews Running Saving "
    "Scary Science Support Technologies Teenage Thoughts Tip Translation Weight Wikipedia Writing multilingual"
).split()


def control_codes(vocab: Mapping[str, int]) -> dict[str, int]:
    """CTRL's control codes with their ids: `control_codes(tokenizer.get_vocab())`."""
    return {word: vocab[word] for word in CONTROL_CODES if word in vocab}


@dataclass(frozen=True)
class CtrlMergesFiles(MergesFiles):
    """vocab.json and merges.txt, as CTRL means them."""

    def build(self, path: Path, tokens: Tokens, config: Config, added: Ids) -> Built:
        unknown = tokens.get("unk_token") or "<unk>"
        source = CtrlVocabulary(read_ids(path, unknown, added), _read_ranks(path.with_name("merges.txt")), unknown)
        with library_errors(path):
            return Built(source.build(), source_files=source)


@dataclass(frozen=True)
class CtrlVocabulary:
    """CTRL's tokenizer: words are what stands between spaces, with the line end after them."""

    vocab: dict[str, int]
    ranks: dict[tuple[str, str], int]
    unknown: str

    def build(self) -> tokenizers.Tokenizer:
        backend = tokenizers.Tokenizer(models.WordLevel(self.vocab, unk_token=self.unknown))
        backend.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(CtrlPieces(self.ranks))
        backend.decoder = decoders.Sequence(
            [
                decoders.WordPiece(prefix="\0", cleanup=False),  # a space between all tokens: none begins like this
                decoders.Fuse(),
                decoders.Replace(f"{CONTINUES} ", ""),
                decoders.Replace(Regex(r"\A\s+|\s+\z"), ""),
            ]
        )
        return backend

    def files(self) -> dict[str, bytes]:
        lines = ["#version: 0.2", *(" ".join(pair) for pair in self.ranks), ""]
        return {
            "vocab.json": json.dumps(self.vocab, ensure_ascii=False).encode("utf-8"),
            "merges.txt": "\n".join(lines).encode("utf-8"),
        }


class CtrlPieces:
    """Cuts a text into CTRL's pieces; every piece knows the characters it came from."""

    # Unicode's white space, which is not quite Python's
    _WORD = re.compile("[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+\n?")
    _MAX_WORDS = 50_000

    def __init__(self, ranks: Mapping[tuple[str, str], int]) -> None:
        self.ranks = ranks
        self._cache: dict[str, tuple[int, ...]] = {}

    def pre_tokenize(self, text: PreTokenizedString) -> None:
        text.split(self._split)

    def _split(self, _: int, text: NormalizedString) -> list[NormalizedString]:
        pieces = []
        for start, stop, continues in self.pieces(text.normalized):
            piece = text[start:stop]
            assert piece is not None  # the library's answer to a range outside the text
            if continues:
                piece.append(CONTINUES)
            pieces.append(piece)
        return pieces

    def pieces(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Where each piece starts and stops, and whether its word goes on after it."""
        for match in self._WORD.finditer(text):
            word, start = match[0], match.start()
            lengths = self._cache.get(word)
            if lengths is None:
                lengths = self._cut(word)
                if len(self._cache) < self._MAX_WORDS:
                    self._cache[word] = lengths
            for n, length in enumerate(lengths, 1):
                yield start, start + length, n < len(lengths)
                start += length

    def _cut(self, word: str) -> tuple[int, ...]:
        """The lengths of a word's pieces, after merging the best pair everywhere until none is left."""
        parts = [*word[:-1], word[-1] + END_OF_WORD]
        while len(parts) > 1:
            ranked = [(self.ranks[pair], pair) for pair in pairwise(parts) if pair in self.ranks]
            if not ranked:
                break
            left, right = min(ranked)[1]
            merged, n = [], 0
            while n < len(parts):
                joins = parts[n] == left and parts[n + 1 : n + 2] == [right]
                merged.append(left + right if joins else parts[n])
                n += 2 if joins else 1
            parts = merged
        lengths = [len(part) for part in parts]
        return (*lengths[:-1], lengths[-1] - len(END_OF_WORD))


def _read_ranks(path: Path) -> dict[tuple[str, str], int]:
    """The pairs with their ranks; the first line says which version the file has."""
    ranks: dict[tuple[str, str], int] = {}
    for number, line in enumerate(read_text(path).split("\n")[1:], start=2):
        parts = line.split()
        if not parts:
            continue
        if len(parts) != 2:
            raise TokenizerError(f"{path}, line {number}: a merge is two pieces and a space between, not {line!r}.")
        ranks[parts[0], parts[1]] = len(ranks)
    return ranks
