"""A recipe: everything that decides a training run. Every key is a field of a dataclass below, with what it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from clearhead.errors import ConfigError
from clearhead.schema import Field

Count = Annotated[int, Field(least=1)]
MaybeCount = Annotated[int | None, Field(least=1)]
Positive = Annotated[float, Field(above=0)]
MaybePositive = Annotated[float | None, Field(above=0)]
Fraction = Annotated[float, Field(least=0, below=1)]
BETAS = Field(
    least=0, below=1, test=lambda betas: len(betas) == 2,
    expected="two numbers from 0 to below 1, such as [0.9, 0.95]",
)  # fmt: skip


@dataclass
class DataRecipe:
    """Where the text is. `train`, `valid` and `test`: a path, a list, `hf:name`, or a table (train/data/sources.py)."""

    train: Any = None
    valid: Any = None
    test: Any = None  # looked at once, when the training is over
    validation_fraction: Fraction = 0.0  # without `valid`: this fraction of `train` is kept back for it
    format: str | None = None  # by default from the file's name: txt, jsonl, csv, tsv, conll, squad, parallel
    documents: str | None = None  # text files: "file", "lines", "blank-lines", or the string that parts documents
    columns: dict[str, Any] = field(default_factory=dict)  # our name: theirs (a name, or a number counted from 0)
    limit: MaybeCount = None  # so many records of the training data and no more
    cache: str | None = None  # where tokenised data is kept; by default inside `out`
    # processes that tokenise large data and make batches, where a thread of this one is too slow
    workers: Annotated[int, Field(least=0, most=256)] = 0


@dataclass
class ModelRecipe:
    """Start from a checkpoint (`start`), from a part of one (`student_of`), from a GPT-2 that gets what a RETRO has
    beside (`retrofit`), or from random weights of a `family`."""

    start: str | None = None  # a folder, a shipped name or a hub id
    student_of: str | None = None  # the same, or "teacher", the objective's: its embedding, head, some layers
    layers: int | list[int] | None = None  # how many of them, or which; by default every other one
    retrofit: str | None = None  # only the new parts learn; `config` is theirs
    family: str | None = None
    preset: str | None = None  # a published size of the family
    config: dict[str, Any] = field(default_factory=dict)  # configuration values, on top of the preset's
    embeddings: str | None = None  # word vectors that its tokens begin with: a shipped name, a file, a folder
    task: str | None = None  # by default what the objective needs
    ignore_options: list[str] = field(default_factory=list)


@dataclass
class TokenizerRecipe:
    """Take one (`start`), or train one on the training text (`kind`). By default the starting model's own.

    add_words   of a starting model that reads whole words (awd-lstm): so many frequent words of the training text that
                it lacks get a place in its vocabulary
    """

    start: str | None = None
    kind: Literal["bpe", "wordpiece", "unigram", "words"] | None = None
    add_words: MaybeCount = None
    vocab_size: Annotated[int, Field(least=1, most=10_000_000)] = 8192
    lowercase: bool | None = None
    min_count: MaybeCount = None  # a word (of bpe: a merge) must come so often; by default 2, for word vectors 5
    special_tokens: list[str] = field(default_factory=list)


@dataclass
class BatchRecipe:
    """How much is read before the weights move."""

    size: MaybeCount = None  # examples
    tokens: MaybeCount = None  # or: as many examples of about one length as make so many tokens, padding included
    bucket: bool = True  # examples of about one length share a batch: less padding. Does nothing to blocks of text
    length: Count = 512  # the longest example, in tokens
    gradient_accumulation_steps: Count = 1  # in so many parts, one after the other, where memory is short


@dataclass
class OptimizerRecipe:
    name: Literal["adamw", "muon", "sgd", "nt-asgd"] = "adamw"
    lr: Positive = 3e-4
    weight_decay: Annotated[float, Field(least=0)] = 0.01
    betas: Annotated[list[float], BETAS] = field(default_factory=lambda: [0.9, 0.999])
    eps: Annotated[float, Field(above=0, most=1)] = 1e-8
    max_grad_norm: MaybePositive = 1.0  # gradient clipping: the largest norm over all parameters
    matrix_lr: MaybePositive = None  # muon: the rate of the matrices; by default `lr`
    momentum: Fraction = 0.95  # muon
    # each layer below learns by so much less (ULMFiT: 1/2.6)
    layer_decay: Annotated[float, Field(above=0, most=1)] = 1.0
    freeze: str | None = None  # embeddings, encoder, all-but-head, all-but-retrieval
    unfreeze_every: MaybeCount = None  # steps after which one more layer learns, from the top (ULMFiT)
    unfreeze_epochs: MaybePositive = None  # the same in epochs
    # nt-asgd: the weights are averaged once so many evaluations have brought nothing better than before them
    non_monotone: Count = 5


@dataclass
class ScheduleRecipe:
    name: str = "cosine"
    warmup: Annotated[float, Field(least=0)] = 0.0  # steps; below 1: a share of all steps
    final: Annotated[float, Field(least=0, most=1)] = 0.0  # where the rate ends, as a share of its peak
    min_lr: MaybePositive = None  # the same as a rate
    options: dict[str, Any] = field(default_factory=dict)  # what a schedule takes beside (train/engine/schedules.py)


@dataclass
class EvaluationRecipe:
    every: MaybeCount = None  # steps; by default once an epoch, or ten times in all
    batch_size: MaybeCount = None  # by default the training batch's
    metric: str | None = None  # what the best checkpoint is chosen by; by default the objective's first
    patience: MaybeCount = None  # early stopping: stop after so many evaluations without a better one
    batches: MaybeCount = None  # look at no more than these; by default all of the data
    sample: str | None = None  # a text that the model continues at each evaluation, to be read
    test_options: dict[str, Any] = field(default_factory=dict)  # how test data is evaluated on (num_beams …)


@dataclass
class CheckpointRecipe:
    every: MaybeCount = None  # steps between two checkpoints
    minutes: MaybePositive = None  # or time; without both as often as is cheap, every one to ten minutes
    keep: Count = 2  # so many of the newest; the best weights so far are in each


@dataclass
class LoraRecipe:
    rank: Count = 8
    alpha: Positive = 16.0
    dropout: Fraction = 0.0
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
    steps: MaybeCount = None
    epochs: Annotated[float | None, Field(above=0, most=10_000)] = None
    seed: Annotated[int, Field(least=0)] = 1
    device: str | None = None  # by default a GPU where there is one
    precision: Literal["fp32", "bf16"] | None = None  # by default bf16 on a GPU, fp32 elsewhere
    compile: bool = False
    gradient_checkpointing: bool = False  # gradient checkpointing: less memory, a third more arithmetic
    # positions per stretch of the vocabulary loss; 0: all at once. By default by memory.
    loss_chunk_size: Annotated[int | None, Field(least=0)] = None
    # decay of the moving average that is evaluated and saved in place of the weights
    ema: Annotated[float | None, Field(above=0, below=1)] = None
    deterministic: bool = False  # the same bits again on a GPU too, slower; a CPU always gives them
    distribute: Literal["ddp", "fsdp"] = "ddp"  # under torchrun
    log_every: Count = 10

    # What may change between the beginning of a run and its continuation: what is kept and told, and how much memory
    # a step takes (which changes the rounding of its sums, and no more).
    FREE = (
        "out", "checkpoint", "log_every", "data.cache", "data.workers", "evaluation.sample", "evaluation.test_options",
        "evaluation.patience",
        "distribute", "batch.gradient_accumulation_steps", "loss_chunk_size", "gradient_checkpointing", "device",
        "data.train", "data.valid", "data.test",  # their content is compared, wherever it lies now
    )  # fmt: skip

    @property
    def final_lr(self) -> float:
        """Where the learning rate ends, as a share of the highest."""
        return self.schedule.final if self.schedule.min_lr is None else self.schedule.min_lr / self.optimizer.lr

    def extends(self, other: Recipe) -> bool:
        """Whether it is to train longer than another, and says so in the same way."""
        pairs = ((self.steps, other.steps), (self.epochs, other.epochs))
        return any(mine is not None and theirs is not None and mine > theirs for mine, theirs in pairs)

    def differences(self, other: Recipe, compares_rows: bool = False) -> list[str]:
        """Keys in which two recipes would train differently, as `key: this, not that`.

        compares_rows   within a part of a batch, so that the parts matter (Objective.compares_rows)
        """
        mine, theirs = _flat(asdict(self)), _flat(asdict(other))
        bound = {"batch.gradient_accumulation_steps"} if compares_rows else set()
        free = tuple(f"{key}." for key in self.FREE if key not in bound)
        changed = [key for key in mine | theirs if mine.get(key) != theirs.get(key)]
        return [
            f"{key}: {mine.get(key)!r}, not {theirs.get(key)!r}" for key in changed if not f"{key}.".startswith(free)
        ]


def check_recipe(recipe: Recipe, name: str) -> None:
    """What the types cannot say, and what can be known without a file."""

    def must(good: bool, message: str) -> None:
        if not good:
            raise ConfigError(f"{name}: {message}")

    data, model, tokenizer, batch = recipe.data, recipe.model, recipe.tokenizer, recipe.batch
    optimizer, evaluation = recipe.optimizer, recipe.evaluation
    must(isinstance(recipe.objective.get("name"), str), "objective is missing. Say what to learn: causal-lm, …")
    must(data.train is not None, "data.train is missing. Say where the text is: data.train=path.")
    must(bool(recipe.out), "out is missing. Say which folder the run goes to: out=runs/mine.")
    origins = ("start", "student_of", "retrofit")
    must(sum(bool(getattr(model, key)) for key in (*origins, "family")) == 1, "give one of model.start (a checkpoint "
         "to go on from), model.student_of (a part of one), model.retrofit (a GPT-2 that becomes a RETRO) and "
         "model.family (random weights).")  # fmt: skip
    origin = f"model.{next((key for key in origins if getattr(model, key)), 'start')}"
    must(bool(model.family) or not model.preset, f"model.preset is a size to begin with; {origin} has one already.")
    must(not (model.student_of and model.config), "a student has the configuration of the model that it is a part of: "
         "leave model.config out. How many layers it has is said by model.layers.")  # fmt: skip
    must(bool(model.family) or not model.embeddings, f"{origin} has learnt its own vectors for words: model.embeddings "
         "is for random weights (model.family).")  # fmt: skip
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
    must(bool(model.start) or not tokenizer.add_words, "tokenizer.add_words is for the vocabulary of a starting model "
         "(model.start).")  # fmt: skip
    for key in ("vocab_size", "lowercase", "min_count", "special_tokens"):
        unused = not tokenizer.kind and getattr(tokenizer, key) != getattr(TokenizerRecipe(), key)
        must(not unused, f"tokenizer.{key} is for a tokenizer that is trained (tokenizer.kind); this one is taken as "
             "it is: leave it out.")  # fmt: skip
    muons = optimizer.matrix_lr is not None or optimizer.momentum != OptimizerRecipe().momentum
    must(optimizer.name == "muon" or not muons, "optimizer.matrix_lr and optimizer.momentum are Muon's: leave them "
         "out, or set optimizer.name=muon.")  # fmt: skip
    must(optimizer.unfreeze_every is None or optimizer.unfreeze_epochs is None, "give either optimizer.unfreeze_every "
         "(steps) or optimizer.unfreeze_epochs.")  # fmt: skip
    must(recipe.schedule.min_lr is None or not recipe.schedule.final, "give either schedule.min_lr (a rate) or "
         "schedule.final (a share of optimizer.lr).")  # fmt: skip
    must((recipe.schedule.min_lr or 0) <= optimizer.lr, f"schedule.min_lr is {recipe.schedule.min_lr}, where the rate "
         f"ends: it cannot be above optimizer.lr, {optimizer.lr}.")  # fmt: skip
    averages = optimizer.name == "nt-asgd"
    must(averages or optimizer.non_monotone == OptimizerRecipe().non_monotone, "optimizer.non_monotone is NT-ASGD's: "
         "leave it out, or set optimizer.name=nt-asgd.")  # fmt: skip
    must(not averages or recipe.ema is None, "nt-asgd averages the weights itself: leave ema out.")
    must(not averages or data.valid is not None or bool(data.validation_fraction), "nt-asgd begins to average when "
         "held-out data says so: set data.valid, or data.validation_fraction=0.05.")  # fmt: skip
    must((recipe.steps is None) != (recipe.epochs is None), "give either steps or epochs, and take back the one that "
         "the recipe sets: epochs=null.")  # fmt: skip
    must((batch.size is None) != (batch.tokens is None), "give either batch.size or batch.tokens, and take back the "
         "one that the recipe sets: batch.size=null.")  # fmt: skip
    must(data.valid is None or not data.validation_fraction, "give either data.valid or data.validation_fraction.")
    if data.valid is None and not data.validation_fraction:
        for key in ("metric", "patience", "sample", "every", "batches"):
            must(getattr(evaluation, key) is None, f"evaluation.{key} needs held-out data: set data.valid, or "
                 "data.validation_fraction=0.05.")  # fmt: skip
    size, parts = batch.size or batch.tokens or 1, batch.gradient_accumulation_steps
    must(parts <= size, f"batch.gradient_accumulation_steps is {parts}: a batch of {size} cannot be cut in so many.")
    if recipe.lora is not None:
        must(optimizer.freeze is None, "lora freezes all that it does not adapt: leave optimizer.freeze out.")


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in table.items():
        out |= _flat(value, f"{path}{key}.") if isinstance(value, Mapping) and value else {path + key: value}
    return out
