"""What each token of a vocabulary writes, in bytes, and how all of them walk through an automaton at once.

A token is read as it stands in the middle of a text. Some tokenizers put the space between words before a token
(`▁the`, WordPiece's words), some after one (`the</w>`), where it is written only when another token follows; so a token
also says what it leaves behind. Tokens that are no text (special, unused, or not decodable on their own) are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from clearhead.errors import InputError
from clearhead.generate.grammar.automaton import DEAD, Automaton
from clearhead.text import Tokenizer
from clearhead.text.builders.ctrl import CONTINUES, CtrlVocabulary
from clearhead.text.readable import BYTE_OF, decoder_steps

FIRST, PLAIN, SPACE, OPEN = range(4)
"""Where a text stands: before its first token; anywhere; before a space that comes with the next token; inside a
word that must go on."""

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
_UNUSED = re.compile(r"\[unused\d+\]|<unused\d+>")
_LOCAL = {"WordPiece", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"}  # steps that look at one token each
_IN_UTF8 = [*range(0x80), *range(0x80, 0xC0), *range(0xC2, 0xF5)]


class _TokenTexts(NamedTuple):
    """What a tokenizer writes."""

    texts: dict[int, bytes]
    modes: dict[int, int]  # what a token leaves behind, where that is not PLAIN
    starts: set[int]  # those that may come first
    drops_space: bool = False


class GrammarVocabulary:
    """
    texts      the bytes of each token that is text
    leaves     (vocab,): PLAIN, SPACE or OPEN, what follows each token
    starts     (vocab,): whether it may come first, alone decoding to the same but for a space in front
    drops_space whether a space that comes first is lost in decoding
    complete   whether every byte is a token of its own, so that whatever a grammar asks for can be spelled
    """

    def __init__(self, tokenizer: Tokenizer, size: int | None, not_text: Sequence[int]) -> None:
        """size: how many scores the model gives; None for one to a token."""
        vocab = tokenizer.get_vocab()
        self.size = size = max([*vocab.values(), *not_text]) + 1 if size is None else size
        texts, modes, alone, self.drops_space = _texts(tokenizer)
        left_out = {*tokenizer.all_special_ids, *not_text}
        left_out |= {n for n, token in tokenizer.backend.get_added_tokens_decoder().items() if token.special}
        left_out |= {n for token, n in vocab.items() if _UNUSED.fullmatch(token)}
        self.texts = {n: text for n, text in sorted(texts.items()) if text and n not in left_out and n < size}
        if not self.texts:
            raise InputError("No token of this tokenizer is text, so it can write nothing.")
        self.leaves = np.full(size, PLAIN, dtype=np.int8)
        self.starts = np.zeros(size, dtype=bool)
        for n in self.texts:
            self.leaves[n] = modes.get(n, PLAIN)
            self.starts[n] = n in alone
        singles = {
            text[0] for n, text in self.texts.items() if len(text) == 1 and self.leaves[n] == PLAIN and n in alone
        }
        self.complete = singles.issuperset(_IN_UTF8)
        self._build_byte_columns()

    @cached_property
    def by_text(self) -> dict[bytes, list[int]]:
        """The tokens that write each text."""
        by_text: dict[bytes, list[int]] = {}
        for token, text in self.texts.items():
            by_text.setdefault(text, []).append(token)
        return by_text

    def _build_byte_columns(self) -> None:
        """The texts as columns: the first byte of every token, the second byte of those that have one, and so on."""
        self._order = np.array(sorted(self.texts, key=lambda n: -len(self.texts[n])), dtype=np.int64)
        texts = [self.texts[n] for n in self._order.tolist()]
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        starts = np.cumsum(lengths) - lengths
        data = np.frombuffer(b"".join(texts), dtype=np.uint8).astype(np.int32)
        counts = [int((lengths > depth).sum()) for depth in range(int(lengths.max()))]
        self.longest = len(counts)
        self._columns = [data[starts[:count] + depth] for depth, count in enumerate(counts)]
        self._with_first = [np.flatnonzero(self._columns[0] == value) for value in range(256)]

    def walk(self, automaton: Automaton, state: int) -> np.ndarray:
        """The state after each token, (vocab,); DEAD where it cannot be written.

        All tokens take a byte at a time together; where few can be written, only those.
        """
        row = automaton.row(state)
        groups = [self._with_first[value] for value in np.flatnonzero(row != DEAD).tolist()]
        candidates: np.ndarray | None = None
        states = np.full(len(self._order), DEAD, dtype=np.int32)  # the longest tokens first
        if 8 * sum(map(len, groups)) < len(states):
            candidates = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *groups]))
            states[candidates] = row[self._columns[0][candidates]]
        else:
            states[:] = row[self._columns[0]]
        for column in self._columns[1:]:
            count = len(column)
            if candidates is None:
                states[:count] = after = automaton.step(states[:count], column)
                reachable = after != DEAD
                if 8 * np.count_nonzero(reachable) < count:
                    candidates = np.flatnonzero(reachable)
            else:
                candidates = candidates[: np.searchsorted(candidates, count)]
                if not len(candidates):
                    break
                states[candidates] = after = automaton.step(states[candidates], column[candidates])
                candidates = candidates[after != DEAD]
        next_states = np.full(self.size, DEAD, dtype=np.int32)
        next_states[self._order] = states
        return next_states


_KNOWN: WeakKeyDictionary[Tokenizer, dict[Any, GrammarVocabulary]] = WeakKeyDictionary()


def vocabulary_of(tokenizer: Tokenizer, size: int | None, not_text: Sequence[int]) -> GrammarVocabulary:
    """The vocabulary of a tokenizer, kept from one call to the next. not_text: ids that end a text."""
    key = tokenizer.backend, size, tuple(not_text)
    known = _KNOWN.setdefault(tokenizer, {})
    if key not in known:
        for old in [old for old in known if old[0] is not tokenizer.backend]:  # it was changed since
            del known[old]
        known[key] = GrammarVocabulary(tokenizer, size, not_text)
    return known[key]


def _texts(tokenizer: Tokenizer) -> _TokenTexts:
    vocab, steps = tokenizer.get_vocab(), decoder_steps(tokenizer.backend)
    kinds = [step["type"] for step in steps]
    if isinstance(tokenizer.source_files, CtrlVocabulary):
        return _by_suffix(vocab, CONTINUES, OPEN, SPACE)
    if kinds == ["ByteLevel"]:
        return _TokenTexts({n: _from_byte_level(token) for token, n in vocab.items()}, {}, set(vocab.values()))
    if kinds == ["BPEDecoder"]:
        return _by_suffix(vocab, steps[0]["suffix"], SPACE, PLAIN)
    unknown = [kind for kind in kinds if kind not in _LOCAL]
    if unknown:
        raise InputError(
            f"A grammar must know what each token writes, and this tokenizer decodes by {unknown[0]}, which is not "
            "implemented. Generate without a grammar, and check the answer."
        )
    return _by_decoding(tokenizer, vocab, {"ByteFallback"} <= set(kinds))


def _from_byte_level(token: str) -> bytes:
    try:
        return bytes(BYTE_OF[char] for char in token)
    except KeyError:  # an added token that was never written in the disguise
        return token.encode("utf-8")


def _by_suffix(vocab: dict[str, int], suffix: str, mode_with: int, mode_without: int) -> _TokenTexts:
    texts = {n: token.removesuffix(suffix).encode("utf-8") for token, n in vocab.items()}
    modes = {n: mode_with if token.endswith(suffix) else mode_without for token, n in vocab.items()}
    return _TokenTexts(texts, modes, set(vocab.values()))


def _by_decoding(tokenizer: Tokenizer, vocab: dict[str, int], fallback: bool) -> _TokenTexts:
    """Asks the decoder: what does the text gain when this token comes after another, and what is it alone?"""
    backend = tokenizer.backend
    plain = sorted((token for token in vocab if token.isascii() and token.isalnum()), key=lambda t: (len(t), t))
    if not plain:
        raise InputError("This vocabulary has no token of plain letters, so what its tokens write cannot be found out.")
    anchor = vocab[plain[0]]
    before: str = backend.decode([anchor], skip_special_tokens=False)
    order = sorted(vocab.values())
    all_after = backend.decode_batch([[anchor, n] for n in order], skip_special_tokens=False)
    all_alone = backend.decode_batch([[n] for n in order], skip_special_tokens=False)
    texts: dict[int, bytes] = {}
    starts: set[int] = set()
    drops_space = False
    for n, decoded_after, decoded_alone in zip(order, all_after, all_alone, strict=True):
        if decoded_after.startswith(before):
            text = decoded_after[len(before) :]
            texts[n] = text.encode("utf-8")
            if decoded_alone in (text, text.removeprefix(" ")):
                starts.add(n)
                drops_space = drops_space or decoded_alone != text
    for token, n in vocab.items() if fallback else ():
        if match := _BYTE.fullmatch(token):
            texts[n] = bytes([int(match[1], 16)])
            starts.add(n)
    return _TokenTexts(texts, {}, starts, drops_space)
