"""What it means to learn something: from a record to examples, from examples to a batch, from a batch to losses.

encode   a record becomes examples: numbers that are made once, and kept on disk
noise    what changes every time an example is seen (masking …): drawn from the example's own generator
collate  several examples become a batch of tensors
losses   a mean for each term; the loop adds them up, over micro-batches and devices, by what each counted
measure, report   sums over held-out batches, and the metrics made of them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.codec import Codec
from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.text import load_tokenizer
from clearhead.train.data.types import Batch, Example, Examples, Record
from clearhead.train.objectives.labels import Labels

if TYPE_CHECKING:
    from clearhead.hub import SentenceModules
    from clearhead.pipeline import Pipeline
    from clearhead.train.data.table import Table


# Rows of this device → those of all devices, in their order, and where this device's begin.
GatherRows = Callable[[Tensor], tuple[Tensor, int]]


class Objective:
    """One way to learn. A subclass says how examples, noise and batches are made, and what is lost.

    name      as recipes write it
    task      the head that the model must have
    unit      what the places of an example are called, in the singular: token, patch, note
    columns   what a record must hold
    blocks    the examples are documents; the data is cut into blocks of `block_length` units across them
    streams   the examples are documents; a batch's rows read on in them from step to step (train/data/streams.py)
    keeps_last_block   with blocks: what does not fill the last one is learnt from too
    moves_weights      it learns by `learn`, without gradients: the loop calls that in place of `losses`
    jitter    with streams: whether what is read at once differs in length from step to step
    codec_kinds       what can be trained on the text as its codec (`tokenizer.kind` in a recipe)
    length_column     the column whose length an example has, for batches of like lengths; None: its longest
    static_shapes     all batches have one shape, but for the last of an epoch, and the module is called once for each
    compares_rows     rows of a part of a batch are compared with each other: in other parts, another task
    counts_flops      its arithmetic is known from the units that are read (MFU)
    higher_is_better  the metrics of `report` and `evaluate_test` of which more is better; of all others less is
    test_requires     packages that `evaluate_test` needs, where there is one
    labels            the names of classes, where it has any
    not_saved         what is trained beside the model and not saved with it, without which nothing can be measured
    training_data     the training examples, for one that looks for more in them; the run sets it
    watch             hears how many of the records `evaluate_test` has done, of how many
    """

    name: ClassVar[str]
    task: ClassVar[str]
    unit: ClassVar[str] = "unit"
    columns: ClassVar[tuple[str, ...]] = ("text",)
    blocks: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    keeps_last_block: ClassVar[bool] = False
    moves_weights: ClassVar[bool] = False
    jitter: bool = False
    codec_kinds: ClassVar[tuple[str, ...]] = ()
    length_column: ClassVar[str | None] = None
    static_shapes: ClassVar[bool] = False
    compares_rows: ClassVar[bool] = False
    counts_flops: ClassVar[bool] = True
    higher_is_better: ClassVar[frozenset[str]] = frozenset()
    test_requires: ClassVar[tuple[str, ...]] = ()
    labels: Labels | None = None
    not_saved: ClassVar[str] = ""
    training_data: Examples | None = None
    watch: Callable[[int, int], None] = staticmethod(lambda done, total: None)

    def __init__(self, codec: Codec | None = None, length: int = 0) -> None:
        """
        codec    between what a record holds and numbers: a tokenizer, an image processor …; None: records hold numbers
        length   the longest example, in units
        """
        self.codec = codec
        self.length = length

    @property
    def loss_weights(self) -> dict[str, float]:
        """How much each term counts in the sum that is minimised."""
        return {"loss": 1.0}

    # ---- the codec

    @classmethod
    def train_codec(
        cls, texts: Iterable[str], kind: str, vocab_size: int, *, lowercase: bool | None = None,
        special_tokens: Sequence[str] = (), min_count: int | None = None, show_progress: bool = True,
    ) -> Any:  # fmt: skip
        """One of its `codec_kinds`, made from the training text."""
        raise NotImplementedError

    @classmethod
    def load_codec(cls, folder: Path) -> Any:
        """The codec in a folder: a model's, or one that stands alone."""
        return load_tokenizer(folder)

    @classmethod
    def texts_of(cls, record: Record) -> Iterator[str]:
        """What a codec can learn from: the strings in the columns, and in lists of them."""
        for column in cls.columns:
            value = record.get(column) if column not in ("label", "tags") else None
            if isinstance(value, str):
                yield value
            elif isinstance(value, list):
                yield from (item for item in value if isinstance(item, str))

    # ---- from records to batches

    @property
    def block_length(self) -> int:
        """How many units make an example, where blocks are cut (T5 needs more than it will read)."""
        return self.length

    def identity(self) -> dict[str, Any]:
        """What `encode` depends on: examples on disk are made anew when it changes."""
        return {"objective": self.name, "length": self.length}

    def learn_labels(self, records: Iterator[Record]) -> None:
        """Look once over the training data before anything is encoded, where the labels must be known."""

    @property
    def learned_labels(self) -> Any:
        """What `learn_labels` found, as plain data. A run keeps it, to go on when the data is gone."""
        return None if self.labels is None else self.labels.names

    @learned_labels.setter
    def learned_labels(self, labels: Any) -> None:
        self.labels = None if labels is None else Labels(labels)

    @property
    def learns_labels(self) -> bool:
        return type(self).learn_labels is not Objective.learn_labels

    def check_labels(self, records: Iterator[Record], name: str) -> None:
        """An error that names every label of the records (those of `name`) that the model does not have."""

    def data_notes(self, training: Table) -> list[str]:
        """What a person should know of the training examples before the first step: that there is nothing to learn."""
        return []

    def check_rows(self, rows: int) -> None:
        """An error where a part of a batch has too few rows to learn anything from."""

    def encode(self, record: Record) -> Iterator[Example]:
        """The examples of a record (none, one or several): the part that never changes."""
        raise NotImplementedError

    def encode_batch(self, records: Sequence[Record]) -> Iterable[Iterable[Example]]:
        """The examples of each record; for codecs that are quicker with many at once."""
        return map(self.encode, records)

    def noise(self, example: Example, rng: np.random.Generator) -> Example:
        """What changes from epoch to epoch. The generator depends on the seed, the epoch and the example alone."""
        return example

    @property
    def has_noise(self) -> bool:
        return type(self).noise is not Objective.noise

    def collate(self, examples: Sequence[Example]) -> Batch:
        raise NotImplementedError

    # ---- the model, and what is lost

    def special_ids(self) -> dict[str, int]:
        """Ids that a new model's configuration takes from the codec (eos_token_id …)."""
        return {}

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """The model's configuration with what the objective decides (labels, special tokens)."""
        return config

    def training_module(self, model: Model) -> nn.Module:
        """What is trained: the model, or a module that holds it and a helper (ELECTRA's generator)."""
        return model

    def model_inputs(self, batch: Batch) -> dict[str, Tensor]:
        """What the model is called with: the inputs, or what is made of them on the device."""
        return batch.inputs

    def look_ahead(self, module: nn.Module, batches: Sequence[Batch], gather: GatherRows | None) -> None:
        """Before the losses of a step: what its parts have to know of each other is put into their `extra`.

        gather   None: there is no other device
        """

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The mean of each term over what it counts."""
        return {"loss": model(**self.model_inputs(batch)).loss}

    def learn(self, module: nn.Module, batch: Batch, lr: float, seed: int) -> float:
        """With `moves_weights`: move them by this batch at this rate; the mean loss. All draws come from the seed."""
        raise NotImplementedError

    # ---- what it carries from step to step, where it does

    def state_tensors(self) -> dict[str, Tensor]:
        """What a run needs beside the weights to go on to the same bits; the second axis is the rows of a batch."""
        return {}

    def own_rows(self) -> Tensor | None:
        """(rows,): those of them that this process has read, where several share a batch."""
        return None

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """What `state_tensors` gave."""

    # ---- evaluation

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        """Sums over a batch of held-out data: they are added up over batches and devices, then given to `report`."""
        return term_sums(self.losses(model, batch), batch)

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Metrics for a person to read, from the sums of `measure`. The first is what the best checkpoint is chosen by
        unless a recipe names another."""
        terms = {name: sums[name] / max(sums[f"{name}.count"], 1) for name in self.loss_weights if name in sums}
        total = sum(self.loss_weights[name] * value for name, value in terms.items())
        return {"loss": total} | ({} if list(terms) == ["loss"] else terms)

    @classmethod
    def check_test_options(cls, options: Mapping[str, Any], objective_options: Mapping[str, Any]) -> None:
        """An error where `evaluate_test` cannot do what is asked: raised before the first step, not after the last."""
        if options:
            raise InputError(f"{cls.name} is evaluated in one way only: leave {', '.join(options)} out.")

    def evaluate_test(self, pipe: Any, records: Iterator[Record], **options: Any) -> dict[str, float]:
        """Once, at the end: metrics that need the finished model as a user has it (what it writes, BLEU)."""
        return {}

    # ---- the model as a user has it

    def pipeline(self, model: Model, name: str) -> Pipeline:
        """The model with its codec."""
        raise NotImplementedError

    def sentence(self) -> SentenceModules | None:
        """How the finished model makes one vector of a text, where that is what it learnt."""
        return None

    @classmethod
    def check_sampling(cls, model: Model) -> None:
        """An error for a model that writes nothing."""
        raise InputError(f"{cls.name} trains a model that writes nothing: leave evaluation.sample out.")

    def check_sample(self, pipe: Any, prompt: str) -> None:
        """An error where the model cannot go on from the prompt."""

    def sample(self, pipe: Any, prompt: str, seed: int) -> str:
        """What the model makes of a prompt now, to be looked at by a person."""
        raise NotImplementedError


def term_sums(terms: Mapping[str, Tensor], batch: Batch) -> dict[str, float]:
    """Means of terms as sums that can be added up over batches; 0 where nothing was counted, as in a last block that
    holds one token."""
    sums = {name: float(value) * n if (n := batch.counts[name]) else 0.0 for name, value in terms.items()}
    return sums | {f"{name}.count": float(batch.counts[name]) for name in terms}


def check_weights(**weights: float) -> None:
    """What each term counts in the sum that is minimised."""
    for name, weight in weights.items():
        if not weight >= 0:
            raise InputError(f"{name} is {weight}; what a term counts is 0 or more.")
    if not any(weights.values()):
        raise InputError(f"{' and '.join(weights)} are all 0: there is nothing to learn.")
