"""fastai's vocabularies: a JSON list of words, most of them lowercase, the place in the list being the id."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, NormalizedString, PreTokenizedString, decoders, models, pre_tokenizers

from clearhead import files
from clearhead.errors import TokenizerError
from clearhead.text.builders.templates import BosEosTemplate, Config, Tokens
from clearhead.text.builders.vocabulary_files import Built, Ids, VocabularyFiles
from clearhead.text.files import library_errors
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.word_rules import (
    BEGIN,
    END,
    FIELD,
    FILLER,
    PADDING,
    SPECIAL,
    UNKNOWN,
    WordJoiner,
    WordRules,
    without_leftovers,
)

WORD_LIST = "vocab.json"
MARKS = (UNKNOWN, PADDING, BEGIN, END, FIELD)  # tokens that are no part of a text; xxmaj and its like are
# A text begins with xxbos and has no end of its own: where the next begins, it was over.
TOKENS = {"unk_token": UNKNOWN, "pad_token": PADDING, "bos_token": BEGIN, "eos_token": BEGIN}
TEMPLATE = BosEosTemplate(bos=True)
SAVED_CLASS = "FastaiTokenizer"


@dataclass(frozen=True)
class WordListFiles(VocabularyFiles):
    """vocab.json, where it holds a list."""

    @staticmethod
    def find(folder: Path) -> Path | None:
        path = folder / WORD_LIST
        return path if path.is_file() else None

    def build(self, path: Path, tokens: Tokens, config: Config, added: Ids) -> Built:
        source = WordList(tuple(read_word_list(path)))
        with library_errors(path):
            return Built(source.build(), source_files=source)


def read_word_list(path: Path) -> list[str]:
    """The words of a vocabulary, in the order of their ids."""
    if path.suffix in (".pkl", ".pickle"):
        raise TokenizerError(
            f"{path} is a pickle: opening it can run code, so it is not opened. Where you trust it, write the words as "
            "a JSON list: json.dump(list(vocab), open('vocab.json', 'w'))."
        )
    words = files.read_json(path, TokenizerError)
    if not isinstance(words, list) or not words:
        raise TokenizerError(f"{path} must hold a JSON list of words; it holds {_kind(words)}.")
    return checked_words(words, str(path))


def checked_words(words: Iterable[Any], where: str) -> list[str]:
    """The same of a list; where: what holds it, for messages."""
    words = list(words)
    for n, word in enumerate(words):
        if not isinstance(word, str):
            raise TokenizerError(f"{where}: word number {n} is {_kind(word)}, and must be a string.")
    twice = [word for word, count in Counter(words).items() if count > 1 and word != FILLER]
    if twice:
        raise TokenizerError(f"{where} has {twice[0]!r} twice: which of its ids a text gets would be chance.")
    if not words:
        raise TokenizerError(f"{where} is an empty list: a vocabulary has words.")
    return words


def _kind(value: object) -> str:
    return "an empty list" if value == [] else f"a JSON {type(value).__name__}"


@dataclass(frozen=True)
class WordList:
    """The vocabulary, and the tokenizer that it makes."""

    words: tuple[str, ...]

    @property
    def ids(self) -> dict[str, int]:
        """Every word with its id; what fills the list up is found in no text, and has none."""
        return {word: n for n, word in enumerate(self.words) if word != FILLER}

    def build(self) -> tokenizers.Tokenizer:
        ids = self.ids
        unknown = UNKNOWN if UNKNOWN in ids else self.words[0]  # fastai's own answer to a word it does not know
        backend = tokenizers.Tokenizer(models.WordLevel(ids, unk_token=unknown))
        backend.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(WordPieces(WordRules(ids)))
        backend.decoder = decoders.Decoder.custom(WordDecoder())
        backend.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS if mark in ids])
        return backend

    def files(self) -> dict[str, bytes]:
        return {WORD_LIST: json.dumps(self.words, ensure_ascii=False).encode("utf-8")}

    def joiner(self) -> WordJoiner:
        """Turns tokens that come one by one into text."""
        return WordJoiner()

    def extended(self, words: Iterable[str]) -> WordList:
        """The same with more words after its own, in place of what filled it up."""
        own = [word for word in self.words if word != FILLER]
        assert self.words[: len(own)] == tuple(own), "fillers stand at the end"
        known = set(own)
        return WordList((*own, *(word for word in dict.fromkeys(words) if word not in known)))


class WordPieces:
    """Cuts a text by the rules; every piece knows the characters it came from."""

    def __init__(self, rules: WordRules) -> None:
        self.rules = rules

    def pre_tokenize(self, text: PreTokenizedString) -> None:
        text.split(self._split)

    def _split(self, _: int, text: NormalizedString) -> list[NormalizedString]:
        without_leftovers(text.normalized, text.replace)
        plain, pieces = text.normalized, []
        for start, stop, token in self.rules.pieces(plain):
            piece = text[start:stop]
            assert piece is not None  # the library's answer to a range outside the text
            if (written := plain[start:stop]) != token:
                piece.lowercase()  # keeps every character's place
                if written.lower() != token:
                    piece.replace(piece.normalized, token)
            pieces.append(piece)
        return pieces


class WordDecoder:
    """Tokens as text, for the wrapped library."""

    def decode_chain(self, tokens: list[str]) -> list[str]:
        return list(map(WordJoiner().push, tokens))


def word_tokenizer(words: Sequence[str], config: dict[str, object] | None = None) -> Tokenizer:
    """The tokenizer of a list of words."""
    source = WordList(tuple(words))
    backend, ids = source.build(), source.ids
    TEMPLATE.wrap(backend, TOKENS, {})
    named = {name: token for name, token in TOKENS.items() if token in ids}
    extra = [mark for mark in (END, FIELD) if mark in ids]
    tokenizer = Tokenizer(backend, config, named=named, extra=extra, saved_class=SAVED_CLASS)
    tokenizer.source_files = source
    return tokenizer


def count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word comes in the texts."""
    rules, counts = WordRules(), Counter[str]()
    for text in texts:
        changed = [text]

        def replace(old: str, new: str, changed: list[str] = changed) -> None:
            changed[0] = changed[0].replace(old, new)

        without_leftovers(text, replace)
        counts.update(piece.token for piece in rules.pieces(changed[0]))
    return counts


def most_frequent(counts: Counter[str], size: int, least: int = 1) -> list[str]:
    """The words that come most often, `least` times at least; equals in alphabetical order."""
    ranked = sorted((word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word))
    return [word for word in ranked if word not in SPECIAL and word != FILLER][:size]
