"""Training recipes that come with the package, by name: each file is the name and `.yaml`.

The first line of a file says in a comment what it trains; the lines after it how to call it.
"""

from __future__ import annotations

from pathlib import Path

from clearhead.errors import ConfigError, did_you_mean
from clearhead.zoo import MODELS

FOLDER = Path(__file__).parent


def recipes() -> dict[str, str]:
    """The shipped recipes and what each trains, in the order in which one would learn about them."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        with path.open(encoding="utf-8") as file:
            found[path.stem] = file.readline().removeprefix("#").strip()
    return dict(sorted(found.items(), key=lambda item: ORDER.index(item[0]) if item[0] in ORDER else len(ORDER)))


ORDER = [
    "language-model",
    "finetune-gpt2",
    "translation",
    "bert-pretraining",
    "classification",
    "tagging",
    "question-answering",
    "sentence-embeddings",
    "distillation",
    "t5-pretraining",
    "bart-pretraining",
]


def find_recipe(name: str) -> Path:
    """The file that is meant: one's own, a shipped one by its name, or a shipped model's. Own files come first."""
    own = Path(name).expanduser()
    if own.is_file():
        return own
    of_model = MODELS / name / "recipe.yaml"
    if Path(name).name == name and of_model.is_file():
        return of_model
    shipped = recipes()
    if name.removesuffix(".yaml") in shipped:
        return FOLDER / f"{name.removesuffix('.yaml')}.yaml"
    what = "a folder, not a recipe" if own.is_dir() else "neither a file nor a shipped recipe"
    models = sorted(path.parent.name for path in MODELS.glob("*/recipe.yaml"))
    raise ConfigError(
        f"{name!r} is {what}.{did_you_mean(name, [*shipped, *models])} Shipped ones: {', '.join(shipped)}; and of the "
        f"shipped models: {', '.join(models)}."
    )
