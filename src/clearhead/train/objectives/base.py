"""What it means to learn something: from a record to examples, from examples to a batch, from a batch to losses.

record   a row of the data: {"text": "…", "label": "…"}, with the place it came from
example  numbers made of it once, and kept on disk: {"input_ids": array, "label": 3}
noise    what changes every time the example is seen (masking …): drawn from the example's own generator
batch    several examples, padded, as tensors
losses   a mean for each term; the loop adds them up, over micro-batches and devices, by what each counted
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import InputError, did_you_mean
from clearhead.models import Model
from clearhead.text import Tokenizer
from clearhead.text.builders.templates import BERT

if TYPE_CHECKING:
    from clearhead.hub import Sentence
    from clearhead.pipeline import TextPipeline

Record = Mapping[str, Any]  # a row of the data; a source adds "where", a file and line for messages
Example = dict[str, Any]  # one-dimensional arrays of numbers, or plain numbers: what a table on disk can hold
IGNORED = -100  # a label that is left out of every loss


class Data(Protocol):
    """Examples: a table, or blocks of one."""

    def __len__(self) -> int: ...
    def __getitem__(self, n: int) -> Example: ...


@dataclass
class Batch:
    """
    inputs   what the model is called with
    counts   term -> how many labels its mean is over; the loop weighs micro-batches and devices by it
    tokens   how many tokens were read, padding not counted
    """

    inputs: dict[str, Tensor]
    counts: dict[str, int]
    tokens: int
    extra: dict[str, Any] = field(default_factory=dict)  # what `measure` needs beside

    def to(self, device: torch.device) -> Batch:
        moved = {name: t.to(device, non_blocking=True) for name, t in self.inputs.items()}
        return Batch(moved, self.counts, self.tokens, self.extra)


class Objective:
    """One way to learn. A subclass says how examples, noise and batches are made, and what is lost.

    name      as recipes write it
    task      the head that the model must have
    columns   what a record must hold
    blocks    the examples are documents; the data is cut into blocks of `block_length` tokens across them
    even      all batches have one shape, but for the last of an epoch, and the module is called once for each
    compares  rows of a part of a batch are compared with each other: in other parts, another task
    pool      the training examples, for one that looks for more in them; the run sets it
    named     special tokens that a tokenizer trained for it must have, where its kind brings none: {"pad_token": …}
    examined_with   packages that `examine` needs, where there is one
    """

    name: ClassVar[str]
    task: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = ("text",)
    blocks: ClassVar[bool] = False
    even: ClassVar[bool] = False
    compares: ClassVar[bool] = False
    pool: Data | None = None
    named: ClassVar[Mapping[str, str]] = {}
    examined_with: ClassVar[tuple[str, ...]] = ()

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        self.tokenizer = tokenizer
        self.length = length  # the longest example, in tokens

    @property
    def factors(self) -> dict[str, float]:
        """How much each term counts in the sum that is minimised."""
        return {"loss": 1.0}

    @property
    def block_length(self) -> int:
        """How many tokens of text make an example, where blocks are cut (T5 needs more than it will read)."""
        return self.length

    @classmethod
    def extra_tokens(cls) -> list[str]:
        """Further tokens that a tokenizer trained for it must have (T5's sentinels)."""
        return []

    @classmethod
    def complete(cls, tokenizer: Tokenizer) -> None:
        """Give a tokenizer that was trained for it the special tokens that its kind did not bring."""
        new = {name: token for name, token in cls.named.items() if getattr(tokenizer, name) is None}
        tokenizer.add_special_tokens(new)
        if {"cls_token", "sep_token"} <= new.keys():  # they stand around every text
            BERT.wrap(tokenizer.backend, tokenizer.special_tokens_map, {})
            tokenizer.saved_class = "PreTrainedTokenizerFast"  # the GPT-2 class of `transformers` puts nothing there

    def identity(self) -> dict[str, Any]:
        """What `encode` depends on beside the tokenizer: examples on disk are made anew when it changes."""
        return {"objective": self.name, "length": self.length}

    def learn_labels(self, records: Iterator[Record]) -> None:
        """Look once over the training data before anything is encoded, where the labels must be known."""

    def check_rows(self, rows: int) -> None:
        """An error where a part of a batch has too few rows to learn anything from."""

    def encode(self, record: Record) -> Iterator[Example]:
        """The examples of a record (none, one or several): the part that never changes."""
        raise NotImplementedError

    def noise(self, example: Example, rng: np.random.Generator) -> Example:
        """What changes from epoch to epoch. The generator depends on the seed, the epoch and the example alone."""
        return example

    def collate(self, examples: Sequence[Example]) -> Batch:
        raise NotImplementedError

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """The model's configuration with what the objective decides (labels, special tokens)."""
        return config

    def trained(self, model: Model) -> nn.Module:
        """What is trained: the model, or a module that holds it and a helper (ELECTRA's generator)."""
        return model

    def sentence(self) -> Sentence | None:
        """How the finished model makes one vector of a text, where that is what it learnt."""
        return None

    def given(self, batch: Batch) -> dict[str, Tensor]:
        """What the model is called with: the inputs, or what is made of them on the device."""
        return batch.inputs

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The mean of each term over what it counts."""
        return {"loss": model(**self.given(batch)).loss}

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        """Sums over a batch of held-out data: they are added up over batches and devices, then given to `report`."""
        return term_sums(self.losses(model, batch), batch)

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        """What a person wants to read, from the sums of `measure`. The first is what the best checkpoint is chosen by
        unless a recipe names another."""
        terms = {name: sums[name] / max(sums[f"{name}.count"], 1) for name in self.factors if name in sums}
        total = sum(self.factors[name] * value for name, value in terms.items())
        return {"loss": total} | ({} if list(terms) == ["loss"] else terms)

    @classmethod
    def check_examination(cls, options: Mapping[str, Any], said: Mapping[str, Any]) -> None:
        """An error where `examine` cannot do what is asked: it is told before the first step, not after the last.

        said   the options of the objective itself
        """
        if options:
            raise InputError(f"{cls.name} is examined in one way only: leave {', '.join(options)} out.")

    def examine(self, pipe: TextPipeline, records: Iterator[Record], **options: Any) -> dict[str, float]:
        """Once, at the end: measures that need the finished model as a user has it (what it writes, BLEU)."""
        return {}


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


def check_columns(objective: Objective | type[Objective], record: Record) -> None:
    """The record has what the objective reads; otherwise an error with the place."""
    for column in objective.columns:
        if column not in record:
            there = [name for name in record if name != "where"]
            raise InputError(
                f"{record.get('where', 'A record')} has no column {column!r}.{did_you_mean(column, there)} "
                f"It has: {', '.join(there) or 'nothing'}. Name yours in the recipe: data.columns.{column}=… (in a "
                "table without a header its position, from 0)"
            )


def padded(rows: Sequence[Sequence[int] | np.ndarray], value: int, multiple: int = 1) -> Tensor:
    """Rows of whole numbers, filled on the right to one length: (rows, longest)."""
    longest = -(-max(map(len, rows)) // multiple) * multiple
    out = torch.full((len(rows), longest), value, dtype=torch.long)
    for n, row in enumerate(rows):
        out[n, : len(row)] = torch.from_numpy(np.asarray(row, dtype=np.int64))
    return out


def mask_of(rows: Sequence[Sequence[int] | np.ndarray], multiple: int = 1) -> Tensor:
    """1 for what is there, 0 for padding: (rows, longest)."""
    return padded([np.ones(len(row), dtype=np.int64) for row in rows], 0, multiple)
