"""What the objectives on running text share: documents as tokens, special tokens they cannot do without, counting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example, Record, check_columns
from clearhead.train.objectives.base import term_sums
from clearhead.train.objectives.fields import text_of
from clearhead.train.objectives.padding import IGNORED
from clearhead.train.objectives.text import TextObjective, require_tokenizer


class RunningText(TextObjective):
    """Documents as they are, joined and cut into blocks later.

    closing   the token that ends a document; None: the next one follows without a mark
    """

    blocks = True

    def __init__(self, tokenizer: Tokenizer, length: int, closing: int | None) -> None:
        super().__init__(tokenizer, length)
        self.closing = () if closing is None else (closing,)

    def identity(self) -> dict[str, Any]:
        """The length is that of blocks, which are cut from what is on disk."""
        return {key: value for key, value in super().identity().items() if key != "length"}

    def encode(self, record: Record) -> Iterator[Example]:
        yield from self.encode_batch([record])[0]

    def encode_batch(self, records: Sequence[Record]) -> list[list[Example]]:
        """The examples of each record; the tokenizer is quicker with many texts at once.

        A long document comes in pieces, of which only the last is closed.
        """
        texts = [document_of(self, record) for record in records]
        rows = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        ends = [() if record.get("unfinished") else self.closing for record in records]
        return [[{"input_ids": np.asarray([*row, *end])}] if row else [] for row, end in zip(rows, ends, strict=True)]


class TokenPrediction(RunningText):
    """Some of the words are to be guessed, and it is counted how many are.

    predicted   what they are called in a report
    """

    predicted: ClassVar[str]

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        out = model(**self.model_inputs(batch))
        return term_sums({"loss": out.loss}, batch) | self.metric_sums(out.logits, batch.inputs["labels"])

    def metric_sums(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        return {f"{self.predicted}_hits": hits(logits, labels), f"{self.predicted}.count": counted(labels)}

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        accuracy = sums[f"{self.predicted}_hits"] / max(sums[f"{self.predicted}.count"], 1)
        return super().report(sums) | {f"{self.predicted}_accuracy": accuracy}


def document_of(objective: TextObjective, record: Record) -> str:
    """The text of a record; it may be empty, as files have empty lines."""
    check_columns(objective.columns, record)
    return "" if isinstance(record["text"], str) and not record["text"].strip() else text_of(record, "text")


def special_id(tokenizer: Tokenizer, name: str, why: str) -> int:
    """The id of a special token that an objective cannot do without."""
    require_tokenizer(tokenizer)
    number: int | None = getattr(tokenizer, f"{name}_id")
    if number is None:
        raise InputError(
            f"This tokenizer has no {name}, which is needed {why}. Choose another tokenizer, or add one: "
            f'tok.add_special_tokens({{"{name}": "…"}}), and let the model\'s embedding grow by one.'
        )
    return number


def around(tokenizer: Tokenizer) -> tuple[int, int]:
    """What stands before and after a text: [CLS] and [SEP]."""
    return special_id(tokenizer, "cls_token", "before a text"), special_id(tokenizer, "sep_token", "after a text")


def pad_id(tokenizer: Tokenizer) -> int:
    """What fills rows up; any token will do, for nothing sees it."""
    return tokenizer.pad_token_id or 0


def special_table(tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """By id, whether it is a special token; and the ids of all that are not."""
    known = np.array(sorted(tokenizer.get_vocab().values()))
    special = np.zeros(known[-1] + 1, dtype=bool)
    special[tokenizer.all_special_ids] = True
    return special, known[~special[known]]


def check_length(length: int, least: int) -> None:
    if length < least:
        raise InputError(f"length is {length} tokens; with its special tokens this objective needs at least {least}.")


def counted(labels: Tensor) -> int:
    return int((labels != IGNORED).sum())


def hits(logits: Tensor, labels: Tensor) -> int:
    """How many labels have the highest score; those left out equal no prediction."""
    return int((logits.argmax(-1) == labels).sum())
