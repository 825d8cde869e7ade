"""Training recipes that come with the package, by name: each file is the name and `.yaml`.

The first line of a file says in a comment what it trains; the lines after it how to call it.
"""

from __future__ import annotations

from pathlib import Path

from clearhead import zoo
from clearhead.errors import ConfigError

FOLDER = Path(__file__).parent


def recipes() -> dict[str, str]:
    """The shipped recipes and what each trains, in the order in which one would learn about them."""
    described = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        with path.open(encoding="utf-8") as file:
            described[path.stem] = file.readline().removeprefix("#").strip()
    return dict(sorted(described.items(), key=lambda item: ORDER.index(item[0]) if item[0] in ORDER else len(ORDER)))


ORDER = [
    "language-model",
    "finetune-gpt2",
    "translation",
    "rnn-translation",
    "word-vectors",
    "elmo",
    "bert-pretraining",
    "classification",
    "rnn-classifier",
    "ulmfit",
    "tagging",
    "question-answering",
    "sentence-embeddings",
    "clip",
    "retrofit",
    "distillation",
    "t5-pretraining",
    "bart-pretraining",
]


def find_recipe(name: str) -> Path:
    """The file that is meant: one's own, a shipped one by its name, or a shipped model's. Own files come first."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    folders = {card.name: card.folder for card in zoo.cards().values() if card.folder is not None}
    of_models = {card: folder / "recipe.yaml" for card, folder in folders.items() if (folder / "recipe.yaml").is_file()}
    if name in of_models:
        return of_models[name]
    shipped = recipes()
    if name.removesuffix(".yaml") in shipped:
        return FOLDER / f"{name.removesuffix('.yaml')}.yaml"
    problem = "a folder, not a recipe" if path.is_dir() else "neither a file nor a shipped recipe"
    models = f"; and of the shipped models: {', '.join(sorted(of_models))}" if of_models else ""
    raise ConfigError(f"{name!r} is {problem}.{zoo.hint(name, shipped)} Shipped ones: {', '.join(shipped)}{models}.")
