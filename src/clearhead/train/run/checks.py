"""What can be wrong with a run, looked for before anything is written: names, sizes, files, columns."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from clearhead.errors import ConfigError, InputError
from clearhead.models import Model
from clearhead.text import Tokenizer
from clearhead.train.data import Source
from clearhead.train.data.sources import FileSource, ParallelSource
from clearhead.train.data.types import check_columns
from clearhead.train.engine import lora
from clearhead.train.engine.freezing import freeze
from clearhead.train.engine.optim import optimizer
from clearhead.train.engine.schedules import schedule
from clearhead.train.objectives import Objective, objective_class, options_of
from clearhead.train.recipe import Recipe
from clearhead.train.run.embeddings import check_embeddings
from clearhead.train.run.inputs import RunInputs
from clearhead.train.run.kept_sources import GoneSource
from clearhead.train.run.model import model_shape
from clearhead.train.run.tokenizer import word_list

ENDLESS = 10**9  # steps, where their number is not known yet


def check_run(recipe: Recipe, kind: type[Objective], inputs: RunInputs) -> None:
    """An error, if anything is wrong."""
    check_test(recipe, kind, "test" in inputs.sources)
    if kind.moves_weights:
        _check_direct(recipe, kind)
    vocab_size = recipe.tokenizer.vocab_size if inputs.tokenizer is None else len(inputs.tokenizer.target)
    if recipe.tokenizer.add_words and inputs.tokenizer is not None:
        word_list(inputs.tokenizer)
    model = model_shape(recipe.model, kind, inputs.start, vocab_size)
    _check_sizes(recipe, model, vocab_size, is_new=inputs.start is None)
    source_tokenizer = inputs.source_tokenizer
    if source_tokenizer is None and getattr(inputs.tokenizer, "separate_vocabs", False):
        source_tokenizer = inputs.tokenizer
    _check_source_tokenizer(kind, model, source_tokenizer)
    if inputs.embeddings is not None:
        check_embeddings(model, inputs.embeddings, inputs.tokenizer)
    chosen = recipe.schedule
    options = {"width": model.config.hidden_size} if chosen.name == "noam" else {}
    schedule(chosen.name, recipe.steps or ENDLESS, chosen.warmup, recipe.final_lr, **options | chosen.options)
    if recipe.evaluation.sample is not None:
        kind.check_sampling(model)
    if recipe.lora is not None:
        lora.add_lora(model, recipe.lora.rank, targets=recipe.lora.targets or lora.QUERY_VALUE)
    if recipe.optimizer.freeze is not None:
        freeze(model, recipe.optimizer.freeze)
    optimizer(model, recipe.optimizer.name, lr=recipe.optimizer.lr)
    for source in (source for source in inputs.sources.values() if not isinstance(source, GoneSource)):
        check_columns(kind.columns, next(iter(source.records())))


def _check_direct(recipe: Recipe, kind: type[Objective]) -> None:
    """An objective that moves the weights itself has no use for what works on gradients, or on a GPU."""
    optimizer, plain = recipe.optimizer, Recipe()
    needed = {
        "optimizer.name": (optimizer.name, "sgd"),
        "optimizer.weight_decay": (optimizer.weight_decay, 0),
        "optimizer.max_grad_norm": (optimizer.max_grad_norm, None),
        "batch.gradient_accumulation_steps": (recipe.batch.gradient_accumulation_steps, 1),
        "device": (recipe.device or "cpu", "cpu"),
        "precision": (recipe.precision or "fp32", "fp32"),
    }
    for key in ("layer_decay", "freeze", "unfreeze_every", "unfreeze_epochs"):
        needed[f"optimizer.{key}"] = (getattr(optimizer, key), getattr(plain.optimizer, key))
    for key in ("lora", "ema", "compile", "gradient_checkpointing", "loss_chunk_size"):
        needed[key] = (getattr(recipe, key), getattr(plain, key))
    for key, (value, only) in needed.items():
        if value != only:
            said = "null" if only is None else str(only).lower() if isinstance(only, bool) else only
            raise ConfigError(
                f"{key} is {value!r}, and {kind.name} moves the weights word by word on the CPU, by plain SGD: set "
                f"{key}={said}."
            )
    model = recipe.model
    if model.start or model.student_of or model.embeddings:
        raise ConfigError(f"{kind.name} begins with random vectors: set model.family=word-vectors, and neither "
                          "model.start nor model.embeddings.")  # fmt: skip
    if model.config:
        raise ConfigError(f"{kind.name} says itself how large its table is: leave model.config out. The width of the "
                          "vectors is objective.vector_size.")  # fmt: skip
    if recipe.deterministic and recipe.objective.get("threads") != 1:
        raise ConfigError("Several threads at one table do not come out the same twice: deterministic=true needs "
                          "objective.threads=1.")  # fmt: skip


def check_test(recipe: Recipe, kind: type[Objective], has_test: bool) -> None:
    """What evaluating on test data needs is there, and can do what is asked."""
    missing = [name for name in kind.test_requires if importlib.util.find_spec(name) is None]
    if missing and has_test:
        raise InputError(f"{kind.name} evaluates on test data with {missing[0]}: pip install clearhead[train]")
    try:
        kind.check_test_options(recipe.evaluation.test_options, recipe.objective)
    except InputError as error:
        raise ConfigError(f"evaluation.test_options: {error}") from None
    if recipe.evaluation.test_options and not has_test:
        raise ConfigError("evaluation.test_options are for evaluating on test data, and there is none: set data.test.")


def _check_sizes(recipe: Recipe, model: Model, vocab_size: int, is_new: bool) -> None:
    """The model's tables must be large enough."""
    config = model.config
    if vocab_size > config.vocab_size:
        raise ConfigError(
            f"The tokenizer has {vocab_size:,} tokens, the model rows for {config.vocab_size:,} (vocab_size). They "
            "must belong together: leave model.config.vocab_size out, or choose the model's own tokenizer."
        )
    lengths = [stack.embed.max_length for stack in model.stacks.values()]
    max_length = min((length for length in lengths if length is not None), default=None)
    if max_length is not None and recipe.batch.length > max_length:
        raise ConfigError(
            f"batch.length is {recipe.batch.length}, but the model has {max_length} positions. Lower it"
            + (f", or raise model.config.{config._key('max_position_embeddings')}." if is_new else ".")
        )


