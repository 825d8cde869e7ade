"""Running text as words, and back: the rules of fastai's vocabularies, which mark in words what lowercase letters lose.

    "Hello, hello!!!!  BYE"   →   xxmaj hello , hello xxrep 4 ! xxup bye

xxmaj    the next word begins with a capital          xxrep n c    the sign c, n times in a row
xxup     the next word is all capitals                xxwrep n w   the word w, n times in a row

fastai leaves cutting words to spaCy. Here a few rules do it that give nearly the same pieces: signs around a word are
cut off one by one, unless what is left is in the vocabulary as it stands ("a.m.", ":)"); n't, 's and their like stand
alone; hyphens, dashes and brackets inside a word part it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

UNKNOWN, PADDING, BEGIN, END, FIELD, REPEATED, WORDS_REPEATED, CAPITALS, CAPITAL = (
    "xxunk xxpad xxbos xxeos xxfld xxrep xxwrep xxup xxmaj".split()
)
SPECIAL = (UNKNOWN, PADDING, BEGIN, END, FIELD, REPEATED, WORDS_REPEATED, CAPITALS, CAPITAL)  # as a vocabulary begins
FILLER = "xxfake"  # fills a vocabulary up to a round number

# what web pages and older corpora leave in their texts -> what it stands for, one after the other
_LEFTOVERS = (
    ("#39;", "'"), ("amp;", "&"), ("#146;", "'"), ("nbsp;", " "), ("#36;", "$"), ("\\n", "\n"), ("quot;", "'"),
    ("<br />", "\n"), ('\\"', '"'), ("<unk>", UNKNOWN), (" @.@ ", "."), (" @-@ ", "-"), ("...", " …"),
)  # fmt: skip
_HAS_LEFTOVERS = re.compile("|".join(re.escape(old) for old, _ in _LEFTOVERS) + "|&")
_ENTITY = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)")

_CHUNK = re.compile(r"[^\S\n]*\n\s*|\S+")  # the end of a line, with the spaces around it; or what has none inside
_REPEATED_SIGN = re.compile(r"(\S)\1{2,}")
_REPEATED_WORD = re.compile(r"(?:\s|\A)(\w+)\s+(?:\1\s+)+\1(\W|\Z)")
_APART = re.compile(r"[/#\\]")
_ALL_CAPITALS = re.compile(r"[A-Z]+[^a-z\s]*")
_ONE_CAPITAL = re.compile(r"[A-Z][^A-Z\s]*")

_OPENING = "\"'“”‘’«»([{<¿¡$£€¥&*_~=+…—–@%-"
_CLOSING = "\"'“”‘’«»)]}>,;:!?.…%*_~=+—–-$€£&"
_CLITIC = re.compile(r".(n['’]t)$|.(['’](?:s|re|ve|ll|d|m))$|^can(not)$")
_INSIDE = re.compile(
    r"\.{2,}|…|--+|—+|–+"
    r"|(?<=[^\W_])[-~](?=[^\W\d_])|(?<=\d)[-+*^](?=\d)"
    r"|(?<=[^\W_])[:<>=](?=[^\W\d_])|(?<=[^\W\d_]),(?=[^\W\d_])|[\"“”()\[\]?!;]"
)


class TextPiece(NamedTuple):
    """A token, and the characters of the text that it stands for."""

    start: int
    stop: int
    token: str


def without_leftovers(text: str, replace: Callable[[str, str], None]) -> None:
    """Asks for every replacement that makes plain text of what web pages leave in it, in order."""
    if _HAS_LEFTOVERS.search(text) is None:
        return
    for old, new in _LEFTOVERS:
        if old in text:
            replace(old, new)
            text = text.replace(old, new)
    for entity in dict.fromkeys(_ENTITY.findall(text)):
        if (plain := html.unescape(entity)) != entity:
            replace(entity, plain)


class WordRules:
    """Cuts texts into words.

    known   the vocabulary, in which a piece is left whole that the rules would cut; None: there is none yet. Where it
            lacks a mark (xxmaj …), the rule that writes the mark is left out
    """

    _MOST_CHUNKS = 200_000

    def __init__(self, known: Container[str] | None = None) -> None:
        self.known = known
        self._marks = {mark: known is None or mark in known for mark in SPECIAL}
        self._chunks: dict[str, tuple[TextPiece, ...]] = {}  # what was cut before

    def pieces(self, text: str) -> Iterator[TextPiece]:
        """The tokens of a text, in order. A mark stands for the first character of what it is about."""
        skipped = 0  # up to here a repeated word has spoken for the text
        repeated = dict(self._repeated_words(text))
        for match in _CHUNK.finditer(text):
            start, chunk = match.span()[0], match[0]
            if start < skipped:
                if match.end() <= skipped:
                    continue
                start, chunk = skipped, text[skipped : match.end()]
            if start in repeated:
                count, word, skipped = repeated[start]
                yield TextPiece(start, start + 1, WORDS_REPEATED)
                yield TextPiece(start, start + 1, str(count))
                chunk = word
                rest = text[skipped : match.end()] if skipped < match.end() else ""
                yield from self._moved(start, chunk)
                yield from self._moved(skipped, rest)
                continue
            yield from self._moved(start, chunk)

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text that is plain already."""
        return [piece.token for piece in self.pieces(text)]

    def _repeated_words(self, text: str) -> Iterator[tuple[int, tuple[int, str, int]]]:
        """Where a word comes three times or more: how often, the word, and the end of it all."""
        match = _REPEATED_WORD.search(text) if self._marks[WORDS_REPEATED] else None
        while match is not None:
            go_on = match.end(1)
            if not _REPEATED_SIGN.search(match[1]):  # those are no words any more
                words = text[match.start(1) : match.start(2)].split()
                yield match.start(1), (len(words), match[1], match.start(2))
                go_on = match.end()
            match = _REPEATED_WORD.search(text, go_on)

    def _moved(self, start: int, chunk: str) -> Iterator[TextPiece]:
        pieces = self._chunks.get(chunk)
        if pieces is None:
            pieces = tuple(self._cut_chunk(chunk))
            if len(self._chunks) < self._MOST_CHUNKS:
                self._chunks[chunk] = pieces
        for begin, end, token in pieces:
            yield TextPiece(start + begin, start + end, token)

    # ---- one chunk: what stands between two spaces

    def _cut_chunk(self, chunk: str) -> Iterator[TextPiece]:
        if chunk.isspace():
            yield TextPiece(0, len(chunk), "\n" * chunk.count("\n"))
            return
        at = 0
        for match in _REPEATED_SIGN.finditer(chunk) if self._marks[REPEATED] else ():
            yield from self._apart(chunk, at, match.start())
            yield TextPiece(match.start(), match.end(), REPEATED)
            yield TextPiece(match.start(), match.end(), str(len(match[0])))
            yield TextPiece(match.start(), match.end(), match[1].lower())
            at = match.end()
        yield from self._apart(chunk, at, len(chunk))

    def _apart(self, chunk: str, start: int, stop: int) -> Iterator[TextPiece]:
        """Slashes, # and backslashes stand alone."""
        for match in _APART.finditer(chunk, start, stop):
            yield from self._with_case(chunk, start, match.start())
            yield TextPiece(match.start(), match.end(), match[0])
            start = match.end()
        yield from self._with_case(chunk, start, stop)

    def _with_case(self, chunk: str, start: int, stop: int) -> Iterator[TextPiece]:
        """What its capitals say, then its words in lower case."""
        part = chunk[start:stop]
        if not part:
            return
        mark = CAPITALS if _ALL_CAPITALS.fullmatch(part) else CAPITAL if _ONE_CAPITAL.fullmatch(part) else None
        if mark is not None and len(part) > 1 and self._marks[mark]:
            yield TextPiece(start, start + 1, mark)
        lower = part.lower()
        if len(lower) != len(part):  # a letter that has no small one of its own
            yield TextPiece(start, stop, lower)
            return
        yield from (TextPiece(start + begin, start + end, lower[begin:end]) for begin, end in self._words(lower))

    def _words(self, part: str) -> Iterator[tuple[int, int]]:
        """Where its words begin and end: signs are cut off on the left and on the right, then inside."""
        start, stop = 0, len(part)
        after: list[tuple[int, int]] = []
        while start < stop and not self._is_whole(part[start:stop]):
            if part[start] in _OPENING and stop - start > 1:
                end = _run_end(part, start, stop)
                yield start, end
                start = end
            elif (clitic := _CLITIC.search(part, start, stop)) is not None:
                after.append((clitic.start(clitic.lastindex or 0), stop))
                stop = after[-1][0]
            elif part[stop - 1] in _CLOSING and stop - start > 1:
                begin = _run_start(part, start, stop)
                after.append((begin, stop))
                stop = begin
            else:
                break
        yield from self._inside(part, start, stop)
        yield from reversed(after)

    def _inside(self, part: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
        if start >= stop:
            return
        if not self._is_whole(part[start:stop]):
            for match in _INSIDE.finditer(part, start, stop):
                if start < match.start():
                    yield start, match.start()
                yield match.span()
                start = match.end()
        if start < stop:
            yield start, stop

    def _is_whole(self, part: str) -> bool:
        """Whether it is one word, though there are signs in it."""
        return part != "cannot" and (part.isalnum() or (self.known is not None and part in self.known))


def _run_end(part: str, start: int, stop: int) -> int:
    """Of a sign at the beginning: dots and dashes in a row are one."""
    end = start + 1
    while part[start] in ".-—" and end < stop and part[end] == part[start]:
        end += 1
    return end


def _run_start(part: str, start: int, stop: int) -> int:
    begin = stop - 1
    while part[stop - 1] in ".-—" and begin > start and part[begin - 1] == part[stop - 1]:
        begin -= 1
    return begin


class WordJoiner:
    """Tokens as text again: `push` one after the other, each gives the text that it adds, the space before it included.

    Which spaces there were is not written down: signs stand where print has them.
    """

    _NO_SPACE_BEFORE = re.compile(r"[,.;:!?)\]}%…”’»]+|['’](?:s|re|ve|ll|d|m)|n['’]t|[-/—–]+|\n+")
    _NO_SPACE_AFTER = re.compile(r"[(\[{$£€#“‘«@]|[-/—–]+|\n+")

    def __init__(self) -> None:
        self._rule: str | None = None
        self._count: int | None = None
        self._begun = False
        self._tight = True  # the next token follows without a space
        self._open = {'"': False, "'": False}  # marks that begin and end alike

    def push(self, token: str) -> str:
        if token in (CAPITAL, CAPITALS, REPEATED, WORDS_REPEATED):
            self._rule, self._count = token, None
            return ""
        rule, count = self._rule, self._count
        if rule in (REPEATED, WORDS_REPEATED):
            if count is None and token.isdecimal() and len(token) < 5:
                self._count = int(token)
                return ""
            if count is not None and rule == WORDS_REPEATED:
                token = " ".join([token] * count)
            elif count is not None:
                token *= count
        self._rule = None
        if rule == CAPITAL:
            token = token[:1].upper() + token[1:]
        elif rule == CAPITALS:
            token = token.upper()
        return self._spaced(token)

    def _spaced(self, token: str) -> str:
        if token in self._open:  # a quotation mark
            closes = self._open[token]
            self._open[token] = not closes
            space = "" if self._tight or closes else " "
            self._tight = not closes
        else:
            space = "" if self._tight or self._NO_SPACE_BEFORE.fullmatch(token) else " "
            self._tight = self._NO_SPACE_AFTER.fullmatch(token) is not None
            if "\n" in token:
                self._open = dict.fromkeys(self._open, False)
        return space + token

    @classmethod
    def join(cls, tokens: list[str]) -> str:
        joiner = cls()
        return "".join(map(joiner.push, tokens))
