"""The tokenizer that a run trains on its own text, and the objective that it is for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from clearhead.errors import ConfigError
from clearhead.files import atomic_folder, remove_parts
from clearhead.text import Tokenizer, load_tokenizer, train_tokenizer
from clearhead.train.data import Source
from clearhead.train.engine.world import World
from clearhead.train.objectives import Objective, make_objective
from clearhead.train.objectives.text import TextObjective
from clearhead.train.recipe import Recipe, TokenizerRecipe
from clearhead.train.run.folder import has_begun
from clearhead.train.run.inputs import RunInputs

BROUGHT = {  # special tokens that a tokenizer of each kind has anyway
    "bpe": ("bos_token", "eos_token", "unk_token"),
    "wordpiece": ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
    "unigram": ("pad_token", "eos_token", "unk_token"),
}


def objective_for(recipe: Recipe, inputs: RunInputs, tokenizer: Tokenizer) -> Objective:
    options = {key: value for key, value in recipe.objective.items() if key != "name"}
    if inputs.source_tokenizer is not None:
        options["source_tokenizer"] = inputs.source_tokenizer
    return make_objective(recipe.objective["name"], tokenizer, recipe.batch.length, **options)


def stand_in(recipe: TokenizerRecipe, kind: type[Objective]) -> Tokenizer:
    """In place of a tokenizer that is still to be trained: with it an objective's options can be checked."""
    return _train(recipe, text_objective(kind), iter(["a"]), show_progress=False)


def text_objective(kind: type[Objective]) -> type[TextObjective]:
    if not issubclass(kind, TextObjective):
        raise ConfigError(f"{kind.name} does not learn from text: leave tokenizer.kind out.")
    return kind


def train_or_load(
    recipe: TokenizerRecipe, kind: type[Objective], source: Source, folder: Path, world: World
) -> Tokenizer:
    """The tokenizer in the run's folder, which the main process trains if it is not there yet."""
    own, origin = folder / "tokenizer", folder / "tokenizer" / "trained_on.json"
    data = json.dumps({"fingerprint": source.fingerprint()})
    if world.is_main and origin.is_file() and origin.read_text() != data and not has_begun(folder):
        shutil.rmtree(own)  # the text was another one when the run could not begin
    if not own.is_dir() and world.is_main:
        text_kind = text_objective(kind)
        made = _train(recipe, text_kind, (text for record in source.records() for text in text_kind.texts_of(record)))
        remove_parts(own)
        with atomic_folder(own) as part:
            made.save(part)
            (part / origin.name).write_text(data)
    world.barrier()
    return load_tokenizer(own)


def _train(
    recipe: TokenizerRecipe, kind: type[TextObjective], texts: Iterable[str], show_progress: bool = True
) -> Tokenizer:
    assert recipe.kind is not None
    own = [token for name, token in kind.special_tokens.items() if name not in BROUGHT[recipe.kind]]
    special = [*recipe.special_tokens, *kind.extra_tokens(), *own]
    made = train_tokenizer(
        texts, recipe.kind, recipe.vocab_size, lowercase=recipe.lowercase, special_tokens=special,
        show_progress=show_progress,
    )  # fmt: skip
    kind.finish_tokenizer(made)
    return made
