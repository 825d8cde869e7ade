"""Models that come with the package, by name.

Until trained ones ship there is one, and it is random: it shows every mechanism and knows nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.models import Model
    from clearhead.text import Tokenizer


@dataclass(frozen=True)
class Card:
    """What a shipped model is, in a line, and how to get it."""

    name: str
    family: str
    about: str
    make: Callable[[str | None], tuple[Model, Tokenizer]]


def _random_gpt2(task: str | None) -> tuple[Model, Tokenizer]:
    from clearhead.zoo.random_gpt2 import make

    return make(task)


SHIPPED = {
    "random-gpt2": Card(
        "random-gpt2",
        "gpt2",
        "4 layers, 4 heads, 64 wide; randomly initialised, never trained: for trying things out",
        _random_gpt2,
    ),
}
