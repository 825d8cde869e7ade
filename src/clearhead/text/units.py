"""The tokens of a text as units: how each is shown, which word it is a part of, where its characters stand."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING

from clearhead.errors import InputError
from clearhead.messages import say
from clearhead.text.encoding import Encoding
from clearhead.units import TokenUnit

if TYPE_CHECKING:
    from clearhead.text.tokenizer import Tokenizer

Span = tuple[int, int]


def units_of(tokenizer: Tokenizer, encoding: Encoding, text: str, pair: str | None = None) -> list[TokenUnit]:
    """The units of an encoding of one text, or of a pair."""
    segments, segment = [], 0
    for sequence in encoding.sequence_ids():
        segment = segment if sequence is None else sequence  # [SEP] belongs to the text before it
        segments.append(segment)
    texts = [text if segment == 0 else pair or "" for segment in segments]
    return _units(tokenizer, encoding["input_ids"], encoding.offsets(), texts, segments)


def units_of_ids(tokenizer: Tokenizer, ids: list[int], text: str) -> list[TokenUnit]:
    """Ids with the words they are parts of: from the text where it gives these ids, else one word each."""
    return _units(tokenizer, ids, _spans(tokenizer, ids, text), [text] * len(ids), [0] * len(ids))


def _spans(tokenizer: Tokenizer, ids: list[int], text: str) -> list[Span]:
    """Where each token's characters stand in the text; (0, 0) for special tokens, or where the text gives other ids."""
    encoding = tokenizer(text, add_special_tokens=False) if text else None
    own = encoding["input_ids"] if encoding is not None else []
    begin = next((n for n in range(len(ids) - len(own) + 1) if ids[n : n + len(own)] == own), None)
    spans: list[Span] = [(0, 0)] * len(ids)
    if encoding is not None and begin is not None:
        spans[begin : begin + len(own)] = encoding.offsets()
    return spans


def _units(
    tokenizer: Tokenizer, ids: list[int], spans: list[Span], texts: list[str], segments: list[int]
) -> list[TokenUnit]:
    """spans: where each token's characters stand in its text; (0, 0) where that is not known."""
    special = special_ids(tokenizer)
    units: list[TokenUnit] = []
    words = 0
    for n, (shown, id_) in enumerate(zip(display_texts(tokenizer, ids), ids, strict=True)):
        word = None
        if id_ not in special:
            before = units[-1] if units else None
            joins = before is not None and not before.special and before.segment == segments[n]
            if not joins or not _same_word(texts[n], spans[n - 1], spans[n]):
                words += 1
            word = words - 1
        units.append(TokenUnit(shown, id_, word, segments[n], *spans[n]))
    return units


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """What marks a place rather than saying something. An unknown or a hidden word is still a word."""
    marks = {getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "sep", "cls", "pad")} - {None}
    words = {tokenizer.unk_token_id, tokenizer.mask_token_id}
    return (set(tokenizer.all_special_ids) - words) | marks


def display_texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """Tokens as a person reads them, spaces as spaces: SentencePiece writes one as ▁, others mark a word's end."""
    special = set(tokenizer.all_special_ids)
    shown = []
    for id_, token in zip(ids, tokenizer.readable(ids), strict=True):
        if id_ not in special and token:
            token = " " + token[1:] if token[0] == "▁" else token
            token = token.removesuffix("</w>") + " " if token.endswith("</w>") else token
        shown.append(token)
    return shown


def token_id(tokenizer: Tokenizer, token: str | int, vocab_size: int) -> int:
    """The id of a token that somebody chose, by its id or by its text."""
    if isinstance(token, int) and not isinstance(token, bool):
        if not 0 <= token < vocab_size:
            raise InputError(say("reading.no_token_id", token=token, last=vocab_size - 1))
        return token
    if not isinstance(token, str) or not token:
        raise InputError(say("reading.token_by_text_or_id", token=repr(token)))
    ids = tokenizer.encode(token, add_special_tokens=False)
    if len(ids) > 1 and (in_vocabulary := tokenizer.backend.token_to_id(token)) is not None:
        return int(in_vocabulary)
    if len(ids) != 1:
        pieces = [repr(piece) for piece in display_texts(tokenizer, ids)]
        raise InputError(say("reading.several_tokens", token=repr(token), count=len(ids), pieces=pieces))
    return int(ids[0])


# ---- words


def word_groups(units: list[TokenUnit]) -> list[list[int]]:
    """The positions of each word, in order; a special token is a word of its own."""
    groups: list[list[int]] = []
    before: int | None = None
    for n, unit in enumerate(units):
        if unit.word is not None and unit.word == before:
            groups[-1].append(n)
        else:
            groups.append([n])
        before = unit.word
    return groups


def word_units(tokenizer: Tokenizer, units: list[TokenUnit]) -> list[TokenUnit]:
    """The words that tokens make up, each as one unit."""
    words = []
    for group in word_groups(units):
        first = units[group[0]]
        if len(group) > 1:
            text = "".join(tokenizer.decode([units[n].id for n in group]).split())
            first = replace(first, text=" " * first.text.startswith(" ") + text, id=-1, end=units[group[-1]].end)
        words.append(first)
    return words


def _same_word(text: str, previous: Span, current: Span) -> bool:
    """Whether two neighbouring tokens, by where their characters stand, are parts of one word.

    The rule is the same for every tokenizer. Letters and digits that touch are one word, with an apostrophe between
    letters; other signs stand alone. Scripts that write no spaces have no rule but their tokens: only parts of one
    character belong together.
    """
    (begin, end), (first, last) = previous, current
    if begin >= end or first >= last:
        return False
    if first < end:  # parts of one character
        return True
    if first > end or text[first].isspace():
        return False
    if text[begin:end].isspace():  # a space goes with the word after it, the end of a line does not
        return "\n" not in text[begin:end]
    return _inside_word(text, first - 1) and _inside_word(text, first)


def _inside_word(text: str, index: int) -> bool:
    char = text[index]
    if char in "'’":
        return 0 < index < len(text) - 1 and text[index - 1].isalpha() and text[index + 1].isalpha()
    return (char.isalnum() or unicodedata.category(char)[0] == "M") and not _without_spaces(char)


def _without_spaces(char: str) -> bool:
    """Chinese and Japanese signs, Thai, Lao, Khmer and Burmese: scripts that do not set words apart."""
    name = unicodedata.name(char, "")
    return name.startswith(("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR "))
