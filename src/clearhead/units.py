"""Units: what stands at each position of a model's input, as a person would point at it. Plain data, no tensors.

A codec names the units of what it was given (`codec.units(raw)`); findings hold them beside their numbers, and a view
draws each as what it is: a word, a rectangle of a picture, a bar on a piano roll.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Unit:
    """One position of an input.

    kind   what it is, so that a view knows how to draw it
    text   how it is shown where there is room for a word only
    """

    kind: str = field(init=False, default="unit")
    text: str

    @property
    def special(self) -> bool:
        """Whether it only marks a place ([CLS], an end token) and shows nothing of the input."""
        return False


@dataclass(frozen=True)
class TokenUnit(Unit):
    """One token of a text, or one whole word of it; `text` is as a person reads it, with its space.

    id        in the vocabulary; -1 for a word of several tokens
    word      which word it is a part of, counted from 0; None for special tokens
    segment   0 for the first text, 1 for the second of a pair
    start     where its characters start and end in its text; both 0 where it stands for none of it
    """

    kind: str = field(init=False, default="token")
    id: int
    word: int | None
    segment: int = 0
    start: int = 0
    end: int = 0

    @property
    def special(self) -> bool:
        return self.word is None


@dataclass(frozen=True)
class WrittenUnit(TokenUnit):
    """One token that a decoder writes, or one whole word: the name of the step at which it is written.

    read      the token (or word) that the decoder has just read at that step
    guessed   the text ends before it: it is what the model itself would write next
    """

    kind: str = field(init=False, default="written")
    read: str = ""
    guessed: bool = False


@dataclass(frozen=True)
class MarkUnit(Unit):
    """A place that holds nothing of the input, such as the class vector before the patches of a picture."""

    kind: str = field(init=False, default="mark")

    @property
    def special(self) -> bool:
        return True


@dataclass(frozen=True)
class PatchUnit(Unit):
    """One patch of a picture: its place in the grid, and its rectangle in pixels of the picture as given."""

    kind: str = field(init=False, default="patch")
    row: int
    column: int
    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True)
class ShownPicture:
    """A picture that patches are drawn over: itself, small, as an address that holds it; and its size as it was given,
    in which patches have their rectangles."""

    url: str
    width: int
    height: int


@dataclass(frozen=True)
class NoteUnit(Unit):
    """One note of a piece of music: pitch (MIDI, 60 is middle C), when it sounds in seconds, how hard it is struck."""

    kind: str = field(init=False, default="note")
    pitch: int
    start: float
    end: float
    velocity: int
