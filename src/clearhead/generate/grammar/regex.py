"""Reads a regular expression into the parts of an automaton: what describes a set of texts, and nothing more.

Read: characters, `.` (all but a line end), classes, `|`, groups, `* + ? {m} {m,} {m,n} {,n}` (lazy or not: the texts
are the same), and the escapes `\\d \\w \\s` and their opposites, which mean ASCII. All else is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable

from clearhead.errors import InputError
from clearhead.generate.grammar.automaton import (
    EMPTY,
    Alternation,
    Concatenation,
    Expression,
    Ranges,
    Repetition,
    characters,
    complement,
    merged,
)

Spell = Callable[[Ranges], Expression]  # how one character out of these is written

_DIGIT = [(0x30, 0x39)]
_WORD = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_SPACE = [(0x09, 0x0D), (0x20, 0x20)]
_CLASSES = {
    "d": _DIGIT, "w": _WORD, "s": _SPACE, "D": complement(_DIGIT), "W": complement(_WORD), "S": complement(_SPACE)
}  # fmt: skip
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_HEX = {"x": 2, "u": 4}
_DEEPEST = 100
_GROUPS = {
    "(?=": "a lookahead", "(?!": "a lookahead", "(?<=": "a lookbehind", "(?<!": "a lookbehind",
    "(?P=": "a backreference", "(?P<": "a named group", "(?<": "a named group", "(?#": "a comment",
    "(?>": "an atomic group", "(?(": "a conditional group",
}  # fmt: skip


def parse_regex(pattern: str, spell: Spell = characters) -> Expression:
    """The texts that the whole pattern matches."""
    if not isinstance(pattern, str):
        raise InputError(f"A regular expression is a string, not {type(pattern).__name__}.")
    return _Parser(pattern, spell).parse()


def parse_search(pattern: str, spell: Spell) -> Expression:
    """The texts in which the pattern is found, as JSON schemas mean it: `^` and `$` stand only at the ends."""
    if not isinstance(pattern, str):
        raise InputError(f"A regular expression is a string, not {type(pattern).__name__}.")
    begins = pattern.startswith("^")
    slashes = len(pattern[:-1]) - len(pattern[:-1].rstrip("\\"))
    ends = pattern.endswith("$") and slashes % 2 == 0
    inner = _Parser(pattern[begins : len(pattern) - ends], spell)
    part = inner.parse()
    if (begins or ends) and inner.branches > 1:
        raise InputError(f"In {pattern!r} an anchor belongs to one side of a | only. Write ^(?:…|…)$.")
    anything = Repetition(spell([(0, 0x10FFFF)]))
    return Concatenation([EMPTY if begins else anything, part, EMPTY if ends else anything])


class _Parser:
    """Reads from left to right; `branches` counts those at the top."""

    def __init__(self, pattern: str, spell: Spell) -> None:
        self.pattern, self.spell = pattern, spell
        self.position = 0
        self.branches = self._depth = 0

    def parse(self) -> Expression:
        parts = self._branches()
        if self.position < len(self.pattern):
            raise self._error("a ) without its (", r"Write \) for the character")
        self.branches = len(parts)
        return Alternation(parts)

    def _branches(self) -> list[Expression]:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts

    def _sequence(self) -> Expression:
        parts = []
        while self.position < len(self.pattern) and self.pattern[self.position] not in "|)":
            parts.append(self._repeated(self._atom()))
        return Concatenation(parts)

    def _atom(self) -> Expression:
        char = self.pattern[self.position]
        if char == "(":
            return self._group()
        if char == "[":
            return self.spell(self._class())
        if char in "^$":
            raise self._error(f"the anchor {char}", "The pattern is matched from end to end anyway")
        if char in "*+?":
            raise self._error(f"{char} with nothing to repeat", f"Write \\{char} for the character")
        if char == "{":
            raise self._error("{ with nothing to repeat", r"Write \{ for the character")
        if char == "\\":
            return self.spell(self._escape())
        self.position += 1
        return self.spell(complement([(0x0A, 0x0A)]) if char == "." else [(ord(char), ord(char))])

    def _group(self) -> Expression:
        rest = self.pattern[self.position :]
        if rest.startswith("(?") and not rest.startswith("(?:"):
            name = next((name for start, name in _GROUPS.items() if rest.startswith(start)), "a flag")
            raise self._error(name, "Only ( ) and (?: ) are read")
        opened = self.position
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} groups within each other", "Nest fewer")
        self.position += 3 if rest.startswith("(?:") else 1
        part = Alternation(self._branches())
        self._depth -= 1
        if not self._take(")"):
            self.position = opened
            raise self._error("a ( without its )", r"Write \( for the character")
        return part

    def _repeated(self, part: Expression) -> Expression:
        counts = self._counts()
        if counts is None:
            return part
        if self._take("+"):
            self.position -= 1
            raise self._error("a possessive quantifier", "Put what is repeated twice into a group")
        self._take("?")  # lazy: another order of search, the same texts
        if self._counts() is not None:
            self.position -= 1
            raise self._error("two quantifiers in a row", "Put the first into a group")
        return Repetition(part, *counts)

    def _counts(self) -> tuple[int, int | None] | None:
        """The quantifier here, if there is one."""
        if self.position < len(self.pattern) and self.pattern[self.position] in "*+?":
            self.position += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[self.pattern[self.position - 1]]
        if not self._take("{"):
            return None
        close = self.pattern.find("}", self.position)
        numbers = self.pattern[self.position : close].split(",") if close > 0 else []
        minimum, maximum = (numbers[0], numbers[-1]) if 0 < len(numbers) < 3 else ("?", "?")
        if not all(n == "" or (n.isascii() and n.isdigit()) for n in (minimum, maximum)) or numbers in ([""], ["", ""]):
            self.position -= 1
            raise self._error("a { that is no quantifier", r"Write {2,5} with plain numbers, or \{ for the character")
        self.position = close + 1
        counts = int(minimum or 0), int(maximum) if maximum else None
        if counts[1] is not None and counts[0] > counts[1]:
            raise self._error(f"a quantifier whose least, {minimum}, is above its most, {maximum}", "Exchange them")
        return counts

    def _class(self) -> Ranges:
        opened = self.position
        self.position += 1
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            low = self._class_item(opened)
            if self._take_range_dash():
                high = self._class_item(opened)
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    raise self._error("a range between classes", r"Write \- for the character")
                if low[0][0] > high[0][0]:
                    raise self._error("a range from the higher to the lower character", "Exchange them")
                low = [(low[0][0], high[0][0])]
            ranges += low
        if not ranges:
            self.position = opened
            raise self._error("an empty class", r"Write \] for the character ]")
        return complement(ranges) if negated else merged(ranges)

    def _class_item(self, opened: int) -> Ranges:
        if self.position >= len(self.pattern):
            self.position = opened
            raise self._error("a [ without its ]", r"Write \[ for the character")
        if self.pattern[self.position] == "\\":
            return self._escape()
        self.position += 1
        return [(ord(self.pattern[self.position - 1]),) * 2]

    def _take_range_dash(self) -> bool:
        """Takes a - that makes a range; one before the closing ] is a character."""
        is_next = self.pattern[self.position : self.position + 1] == "-" and self.pattern[
            self.position + 1 : self.position + 2
        ] not in ("]", "")
        self.position += is_next
        return is_next

    def _escape(self) -> Ranges:
        char = self.pattern[self.position + 1 : self.position + 2]
        if char in _CLASSES:
            self.position += 2
            return _CLASSES[char]
        if char in _HEX:
            digits = self.pattern[self.position + 2 : self.position + 2 + _HEX[char]]
            if len(digits) < _HEX[char] or not all(d in "0123456789abcdefABCDEF" for d in digits):
                raise self._error(f"\\{char} without {_HEX[char]} hexadecimal digits", "Write them")
            self.position += 2 + len(digits)
            return [(int(digits, 16),) * 2]
        if char.isdigit() and char != "0":
            raise self._error(f"the backreference \\{char}", "What was matched before cannot be asked for again")
        if char == "" or (char.isalnum() and char not in _CONTROLS):
            names = {"b": "the word boundary", "B": "the word boundary", "A": "the anchor", "Z": "the anchor"}
            raise self._error(f"{names.get(char, 'the escape')} \\{char}", "Only a few escapes are read")
        self.position += 2
        return [(ord(_CONTROLS.get(char, char)),) * 2]

    def _take(self, char: str) -> bool:
        is_next = self.pattern.startswith(char, self.position)
        self.position += len(char) * is_next
        return is_next

    def _error(self, problem: str, hint: str) -> InputError:
        return InputError(f"The regular expression {self.pattern!r} has {problem} at place {self.position}. {hint}.")
