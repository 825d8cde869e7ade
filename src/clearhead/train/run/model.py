"""The model of a run: from a checkpoint, from a part of one, or with random weights; with weights or without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from clearhead import hub, models
from clearhead.models import Config, Family, Model
from clearhead.models.retro import retrofit
from clearhead.models.vocabulary import grow_vocabulary
from clearhead.train.objectives import Objective
from clearhead.train.objectives.distillation import student_of
from clearhead.train.recipe import ModelRecipe


def make_model(
    recipe: ModelRecipe, objective: Objective, start: Path | None, vocab_size: int, device: torch.device
) -> Model:
    """
    start        the folder of the checkpoint; None: random weights
    vocab_size   of the tokenizer
    device       where it is made
    """
    task = recipe.task or objective.task
    model: Model
    if start is not None and recipe.retrofit:
        model = retrofit(hub.load_model(start, task, "float32", device, recipe.ignore_options), recipe.config)
    elif start is not None:

        def configure(raw: dict[str, Any]) -> dict[str, Any]:
            return objective.configure(raw | recipe.config)

        model = hub.load_model(start, task, "float32", device, recipe.ignore_options, configure=configure)
        model.config.check_known(recipe.config)
        if recipe.student_of:
            model = student_of(model, recipe.layers)
        if vocab_size > model.config.vocab_size:  # tokenizer.add_words
            grow_vocabulary(model, _rows(vocab_size))
    else:
        family, config = new_config(recipe, vocab_size, objective.special_ids(), objective.configure)
        model = family.make(config, task).to(device)
    for p in model.parameters():
        # In memory of its own (a file may be mapped), in one layout: products are the same after a stop.
        p.data = p.data.clone(memory_format=torch.contiguous_format)
    return model


def model_shape(recipe: ModelRecipe, kind: type[Objective], start: Path | None, vocab_size: int) -> Model:
    """The model without its weights."""
    if start is not None and recipe.retrofit:
        family, config, _ = hub.read_config(start, recipe.ignore_options)
        return retrofit(family.make(config, recipe.task or kind.task, "meta"), recipe.config)
    if start is not None:
        family, config, _ = hub.read_config(start, recipe.ignore_options, lambda raw: raw | recipe.config)
        config.check_known(recipe.config)
    else:
        family, config = new_config(recipe, vocab_size)
    model = family.make(config, recipe.task or kind.task, "meta")
    return student_of(model, recipe.layers) if recipe.student_of else model


def new_config(
    recipe: ModelRecipe,
    vocab_size: int,
    special: Mapping[str, int] | None = None,
    configure: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> tuple[Family, Config]:
    """What a model that begins with random weights is made of: the preset, and what the recipe changes in it.

    vocab_size  of the tokenizer; the table has a few rows more
    special     the ids of special tokens
    configure   what the objective decides
    """
    assert recipe.family is not None
    family = models.family(recipe.family)
    sizes: dict[str, Any] = {}
    if recipe.preset is not None:
        family.preset(recipe.preset)  # an error where there is none
        sizes = {name: value for name, value in family.presets[recipe.preset].items() if name != "vocab_size"}
    values = {family.config._key(name): value for name, value in (sizes | recipe.config).items()}  # by either name
    values = family.config.with_vocabulary(values, _rows(vocab_size), {})
    config = family.config.from_dict(values, recipe.ignore_options, strict=True)
    raw = family.config.with_vocabulary(config.to_dict(), _rows(vocab_size), special or {})
    return family, family.config.from_dict(configure(raw) if configure is not None else raw, recipe.ignore_options)


def _rows(words: int) -> int:
    """Of a table for so many words: round sizes are quicker to multiply by."""
    return -(-words // 64) * 64
