"""How a verb's model is loaded: the options that say so, and the model that each verb takes where none is named.

All of those ship, so that every verb works offline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.style import open_model
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.pipeline import TextPipeline

CLASSIFIER = "sentiment"
MASKED = "bert-mini"
ENCODER = "sentences"  # of embed and search
TRANSLATOR = "translate-en-de"


@dataclass(frozen=True)
class LoadOptions:
    """What may be said about loading a model, beside its name."""

    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; default: as stored.")] = None
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None

    def load(self, name: str, fallback: str = "", task: str | None = None, pictures: bool = False) -> TextPipeline:
        """
        fallback   the shipped model that would do, for who has no network
        pictures   the verb takes models that read pictures, too
        """
        return open_model(
            name, task, pictures, dtype=self.dtype, device=self.device, revision=self.revision, fallback=fallback
        )


def named(model: str | None, kind: str, recipe: str, data: str, example: str) -> str:
    """The model's name, of a verb for which none ships."""
    if model is None:
        raise InputError(
            f"No {kind} ships with Clearhead. Train one (clearhead train {recipe} {data}) and name it with "
            f"--model runs/{recipe}/model, or name one from the hub: --model {example}"
        )
    return model
