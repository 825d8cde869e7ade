"""The tokenizer that a run trains on its own text, and the objective that it is for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from clearhead.errors import ConfigError
from clearhead.files import atomic_folder, remove_parts
from clearhead.train.data import Source
from clearhead.train.engine.world import World
from clearhead.train.objectives import Objective, make_objective
from clearhead.train.recipe import Recipe, TokenizerRecipe
from clearhead.train.run.folder import has_begun
from clearhead.train.run.inputs import RunInputs


def objective_for(recipe: Recipe, inputs: RunInputs, tokenizer: Any) -> Objective:
    options = {key: value for key, value in recipe.objective.items() if key != "name"}
    if inputs.source_tokenizer is not None:
        options["source_tokenizer"] = inputs.source_tokenizer
    return make_objective(recipe.objective["name"], tokenizer, recipe.batch.length, **options)


def stand_in(recipe: TokenizerRecipe, kind: type[Objective]) -> Any:
    """In place of a codec that is still to be trained: with it an objective's options can be checked."""
    return _train(recipe, kind, iter(["a"]), show_progress=False)


def train_or_load(recipe: TokenizerRecipe, kind: type[Objective], source: Source, folder: Path, world: World) -> Any:
    """The codec in the run's folder, which the main process trains if it is not there yet."""
    own, origin = folder / "tokenizer", folder / "tokenizer" / "trained_on.json"
    data = json.dumps({"fingerprint": source.fingerprint()})
    if world.is_main and origin.is_file() and origin.read_text() != data and not has_begun(folder):
        shutil.rmtree(own)  # the text was another one when the run could not begin
    if not own.is_dir() and world.is_main:
        made = _train(recipe, kind, (text for record in source.records() for text in kind.texts_of(record)))
        remove_parts(own)
        with atomic_folder(own) as part:
            made.save(part)
            (part / origin.name).write_text(data)
    world.barrier()
    return kind.load_codec(own)


def _train(recipe: TokenizerRecipe, kind: type[Objective], texts: Iterable[str], show_progress: bool = True) -> Any:
    assert recipe.kind is not None
    if recipe.kind not in kind.codec_kinds:
        known = f"It reads {' or '.join(kind.codec_kinds)}" if kind.codec_kinds else "It does not learn from text"
        raise ConfigError(f"tokenizer.kind is {recipe.kind}, which {kind.name} does not read. {known}.")
    return kind.train_codec(
        texts, recipe.kind, recipe.vocab_size, lowercase=recipe.lowercase, special_tokens=recipe.special_tokens,
        show_progress=show_progress,
    )  # fmt: skip
