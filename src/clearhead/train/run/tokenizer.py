"""The tokenizer that a run trains on its own text, and the objective that it is for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearhead.errors import ConfigError
from clearhead.files import atomic_folder, remove_parts
from clearhead.text import Tokenizer
from clearhead.text.builders.corpus import progress
from clearhead.text.builders.word_list import WordList, count_words, most_frequent, word_tokenizer
from clearhead.train.data import Source
from clearhead.train.engine.world import World
from clearhead.train.objectives import Objective, make_objective
from clearhead.train.recipe import Recipe, TokenizerRecipe
from clearhead.train.run.folder import has_begun
from clearhead.train.run.inputs import RunInputs

SMALL = 2e6  # bytes; the words of less than this are counted in a moment
LEAST = 3  # times that a word must come to get a place in a vocabulary


def objective_for(recipe: Recipe, inputs: RunInputs, tokenizer: Any) -> Objective:
    options = {key: value for key, value in recipe.objective.items() if key != "name"}
    if inputs.source_tokenizer is not None:
        options["source_tokenizer"] = inputs.source_tokenizer
    return make_objective(recipe.objective["name"], tokenizer, recipe.batch.length, **options)


def stand_in(recipe: TokenizerRecipe, kind: type[Objective]) -> Any:
    """In place of a codec that is still to be trained: with it an objective's options can be checked."""
    seldom = replace(recipe, min_count=None if recipe.min_count is None else 1)
    return _train(seldom, kind, iter(["a b"] * 5), show_progress=False)


def train_or_load(
    recipe: TokenizerRecipe, kind: type[Objective], source: Source, folder: Path, world: World, base: Any = None
) -> Any:
    """The codec in the run's folder, which the main process makes if it is not there yet.

    base   the one that gets more words, where none is trained anew
    """
    own, origin = folder / "tokenizer", folder / "tokenizer" / "trained_on.json"
    data = json.dumps({"fingerprint": source.fingerprint()})
    if world.is_main and origin.is_file() and origin.read_text() != data and not has_begun(folder):
        shutil.rmtree(own)  # the text was another one when the run could not begin
    if not own.is_dir() and world.is_main:
        counted = recipe.kind == "words" or base is not None  # in Python: it takes a while
        with progress(counted and (source.size or 0) > SMALL, source.size) as advance:
            texts = (text for record in source.records(advance) for text in kind.texts_of(record))
            made = _train(recipe, kind, texts) if base is None else _with_words(base, recipe.add_words or 0, texts)
        remove_parts(own)
        with atomic_folder(own) as part:
            made.save(part)
            (part / origin.name).write_text(data)
    world.barrier()
    return kind.load_codec(own)


def word_list(tokenizer: Any) -> WordList:
    """Its words, where it has a list of them."""
    source = getattr(tokenizer, "source_files", None)
    if not isinstance(source, WordList):
        raise ConfigError(
            "tokenizer.add_words is for vocabularies of whole words (awd-lstm, fastai); this one spells every word in "
            "pieces that it has. Leave it out."
        )
    return source


def _with_words(base: Any, count: int, texts: Iterable[str]) -> Tokenizer:
    own = word_list(base)
    counts = count_words(texts)
    for word in own.ids:
        counts.pop(word, None)
    return word_tokenizer(own.extended(most_frequent(counts, count, LEAST)).words, base.config)


def _train(recipe: TokenizerRecipe, kind: type[Objective], texts: Iterable[str], show_progress: bool = True) -> Any:
    assert recipe.kind is not None
    if recipe.kind not in kind.codec_kinds:
        known = f"It reads {' or '.join(kind.codec_kinds)}" if kind.codec_kinds else "It does not learn from text"
        raise ConfigError(f"tokenizer.kind is {recipe.kind}, which {kind.name} does not read. {known}.")
    return kind.train_codec(
        texts, recipe.kind, recipe.vocab_size, lowercase=recipe.lowercase, special_tokens=recipe.special_tokens,
        min_count=recipe.min_count, show_progress=show_progress,
    )  # fmt: skip
