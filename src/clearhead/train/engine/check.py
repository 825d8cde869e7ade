"""What can be wrong with a run, looked for before anything is written: names, sizes, files, columns."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clearhead import hub, models
from clearhead.errors import ConfigError, InputError
from clearhead.generate.session import check_can_generate
from clearhead.models import Config, Family, Model
from clearhead.nn import Stack
from clearhead.text import Tokenizer
from clearhead.train.data import Source
from clearhead.train.data.sources import FileSource, ParallelSource
from clearhead.train.engine import lora
from clearhead.train.engine.optim import optimizer
from clearhead.train.engine.schedules import schedule
from clearhead.train.engine.unfreezing import freeze
from clearhead.train.objectives import Objective, objective_class, options_of
from clearhead.train.objectives.base import check_columns
from clearhead.train.objectives.distillation import student_of
from clearhead.train.recipe import ModelRecipe, Recipe

ENDLESS = 10**9  # steps, where their number is not known yet


def check_run(
    recipe: Recipe,
    sources: Mapping[str, Source],
    start: Path | None,
    tokenizer: Tokenizer | None,
    source_tokenizer: Tokenizer | None = None,
) -> type[Objective]:
    """The objective's class, if nothing is wrong.

    start       the folder of the checkpoint to go on from, or that the student is a part of
    tokenizer   None: it is still to be trained
    source_tokenizer   of the recipe, for a source with a vocabulary of its own
    """
    kind = objective_class(recipe.objective["name"])
    asked, missing = recipe.schedule, [name for name in kind.examined_with if importlib.util.find_spec(name) is None]
    if missing and "test" in sources:
        raise InputError(f"{kind.name} examines the test data with {missing[0]}: pip install clearhead[train]")
    try:
        kind.check_examination(recipe.evaluation.options, recipe.objective)
    except InputError as error:
        raise ConfigError(f"evaluation.options: {error}") from None
    if recipe.evaluation.options and "test" not in sources:
        raise ConfigError("evaluation.options are for examining the test data, and there is none: set data.test.")
    if source_tokenizer is None and tokenizer is not None and tokenizer.separate_vocabs:
        source_tokenizer = tokenizer
    if source_tokenizer is not None and "source_tokenizer" not in options_of(kind):
        raise ConfigError(
            f"The model has a tokenizer for each of two languages, and {kind.name} knows of one. Choose seq2seq."
        )
    words = recipe.tokenizer.vocab_size if tokenizer is None else len(tokenizer.target)
    model = _shape(recipe, kind, start, words)
    rows = model.token_tables()[-1].num_embeddings  # of an encoder–decoder: the source's
    if source_tokenizer is not None and len(source_tokenizer) > rows:
        raise ConfigError(
            f"The tokenizer of the source has {len(source_tokenizer):,} tokens, the model rows for {rows:,}. They must "
            "belong together: set model.config.source_vocab_size, or choose the model's own tokenizer."
        )
    options = {"width": model.config.hidden_size} if asked.name == "noam" else {}
    schedule(asked.name, recipe.steps or ENDLESS, asked.warmup, asked.final, **options | asked.options)
    if recipe.evaluation.sample is not None:
        check_can_generate(model)
    if recipe.lora is not None:
        lora.add_lora(model, recipe.lora.rank, targets=recipe.lora.targets or lora.QUERY_VALUE)
    if recipe.optimizer.freeze is not None:
        freeze(model, recipe.optimizer.freeze)
    optimizer(model, recipe.optimizer.name, lr=recipe.optimizer.lr)
    for source in sources.values():
        check_columns(kind, next(iter(source.records())))
    return kind


def _shape(recipe: Recipe, kind: type[Objective], start: Path | None, words: int) -> Model:
    """The model without its weights; its tables must be large enough."""
    asked = recipe.model
    if start is not None:
        family, config, _ = hub.read_config(start, asked.ignore_options, lambda raw: raw | asked.config)
    else:
        family, config = new_config(asked, words)
    if words > config.vocab_size:
        raise ConfigError(
            f"The tokenizer has {words:,} tokens, the model rows for {config.vocab_size:,} (vocab_size). They must "
            "belong together: leave model.config.vocab_size out, or choose the model's own tokenizer."
        )
    model = family.make(config, asked.task or kind.task, "meta")
    if asked.student_of:
        model = student_of(model, asked.layers)
    rooms = [stack.embed.max_length for stack in model.modules() if isinstance(stack, Stack)]
    room = min((room for room in rooms if room is not None), default=None)
    if room is not None and recipe.batch.length > room:
        raise ConfigError(
            f"batch.length is {recipe.batch.length}, but the model has {room} positions. Lower it"
            + (f", or raise model.config.{config._key('max_position_embeddings')}." if start is None else ".")
        )
    return model


def new_config(
    asked: ModelRecipe,
    words: int,
    special: Mapping[str, int] | None = None,
    configure: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> tuple[Family, Config]:
    """What a model that begins with random weights is made of: the preset, and what the recipe changes in it.

    words       the vocabulary's size; the table has a few rows more, for round sizes are quicker to multiply by
    special     the ids of special tokens
    configure   what the objective decides
    """
    assert asked.family is not None
    family = models.family(asked.family)
    sizes: dict[str, Any] = {"vocab_size": -(-words // 64) * 64}
    if asked.preset is not None:
        family.preset(asked.preset)  # an error where there is none
        sizes = dict(family.presets[asked.preset]) | sizes
    said = {family.config._key(name): value for name, value in (sizes | asked.config).items()}  # by either name
    raw = family.config.from_dict(said, asked.ignore_options).to_dict() | dict(special or {})
    return family, family.config.from_dict(configure(raw) if configure is not None else raw, asked.ignore_options)


def shared_files(sources: Mapping[str, Source]) -> list[str]:
    """Sentences to be read: data that is learnt from and measured on."""
    files = {part: _files(source) for part, source in sources.items() if source.spec.part is None}
    return [
        f"The {part} data and the training data share {path}: what is measured on it has been learnt by heart."
        for part in files
        if part != "train"
        for path in sorted(files[part] & files.get("train", set()))
    ]


def _files(source: Source) -> set[Path]:
    if isinstance(source, FileSource):
        return {path.resolve() for path in source.files}
    if isinstance(source, ParallelSource):
        return {path.resolve() for pair in source.pairs for path in pair}
    return set()
