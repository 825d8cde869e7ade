"""What a run begins with: the sources of its data, the checkpoint it starts from, the tokenizers that are there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import hub, pipeline
from clearhead.text import Tokenizer, has_tokenizer, load_tokenizer
from clearhead.train.data import Source, open_source
from clearhead.train.recipe import DataRecipe, Recipe


@dataclass
class RunInputs:
    """
    sources            "train", and "valid" and "test" where there are any
    start              the folder of the checkpoint to go on from, or that the student is a part of
    tokenizer          None: it is still to be trained
    source_tokenizer   of the recipe, for a source with a vocabulary of its own
    """

    sources: dict[str, Source]
    start: Path | None
    tokenizer: Tokenizer | None
    source_tokenizer: Tokenizer | None


def open_inputs(recipe: Recipe) -> RunInputs:
    origin = recipe.model.start or recipe.model.student_of
    if recipe.model.student_of == "teacher":
        origin = recipe.objective["teacher"]
    start = hub.transformer_folder(pipeline.folder_of(origin)) if origin else None
    taken_from = recipe.tokenizer.start or origin
    tokenizer = _tokenizer_at(taken_from) if taken_from and not recipe.tokenizer.kind else None
    source = recipe.objective.get("source_tokenizer")
    source_tokenizer = _tokenizer_at(source) if source is not None else None
    return RunInputs(_open_sources(recipe.data), start, tokenizer, source_tokenizer)


def _open_sources(data: DataRecipe) -> dict[str, Source]:
    common = _common(data)
    if data.valid is None and data.validation_fraction:
        held: dict[str, Any] = {"validation_fraction": data.validation_fraction}
        sources = {
            "train": open_source(data.train, limit=data.limit, part="train", **held, **common),
            "valid": open_source(data.train, part="valid", **held, **common),
        }
    else:
        sources = {"train": open_source(data.train, limit=data.limit, **common)}
        if data.valid is not None:
            sources["valid"] = open_source(data.valid, **common)
    if data.test is not None:
        sources["test"] = open_test(data)
    return sources


def open_test(data: DataRecipe) -> Source:
    return open_source(data.test, **_common(data))


def _common(data: DataRecipe) -> dict[str, Any]:
    """What holds for every source that does not say otherwise."""
    return {"format": data.format, "documents": data.documents, "columns": data.columns or None}


def _tokenizer_at(where: str) -> Tokenizer:
    """A model's tokenizer, or one that is alone in its folder."""
    path = hub.user_path(where)
    folder = path if has_tokenizer(path) else hub.transformer_folder(pipeline.folder_of(where))
    return load_tokenizer(folder)
