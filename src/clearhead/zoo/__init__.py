"""Models by name: those of the package `clearhead-zoo`, where it is installed, and a random one to try things out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import InputError, did_you_mean
from clearhead.messages import Bilingual, say

if TYPE_CHECKING:
    from clearhead.models import Model
    from clearhead.text import Tokenizer


@dataclass(frozen=True)
class Card:
    """What a shipped model is, in a line, and how to get it: from its folder, or by making it anew."""

    name: str
    family: str
    about: str
    folder: Path | None = None  # of a trained model
    make: Callable[[str | None], tuple[Model, Tokenizer]] | None = None  # task → a model that is stored nowhere


def _random_gpt2(task: str | None) -> tuple[Model, Tokenizer]:
    from clearhead.zoo.random_gpt2 import make

    return make(task)


RANDOM = Card(
    "random-gpt2",
    "gpt2",
    Bilingual(
        "4 layers, 4 heads, 64 wide; randomly initialised, never trained: for trying things out",
        "4 层、4 头、宽 64；随机初始化，没有训练过：供试用",
    ),
    make=_random_gpt2,
)


# The names of the trained models: without the package, each is answered with how to get it, and no hub is asked.
TRAINED = (
    "stories",
    "bert-mini",
    "sentences",
    "sentiment",
    "intents",
    "intents-rnn",
    "translate-en-de",
    "translate-en-fr",
    "translate-en-zh",
    "rnn-en-de",
    "rnn-attention-en-de",
    "rnn-attention-en-zh",
    "elmo-small",
    "awd-lstm",
    "glove",
)


@cache
def is_installed() -> bool:
    """Whether the trained models are there."""
    try:
        import clearhead_zoo  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


@cache
def cards() -> dict[str, Card]:
    """Every model that has a name here, by that name."""
    trained = []
    if is_installed():
        from clearhead_zoo import CARDS, MODELS

        trained = [Card(name, family, Bilingual(*about), MODELS / name) for name, (family, *about) in CARDS.items()]
    return {card.name: card for card in (*trained, RANDOM)}


def stores() -> dict[str, Path]:
    """The stores of passages that ship with the models, by name."""
    if not is_installed():
        return {}
    import clearhead_zoo

    return {folder.name: folder for folder in sorted(clearhead_zoo.STORES.glob("*")) if folder.is_dir()}


def shipped_store(where: object) -> Path | None:
    """The folder of a store that ships, by its name; None for anything else. A folder of that name here comes first."""
    return stores().get(where) if isinstance(where, str) and not Path(where).exists() else None


@cache
def measures(name: str) -> dict[str, Any]:
    """What was measured once and lies beside a trained model (`measures.json`); {} where nothing does."""
    card = cards().get(name)
    path = None if card is None or card.folder is None else card.folder / "measures.json"
    if path is None or not path.is_file():
        return {}
    measured: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return measured


def check_installed(name: str) -> None:
    """An error for the name of a trained model where the package that holds it is missing."""
    if name in TRAINED and not is_installed() and not Path(name).is_dir():
        raise InputError(say("loading.not_here", name=name, how=say("errors.zoo_not_installed", near="")))


def hint(name: str, other_names: Iterable[str] = ()) -> str:
    """What to say of a name that is none: one that is like it (here or among `other_names`), or of its kind, or how to
    get the models."""
    near = did_you_mean(name, [*cards(), *other_names])
    if "/" in name:
        return f"{near}{shipped_instead(stand_in(name))}"
    return near if is_installed() else say("errors.zoo_not_installed", near=near)


# What a hub id may contain -> a model of that kind; the first that fits and ships counts.
_KINDS = (
    ("en-de", "translate-en-de"),
    ("en-fr", "translate-en-fr"),
    ("en-zh", "translate-en-zh"),
    ("opus-mt nllb m2m mbart t5", "translate-en-de"),
    ("sst sentiment", "sentiment"),
    ("sentence minilm", "sentences"),
    ("bert electra mpnet minilm", "bert-mini"),
    ("gpt", "stories"),
)


def stand_in(hub_id: str) -> str:
    """The shipped model that is most like a published one, as far as its name tells; "" where it does not."""
    name = hub_id.lower()
    return next((ours for words, ours in _KINDS if ours in cards() and any(one in name for one in words.split())), "")


def shipped_instead(name: str) -> str:
    """A sentence for who has no network; empty where the package with the models is missing."""
    return f" Shipped with Clearhead, and here already: {name}." if name in cards() else ""
