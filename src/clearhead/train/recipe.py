"""A recipe: everything that decides a training run, as a short YAML file, read strictly.

Every key is a field of a dataclass below; an unknown one is an error that names the near one. `key=value` on the
command line sets a field (`optimizer.lr=1e-4`), with the value read as YAML, or as it is where the field is a text.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from clearhead.errors import ConfigError, did_you_mean


@dataclass
class DataRecipe:
    """Where the text is. `train`, `valid` and `test`: a path, a list, `hf:name`, or a table (train/data/sources.py)."""

    train: Any = None
    valid: Any = None
    test: Any = None  # looked at once, when the training is over
    held_out: float = 0.0  # without `valid`: this share of `train` is kept back for it
    format: str | None = None  # by default from the file's name: txt, jsonl, csv, tsv, conll, squad, parallel
    documents: str | None = None  # text files: "file", "lines", "blank-lines", or the string that parts documents
    columns: dict[str, Any] = field(default_factory=dict)  # our name: theirs (a name, or a number counted from 0)
    limit: int | None = None  # so many records of the training data and no more
    cache: str | None = None  # where tokenised data is kept; by default inside `out`
    workers: int = 0  # processes that tokenise large data and make batches, where a thread of this one is too slow


@dataclass
class ModelRecipe:
    """Start from a checkpoint (`start`), from a part of one (`student_of`), or from random weights of a `family`."""

    start: str | None = None  # a folder, a shipped name or a hub id
    student_of: str | None = None  # the same, or "teacher", the objective's: its embedding, head, some layers
    layers: int | list[int] | None = None  # how many of them, or which; by default every other one
    family: str | None = None
    preset: str | None = None  # a published size of the family
    config: dict[str, Any] = field(default_factory=dict)  # configuration values, on top of the preset's
    task: str | None = None  # by default what the objective needs
    ignore_options: list[str] = field(default_factory=list)


@dataclass
class TokenizerRecipe:
    """Take one (`start`), or train one on the training text (`kind`). By default the starting model's own."""

    start: str | None = None
    kind: Literal["bpe", "wordpiece", "unigram"] | None = None
    vocab_size: int = 8192
    lowercase: bool | None = None
    special_tokens: list[str] = field(default_factory=list)


@dataclass
class BatchRecipe:
    """How much is read before the weights move."""

    size: int | None = None  # examples
    tokens: int | None = None  # or: as many examples of about one length as make so many tokens, padding included
    bucket: bool = True  # examples of about one length share a batch: less padding. Does nothing to blocks of text
    length: int = 512  # the longest example, in tokens
    accumulate: int = 1  # in so many parts, one after the other, where memory is short


@dataclass
class OptimizerRecipe:
    name: Literal["adamw", "muon"] = "adamw"
    lr: float = 3e-4
    weight_decay: float = 0.01
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    max_grad_norm: float | None = 1.0  # gradient clipping: the largest norm over all parameters
    matrix_lr: float | None = None  # muon: the rate of the matrices; by default `lr`
    momentum: float = 0.95  # muon
    layer_decay: float = 1.0  # each layer below learns by so much less (ULMFiT: 1/2.6)
    freeze: str | None = None  # embeddings, encoder, all-but-head
    unfreeze_every: int | None = None  # steps after which one more layer learns, from the top (ULMFiT)


@dataclass
class ScheduleRecipe:
    name: str = "cosine"
    warmup: float = 0.0  # steps; below 1: a share of all steps
    final: float = 0.0  # where the rate ends, as a share of its peak
    options: dict[str, Any] = field(default_factory=dict)  # what a schedule takes beside (train/engine/schedules.py)


@dataclass
class EvaluationRecipe:
    every: int | None = None  # steps; by default once an epoch, or ten times in all
    batch_size: int | None = None  # by default the training batch's
    metric: str | None = None  # what the best checkpoint is chosen by; by default the objective's first
    patience: int | None = None  # stop after so many evaluations without a better one
    batches: int | None = None  # look at no more than these; by default all of the data
    sample: str | None = None  # a text that the model continues at each evaluation, to be read
    test_options: dict[str, Any] = field(default_factory=dict)  # how test data is evaluated on (num_beams …)


@dataclass
class CheckpointRecipe:
    every: int | None = None  # steps between two checkpoints
    minutes: float | None = None  # or time; without both as often as is cheap, every one to ten minutes
    keep: int = 2  # so many of the newest; the best weights so far are in each


