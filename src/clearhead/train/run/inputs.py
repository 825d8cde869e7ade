"""What a run begins with: the sources of its data, the checkpoint it starts from, the tokenizers that are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import hub, pipeline
from clearhead.errors import InputError
from clearhead.hub.adapter import is_adapter
from clearhead.pipeline.word_vectors import WordVectors
from clearhead.text import Tokenizer, has_tokenizer
from clearhead.text.characters import VOCABULARY
from clearhead.train.data import Source, open_source
from clearhead.train.objectives import Objective, objective_class
from clearhead.train.recipe import DataRecipe, Recipe
from clearhead.train.run.embeddings import load_embeddings
from clearhead.train.run.kept_sources import kept_sources


@dataclass
class RunInputs:
    """
    sources            "train", and "valid" and "test" where there are any
    start              the folder of the checkpoint to go on from, or that the student is a part of
    tokenizer          None: it is still to be trained
    source_tokenizer   of the recipe, for a source with a vocabulary of its own
    embeddings         word vectors that the model's tokens begin with
    """

    sources: dict[str, Source]
    start: Path | None
    tokenizer: Any  # whatever codec the objective reads with
    source_tokenizer: Tokenizer | None
    embeddings: WordVectors | None = None


def open_inputs(recipe: Recipe, folder: Path) -> RunInputs:
    """folder: of the run, which knows sources that are gone"""
    origin = recipe.model.start or recipe.model.student_of or recipe.model.retrofit
    if recipe.model.student_of == "teacher":
        origin = recipe.objective["teacher"]
    start = hub.transformer_folder(pipeline.folder_of(origin)) if origin else None
    if start is not None and is_adapter(start):
        raise InputError(
            f"{start} is an adapter, and training starts from a whole model: the one that its run has written beside "
            f'it (model), or what ch.load("{start}").save("folder") writes.'
        )
    taken_from = recipe.tokenizer.start or origin
    kind = objective_class(recipe.objective["name"])
    tokenizer = _codec_at(taken_from, kind) if taken_from and not recipe.tokenizer.kind else None
    source = recipe.objective.get("source_tokenizer")
    source_tokenizer = _codec_at(source, kind) if source is not None else None
    embeddings = load_embeddings(recipe.model.embeddings, folder)
    sources = open_sources(recipe.data, kept_sources(folder))
    return RunInputs(sources, start, tokenizer, source_tokenizer, embeddings)


def open_sources(data: DataRecipe, kept: Mapping[str, Source]) -> dict[str, Source]:
    """kept: what stands in for a source that is gone"""
    common, valid = _common(data), data.valid
    opened: dict[str, Callable[[], Source]] = {
        "train": lambda: open_source(data.train, limit=data.limit, **common),
        "valid": lambda: open_source(valid, **common),
        "test": lambda: open_test(data),
    }
    if valid is None and data.validation_fraction:
        valid, split = data.train, common | {"validation_fraction": data.validation_fraction}
        opened["train"] = lambda: open_source(data.train, limit=data.limit, part="train", **split)
        opened["valid"] = lambda: open_source(valid, part="valid", **split)
    named = {"train": data.train, "valid": valid, "test": data.test}
    sources: dict[str, Source] = {}
    for part in (part for part, spec in named.items() if spec is not None):
        try:
            sources[part] = opened[part]()
        except InputError:
            if part not in kept:
                raise
            sources[part] = kept[part]
    return sources


def open_test(data: DataRecipe) -> Source:
    return open_source(data.test, **_common(data))


def _common(data: DataRecipe) -> dict[str, Any]:
    """What holds for every source that does not say otherwise."""
    return {"format": data.format, "documents": data.documents, "columns": data.columns or None}


def _codec_at(where: str, kind: type[Objective]) -> Any:
    """A model's codec, or one that is alone in its folder."""
    path = hub.user_path(where)
    alone = has_tokenizer(path) or (path / VOCABULARY).is_file()
    return kind.load_codec(path if alone else hub.transformer_folder(pipeline.folder_of(where)))
