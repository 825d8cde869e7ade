"""Models that come with the package, by name: trained ones as packed folders, and a random one to try things out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.models import Model
    from clearhead.text import Tokenizer

MODELS = Path(__file__).parent / "models"


@dataclass(frozen=True)
class Card:
    """What a shipped model is, in a line, and how to get it. The long story is in its folder, in card.md."""

    name: str
    family: str
    about: str
    make: Callable[[str | None], tuple[Model, Tokenizer]] | None = None  # a model that is drawn, not stored

    @property
    def folder(self) -> Path | None:
        """Where a stored model lies."""
        return None if self.make is not None else MODELS / self.name


def _random_gpt2(task: str | None) -> tuple[Model, Tokenizer]:
    from clearhead.zoo.random_gpt2 import make

    return make(task)


_CARDS = (
    Card("stories", "gpt2", "a small GPT-2 that writes like an old children's book"),
    Card("bert-mini", "bert", "a small BERT, as published: masked words and next sentence (old books)"),
    Card("sentiment", "bert", "bert-mini, fine-tuned: is a sentence about a film kind or not (SST-2)"),
    Card("intents", "bert", "bert-mini, fine-tuned: which of 77 things a bank's customer wants (banking77)"),
    Card("translate-en-de", "transformer", "the 2017 Transformer, small: English captions to German (Multi30k)"),
    Card("translate-en-fr", "transformer", "the same to French (Multi30k)"),
    Card("translate-en-zh", "transformer", "the same for short everyday sentences to Chinese (Tatoeba)"),
    Card(
        "random-gpt2",
        "gpt2",
        "4 layers, 4 heads, 64 wide; randomly initialised, never trained: for trying things out",
        _random_gpt2,
    ),
)
SHIPPED = {card.name: card for card in _CARDS}