def _check_source_tokenizer(kind: type[Objective], model: Model, tokenizer: Tokenizer | None) -> None:
    if tokenizer is None:
        return
    if "source_tokenizer" not in options_of(kind):
        raise ConfigError(
            f"The model has a tokenizer for each of two languages, and {kind.name} knows of one. Choose seq2seq."
        )
    rows = model.token_tables()[-1].num_embeddings  # of an encoder–decoder: the source's
    if len(tokenizer) > rows:
        raise ConfigError(
            f"The tokenizer of the source has {len(tokenizer):,} tokens, the model rows for {rows:,}. They must "
            "belong together: set model.config.source_vocab_size, or choose the model's own tokenizer."
        )


def check_distribution(recipe: Recipe) -> None:
    if objective_class(recipe.objective["name"]).moves_weights:
        raise ConfigError(
            f"{recipe.objective['name']} is learnt by one process, in several threads (objective.threads): leave "
            "torchrun out."
        )
    if recipe.distribute == "fsdp" and (recipe.optimizer.unfreeze_every or recipe.optimizer.unfreeze_epochs):
        raise ConfigError(
            "Gradual unfreezing changes which weights learn while the run goes on, and FSDP settles that at "
            "the beginning. Set distribute: ddp."
        )


def shared_files(sources: Mapping[str, Source]) -> list[str]:
    """Sentences to be read: data that is learnt from and measured on."""
    files = {part: _files(source) for part, source in sources.items() if source.options.part is None}
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