@dataclass
class LoraRecipe:
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: list[str] | None = None  # patterns of module names; by default queries and values


@dataclass
class Recipe:
    objective: dict[str, Any] = field(default_factory=dict)  # a name, or a table with `name` and its options
    out: str = ""  # the folder of the run
    data: DataRecipe = field(default_factory=DataRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    tokenizer: TokenizerRecipe = field(default_factory=TokenizerRecipe)
    batch: BatchRecipe = field(default_factory=BatchRecipe)
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    evaluation: EvaluationRecipe = field(default_factory=EvaluationRecipe)
    checkpoint: CheckpointRecipe = field(default_factory=CheckpointRecipe)
    lora: LoraRecipe | None = None
    steps: int | None = None
    epochs: float | None = None
    seed: int = 1
    device: str | None = None  # by default a GPU where there is one
    precision: Literal["fp32", "bf16"] | None = None  # by default bf16 on a GPU, fp32 elsewhere
    compile: bool = False
    checkpoint_activations: bool = False  # less memory, a third more arithmetic
    chunk: int | None = None  # positions per stretch of the vocabulary loss; 0: all at once. By default by memory.
    ema: float | None = None  # decay of the moving average that is evaluated and saved in place of the weights
    deterministic: bool = False  # the same bits again on a GPU too, slower; a CPU always gives them
    distribute: Literal["ddp", "fsdp"] = "ddp"  # under torchrun
    log_every: int = 10

    # What may change between the beginning of a run and its continuation: what is kept and told, and how much memory
    # a step takes (which changes the rounding of its sums, and no more).
    FREE = (
        "out", "checkpoint", "log_every", "data.cache", "data.workers", "evaluation.sample", "evaluation.test_options",
        "distribute", "batch.accumulate", "chunk", "checkpoint_activations", "device",
        "data.train", "data.valid", "data.test",  # their content is compared, wherever it lies now
    )  # fmt: skip

    def differences(self, other: Recipe, compares_rows: bool = False) -> list[str]:
        """Keys in which two recipes would train differently, as `key: this, not that`.

        compares_rows   within a part of a batch, so that the parts matter (Objective.compares_rows)
        """
        mine, theirs = _flat(asdict(self)), _flat(asdict(other))
        free = tuple(f"{key}." for key in self.FREE if not (compares_rows and key == "batch.accumulate"))
        changed = [key for key in mine | theirs if mine.get(key) != theirs.get(key)]
        return [
            f"{key}: {mine.get(key)!r}, not {theirs.get(key)!r}" for key in changed if not f"{key}.".startswith(free)
        ]


def read_recipe(source: str | Path | Mapping[str, Any], overrides: Iterable[str] = ()) -> Recipe:
    """A recipe from a file or a table, with `key=value` settings on top."""
    if isinstance(source, Mapping):
        said, name = source, "the recipe"
    else:
        name = str(source)
        said = _parse(_text_of(Path(source)), name) or {}
    if not isinstance(said, Mapping):
        raise ConfigError(f"{name} must hold keys and values, not {type(said).__name__}.")
    try:
        said = _plain(said, name)
    except RecursionError:
        raise ConfigError(f"{name}: a value contains itself, by way of an anchor (&name, *name).") from None
    settings = list(overrides)
    for setting in settings:
        _override(said, setting)
    try:
        recipe: Recipe = _build(Recipe, said, "", name)
        _check(recipe, name)
    except ConfigError as error:  # what was set on top is not the file's fault
        words = str(error).removeprefix(f"{name}: ")
        keys = {setting.partition("=")[0].strip(): setting for setting in settings}
        guilty = next((setting for key, setting in keys.items() if words.startswith((f"{key} ", f"{key}."))), None)
        raise ConfigError(f"{guilty}: {words}" if guilty else str(error)) from None
    return recipe


def write_recipe(recipe: Recipe) -> str:
    """YAML that `read_recipe` gives back."""
    import yaml  # type: ignore[import-untyped, unused-ignore]

    said = asdict(recipe)
    text: str = yaml.safe_dump(said, sort_keys=False, allow_unicode=True)
    if yaml.safe_load(text) != said:  # a few rare characters do not come through as they are
        text = yaml.safe_dump(said, sort_keys=False)
    return text


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no recipe {str(path)!r}. Shipped ones: clearhead train --list.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The recipe {path} cannot be read: {error}.") from None


def _parse(text: str, name: str) -> Any:
    import yaml

    class Strict(yaml.SafeLoader):
        """YAML in which a key stands once: of two, one would be ignored in silence."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for key, _ in self._own(node):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} stands twice", key.start_mark
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep)

        @staticmethod
        def _own(node: Any) -> list[Any]:
            """The keys that are written here; the values of an anchor (<<) come in front of them."""
            plain = [pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode)]
            return [pair for pair in plain if node.start_mark.index <= pair[0].start_mark.index < node.end_mark.index]

    try:
        return yaml.load(text, Strict)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{name} is not valid YAML{where}: {getattr(error, 'problem', None) or error}.") from None
    except ValueError as error:  # a date such as the 99th of May
        raise ConfigError(f"{name} holds a value that cannot be read: {error}.") from None


def _plain(value: Any, where: str) -> Any:
    """A copy of its own, of what YAML can hold: nothing that an anchor or the caller shares is written to."""
    if isinstance(value, Mapping):
        return {_key(key): _plain(inner, f"{where}: {key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{where} is {value!r}: no name and no path holds a NUL.")
    if isinstance(value, str) and not value.isascii() and value != value.encode(errors="replace").decode():
        raise ConfigError(f"{where} is {value!r}: it holds bytes that are no UTF-8.")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ConfigError(f"{where} is {value!r} ({type(value).__name__}); a recipe holds text, numbers, lists and tables.")


def _key(key: Any) -> Any:
    """YAML 1.1 reads the words yes and no as true and false."""
    return ("yes" if key else "no") if isinstance(key, bool) else key


def _override(said: dict[str, Any], setting: str) -> None:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{setting!r} is no setting. Write key=value, for instance optimizer.lr=1e-4.")
    *path, last = key.strip().split(".")
    kind = _type_at([*path, last], setting)
    table = said
    for part in path:
        inner = table.get(part)
        if inner is None:
            inner = table[part] = {}
        elif isinstance(inner, str) and part == "objective":
            inner = table[part] = {"name": inner}
        elif not isinstance(inner, dict):
            raise ConfigError(f"{setting!r}: {part} is {inner!r} in the recipe, and has no keys of its own.")
        table = inner
    is_text = kind in (str, str | None) and value not in ("", "null", "~")
    is_text = is_text or value.startswith("*")  # a pattern of files; to YAML it would be an alias
    table[last] = value if is_text else _plain(_parse(value, setting), setting)


def _type_at(path: list[str], setting: str) -> Any:
    """The type of the field that a path leads to; None where it leads into a free table."""
    kind: Any = Recipe
    for n, part in enumerate(path):
        table = next((option for option in (kind, *get_args(kind)) if is_dataclass(option)), None)
        if table is not None and part not in get_type_hints(table):
            raise _unknown(setting, ".".join(path[: n + 1]), get_type_hints(table))
        kind = get_type_hints(table)[part] if table is not None else None
    return kind


def _unknown(name: str, key: str, known: Iterable[str]) -> ConfigError:
    near = did_you_mean(key.rpartition(".")[2], known)
    return ConfigError(f"{name}: unknown key {key!r}.{near} There is: {', '.join(sorted(known))}.")


def _build(kind: Any, said: Mapping[str, Any], path: str, name: str) -> Any:
    known = {f.name for f in fields(kind)}
    types_of = get_type_hints(kind)
    for key in said:
        if key not in known:
            raise _unknown(name, path + str(key), known)
    return kind(**{key: typed(types_of[key], value, path + key, name) for key, value in said.items()})


def typed(kind: Any, value: Any, path: str, name: str) -> Any:
    """The value, if it is of the field's type; whole numbers pass for fractions, and 1e-4 for a number."""
    if path == "objective" and isinstance(value, str):
        return {"name": value}
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if kind is Any or (value is None and type(None) in options):
        return value
    for option in options:
        origin = get_origin(option) or option
        if is_dataclass(option) and isinstance(value, Mapping):
            return _build(option, value, f"{path}.", name)
        if origin is Literal and isinstance(value, str) and value in get_args(option):
            return value
        if origin in (int, float) and (number := _number(value)) is not None and number == origin(number):
            return origin(number)
        if origin is list and isinstance(value, list):
            return [typed(get_args(option)[0], item, f"{path}[{n}]", name) for n, item in enumerate(value)]
        if origin in (str, bool, dict) and type(value) is origin:
            return value
        if origin is Sequence and isinstance(value, list) and all(isinstance(item, str | int) for item in value):
            return [str(item) for item in value]  # names, which may be numbers
        if origin is Mapping and isinstance(value, dict):
            return {key: typed(get_args(option)[1], item, f"{path}.{key}", name) for key, item in value.items()}
    if value is None and is_dataclass(kind):
        return _build(kind, {}, path, name)
    expected = " or ".join(_word(option) for option in options if option is not type(None))
    choices = [c for option in options if get_origin(option) is Literal for c in get_args(option)]
    raise ConfigError(f"{name}: {path} is {value!r}; it must be {expected}.{did_you_mean(str(value), choices)}")


def _number(value: Any) -> int | float | None:
    """A finite number, also one that YAML takes for a text (1e-4 has no point); None for anything else."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
    return value if good else None


def _word(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    if is_dataclass(kind):
        return "a table"
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    words |= {list: "a list", Sequence: "a list of names"}
    return words.get(get_origin(kind) or kind, "a table")


def _check(recipe: Recipe, name: str) -> None:
    """What the types cannot say, and what can be known without a file."""

    def must(good: bool, message: str) -> None:
        if not good:
            raise ConfigError(f"{name}: {message}")

    data, model, tokenizer, batch = recipe.data, recipe.model, recipe.tokenizer, recipe.batch
    optimizer, evaluation = recipe.optimizer, recipe.evaluation
    must(isinstance(recipe.objective.get("name"), str), "objective is missing. Say what to learn: causal-lm, …")
    must(data.train is not None, "data.train is missing. Say where the text is: data.train=path.")
    must(bool(recipe.out), "out is missing. Say which folder the run goes to: out=runs/mine.")
    must(sum(map(bool, (model.start, model.student_of, model.family))) == 1, "give one of model.start (a checkpoint "
         "to go on from), model.student_of (a part of one) and model.family (random weights).")  # fmt: skip
    origin = "model.start" if model.start else "model.student_of"
    must(bool(model.family) or not model.preset, f"model.preset is a size to begin with; {origin} has one already.")
    must(not (model.student_of and model.config), "a student has the configuration of the model that it is a part of: "
         "leave model.config out. How many layers it has is said by model.layers.")  # fmt: skip
    must(bool(model.student_of) or model.layers is None, "model.layers are those of a student (model.student_of); "
         "else write model.config.num_hidden_layers.")  # fmt: skip
    must(model.student_of != "teacher" or isinstance(recipe.objective.get("teacher"), str), "model.student_of is the "
         "objective's teacher, and the objective names none: set objective.teacher, or model.student_of to a "
         "checkpoint.")  # fmt: skip
    must(not (tokenizer.start and tokenizer.kind), "give either tokenizer.start (to take one) or tokenizer.kind (to "
         "train one).")  # fmt: skip
    must(bool(model.family) or not tokenizer.kind, f"{origin} has learnt the words of its own tokenizer; a new one "
         "(tokenizer.kind) would number other words.")  # fmt: skip
    must(not model.family or bool(tokenizer.start or tokenizer.kind), "the model begins with random weights, and there "
         "is no tokenizer: set tokenizer.kind=bpe (wordpiece, unigram), or tokenizer.start to take one.")  # fmt: skip
    for key in ("vocab_size", "lowercase", "special_tokens"):
        unused = not tokenizer.kind and getattr(tokenizer, key) != getattr(TokenizerRecipe(), key)
        must(not unused, f"tokenizer.{key} is for a tokenizer that is trained (tokenizer.kind); this one is taken as "
             "it is: leave it out.")  # fmt: skip
    muons = optimizer.matrix_lr is not None or optimizer.momentum != OptimizerRecipe().momentum
    must(optimizer.name == "muon" or not muons, "optimizer.matrix_lr and optimizer.momentum are Muon's: leave them "
         "out, or set optimizer.name=muon.")  # fmt: skip
    must((recipe.steps is None) != (recipe.epochs is None), "give either steps or epochs, and take back the one that "
         "the recipe sets: epochs=null.")  # fmt: skip
    must((batch.size is None) != (batch.tokens is None), "give either batch.size or batch.tokens, and take back the "
         "one that the recipe sets: batch.size=null.")  # fmt: skip
    must(data.valid is None or not data.held_out, "give either data.valid or data.held_out.")
    if data.valid is None and not data.held_out:
        for key in ("metric", "patience", "sample", "every", "batches"):
            must(getattr(evaluation, key) is None, f"evaluation.{key} needs held-out data: set data.valid, or "
                 "data.held_out=0.05.")  # fmt: skip
    at_least_one = {
        "steps": recipe.steps, "batch.size": batch.size, "batch.tokens": batch.tokens, "batch.length": batch.length,
        "batch.accumulate": batch.accumulate, "log_every": recipe.log_every, "evaluation.every": evaluation.every,
        "evaluation.batch_size": evaluation.batch_size, "evaluation.patience": evaluation.patience,
        "evaluation.batches": evaluation.batches, "checkpoint.every": recipe.checkpoint.every,
        "checkpoint.keep": recipe.checkpoint.keep, "data.limit": data.limit,
        "tokenizer.vocab_size": tokenizer.vocab_size, "optimizer.unfreeze_every": optimizer.unfreeze_every,
    }  # fmt: skip
    for key, number in at_least_one.items():
        must(number is None or number >= 1, f"{key} is {number}; it must be at least 1.")
    above_zero = {
        "epochs": recipe.epochs, "optimizer.lr": optimizer.lr, "optimizer.max_grad_norm": optimizer.max_grad_norm,
        "optimizer.matrix_lr": optimizer.matrix_lr, "optimizer.eps": optimizer.eps,
        "checkpoint.minutes": recipe.checkpoint.minutes,
    }  # fmt: skip
    for key, share in above_zero.items():
        must(share is None or share > 0, f"{key} is {share}; it must be above 0.")
    not_below_zero = {
        "optimizer.weight_decay": optimizer.weight_decay, "schedule.warmup": recipe.schedule.warmup,
        "schedule.final": recipe.schedule.final, "chunk": recipe.chunk, "seed": recipe.seed,
        "data.workers": data.workers,
    }  # fmt: skip
    for key, least in not_below_zero.items():
        must(least is None or least >= 0, f"{key} is {least}; it must be 0 or more.")
    at_most = {
        "epochs": (recipe.epochs, 10_000), "tokenizer.vocab_size": (tokenizer.vocab_size, 10_000_000),
        "data.workers": (data.workers, 256), "schedule.final": (recipe.schedule.final, 1),
        "optimizer.eps": (optimizer.eps, 1),
    }  # fmt: skip
    for key, (given, most) in at_most.items():
        must(given is None or given <= most, f"{key} is {given}; it must be {most:,} at most.")
    must(0 <= data.held_out < 1, f"data.held_out is {data.held_out}; it is a share, from 0 to below 1.")
    must(recipe.ema is None or 0 < recipe.ema < 1, f"ema is {recipe.ema}; it must lie between 0 and 1.")
    must(0 < optimizer.layer_decay <= 1, f"optimizer.layer_decay is {optimizer.layer_decay}; it is a share, up to 1.")
    must(0 <= optimizer.momentum < 1, f"optimizer.momentum is {optimizer.momentum}; it is a share, from 0 to below 1.")
    must(len(optimizer.betas) == 2 and all(0 <= beta < 1 for beta in optimizer.betas),
         f"optimizer.betas are two shares from 0 to below 1, such as [0.9, 0.95], not {optimizer.betas}.")  # fmt: skip
    size, parts = batch.size or batch.tokens or 1, batch.accumulate
    must(parts <= size, f"batch.accumulate is {parts}: a batch of {size} cannot be cut in so many.")
    if recipe.lora is not None:
        lora = recipe.lora
        must(lora.rank >= 1 and lora.alpha > 0 and 0 <= lora.dropout < 1, f"lora takes rank >= 1, alpha > 0 and "
             f"0 <= dropout < 1, not {lora.rank}, {lora.alpha} and {lora.dropout}.")  # fmt: skip
        must(optimizer.freeze is None, "lora freezes all that it does not adapt: leave optimizer.freeze out.")


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in table.items():
        out |= _flat(value, f"{path}{key}.") if isinstance(value, Mapping) and value else {path + key: value}
    return out
