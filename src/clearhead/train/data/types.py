"""What passes through training: from a record to examples, from examples to a batch, and who makes them.

record   a row of the data: {"text": "…", "label": "…"}, with the place it came from
example  numbers made of it once, and kept on disk: {"input_ids": array, "label": 3}
batch    several examples, padded, as tensors
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError, did_you_mean

Record = Mapping[str, Any]  # a row of the data; a source adds "where", a file and line for messages
Example = dict[str, Any]  # one-dimensional arrays of numbers, or plain numbers: what a table on disk can hold


class Examples(Protocol):
    """Examples by number: a table, blocks of one, or a list."""

    def __len__(self) -> int: ...
    def __getitem__(self, n: int, /) -> Example: ...


@dataclass
class Batch:
    """
    inputs   what the model is called with
    counts   term -> how many labels its mean is over; the loop weighs micro-batches and devices by it
    units    how many units (tokens, patches, notes) were read, padding not counted
    """

    inputs: dict[str, Tensor]
    counts: dict[str, int]
    units: int
    extra: dict[str, Any] = field(default_factory=dict)  # what `measure` needs beside

    def to(self, device: torch.device) -> Batch:
        moved = {name: t.to(device, non_blocking=True) for name, t in self.inputs.items()}
        return Batch(moved, self.counts, self.units, self.extra)


class Preprocessor(Protocol):
    """Makes examples of records, and batches of examples. Every objective is one (train/objectives/base.py).

    blocks      the examples are documents; the data is cut into blocks across them
    has_noise   `noise` does something: where nothing is drawn, no generators are made
    """

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> Sequence[str]: ...
    @property
    def blocks(self) -> bool: ...
    @property
    def has_noise(self) -> bool: ...
    def identity(self) -> dict[str, Any]: ...
    def encode_batch(self, records: Sequence[Record]) -> Iterable[Iterable[Example]]: ...
    def noise(self, example: Example, rng: np.random.Generator) -> Example: ...
    def collate(self, examples: Sequence[Example]) -> Batch: ...


def check_columns(columns: Sequence[str], record: Record) -> None:
    """The record has these columns; otherwise an error with the place."""
    for column in columns:
        if column not in record:
            names = [name for name in record if name != "where"]
            raise InputError(
                f"{record.get('where', 'A record')} has no column {column!r}.{did_you_mean(column, names)} "
                f"It has: {', '.join(names) or 'nothing'}. Name yours in the recipe: data.columns.{column}=… (in a "
                "table without a header its position, from 0)"
            )


def checked(records: Iterable[Record], columns: Sequence[str]) -> Iterator[Record]:
    """The records, each looked at when it comes by."""
    for record in records:
        check_columns(columns, record)
        yield record
