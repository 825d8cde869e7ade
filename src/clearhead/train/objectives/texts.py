"""What the objectives on whole texts share: fields read with care, label names, rows of ids as a model's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import InputError, did_you_mean
from clearhead.models import Model
from clearhead.models.heads import ChoiceHead
from clearhead.models.segment_recurrent import SegmentRecurrentModel
from clearhead.models.stack_model import TokenModel
from clearhead.nn.linear import Linear
from clearhead.text import Encoding, Tokenizer
from clearhead.train.objectives.base import Batch, Example, Objective, Record, check_columns, padded


def place(record: Record) -> str:
    """Where the record stands, to begin a message with."""
    return str(record.get("where", "A record"))


def text_of(record: Record, column: str) -> str:
    """The text in a column; an error with the place where it is none, or empty."""
    value = record[column]
    if not isinstance(value, str):
        raise InputError(f"{place(record)}: {column} must be a text, but it is {_shown(value)}.")
    if not value.strip():
        raise InputError(f"{place(record)}: {column} is empty. Fill it in, or leave the record out.")
    return value


def number_of(record: Record, column: str) -> float:
    """The number in a column, which may be written as text (as in a CSV file)."""
    value = record[column]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool) or not np.isfinite(number):
        raise InputError(f"{place(record)}: {column} must be a number, but it is {_shown(value)}.")
    return number


def list_of(record: Record, column: str, may_be_empty: bool = False) -> list[Any]:
    """The list in a column; an error with the place where it is none."""
    value = record[column]
    if not isinstance(value, list | tuple):
        raise InputError(f"{place(record)}: {column} must be a list, but it is {_shown(value)}.")
    if not value and not may_be_empty:
        raise InputError(f"{place(record)}: {column} is an empty list. Fill it in, or leave the record out.")
    return list(value)


def _shown(value: Any) -> str:
    return "missing" if value is None else f"{str(value)[:60]!r} ({type(value).__name__})"


class Labels:
    """Names of classes and their numbers: learned from the training data, or given in the order they should have.

    A whole number is named by its digits. Names are in alphabetical order; if all are whole numbers, in theirs.
    Where none of the names is a number, data may say 0, 1, … instead: the place in the list.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._set(list(names))
        if len(self._numbers) < len(self.names):
            twice = next(name for n, name in enumerate(self.names) if self._numbers[name] != n)
            raise InputError(f"The label {twice!r} stands twice in the list: each class has a name of its own.")

    def _set(self, names: list[str]) -> None:
        self.names, self._numbers = names, {name: n for n, name in enumerate(names)}

    def learn(self, names: Iterable[str], first: str | None = None) -> None:
        """first: a name that comes before all others (the "outside" of taggers)."""
        found = set(names)
        if not found:
            raise InputError("The training data holds no label. Is the file empty, or the column another one?")
        whole = all(_is_whole(name) for name in found)
        self._set(sorted(found, key=lambda name: (name != first, int(name) if whole else 0, name)))

    @staticmethod
    def name(record: Record, column: str, value: Any) -> str:
        """How a label is called; an error with the place where it cannot be one."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, float):
            raise InputError(
                f"{place(record)}: {column} is {value}, a number with a fraction. To learn numbers rather than "
                "classes, set problem_type=regression."
            )
        if value is None or isinstance(value, list | tuple | dict) or not str(value).strip():
            raise InputError(f"{place(record)}: {column} must be a label, but it is {_shown(value)}.")
        return str(value).strip()

    def number(self, record: Record, column: str, value: Any) -> int:
        name = self.name(record, column, value)
        if name.isdecimal() and int(name) < len(self) and not any(map(_is_whole, self.names)):
            return int(name)
        if name not in self._numbers:
            some = ", ".join(self.names[:20]) + (", …" if len(self.names) > 20 else "")
            raise InputError(
                f"{place(record)}: the label {name!r} does not occur in the training data."
                f"{did_you_mean(name, self.names)} Known labels: {some or 'none yet: learn_labels comes first'}. "
                "Where it is right, name all labels: objective.labels=[…]."
            )
        return self._numbers[name]

    def __len__(self) -> int:
        return len(self.names)

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """The configuration with these labels in it."""
        names = {"id2label": {str(n): name for n, name in enumerate(self.names)}, "label2id": dict(self._numbers)}
        return {**config, **names, "num_labels": len(self)}


def _is_whole(name: str) -> bool:
    return name.removeprefix("-").isdecimal()


class TextObjective(Objective):
    """An objective whose examples are texts, or pairs of texts, with the tokenizer's special tokens around them."""

    segments = True  # whether the model takes token_type_ids

    @property
    def padding(self) -> int:
        """What rows are filled with: the padding token, or the end token of a tokenizer without one (GPT-2's)."""
        found = self.tokenizer.pad_token_id
        return (self.tokenizer.eos_token_id or 0) if found is None else found

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """A head that reads the last token must know what padding is."""
        return config if config.get("pad_token_id") is not None else {**config, "pad_token_id": self.padding}

    def trained(self, model: Model) -> nn.Module:
        self.segments = has_segments(model)
        return model

    def check(self, record: Record) -> None:
        check_columns(self, record)

    def ids_of(self, text: str, pair: str | None = None) -> Example:
        """A text or a pair, cut to the length (of a pair the longer one, token by token)."""
        return self.example(self.tokenizer(text, pair, truncation=True, max_length=self.length), 0)

    def example(self, encoding: Encoding, row: int) -> Example:
        """A row of an encoding as arrays; the masks are made when a batch is."""
        names = [name for name in ("input_ids", "token_type_ids") if name in encoding]
        rows = {name: encoding[name] if isinstance(encoding[name][0], int) else encoding[name][row] for name in names}
        return {name: np.asarray(values, dtype=np.int32) for name, values in rows.items()}

    def rows(self, rows: Sequence[np.ndarray], value: int) -> Tensor:
        """Filled to one length, on the side that the tokenizer pads (XLNet: the left)."""
        if self.tokenizer.padding_side == "left":
            return padded([np.asarray(row)[::-1].copy() for row in rows], value).flip(1)
        return padded(rows, value)

    def inputs(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """input_ids, attention_mask and, where the tokenizer makes them, token_type_ids: (rows, longest)."""
        ids = [example["input_ids"] for example in examples]
        made = {"input_ids": self.rows(ids, self.padding)}
        made["attention_mask"] = self.rows([np.ones(len(row), dtype=np.int64) for row in ids], 0)
        if "token_type_ids" in examples[0]:
            types = [example["token_type_ids"] for example in examples]
            made["token_type_ids"] = self.rows(types, self.tokenizer.pad_token_type_id)
        return made

    def given(self, batch: Batch) -> dict[str, Tensor]:
        """The batch's inputs as the model takes them: without segments where it has none."""
        return {name: t for name, t in batch.inputs.items() if self.segments or name != "token_type_ids"}


def has_segments(model: Model) -> bool:
    """Whether token_type_ids mean to the model what a tokenizer makes of them (GPT-2 would look them up as words)."""
    return isinstance(model, SegmentRecurrentModel) or (
        isinstance(model, TokenModel) and model.stack.embed.segments is not None
    )


def grow_vocabulary(model: Model, tokenizer: Tokenizer) -> None:
    """Rows for tokens that were added to the tokenizer, drawn as the first weights are; the old rows stay."""
    table = model.token_tables()[0]
    size, old = len(tokenizer), table.num_embeddings
    if size <= old:
        return
    if not isinstance(model, TokenModel):
        raise InputError("New tokens can be given to a model with one stack only, not to an encoder–decoder.")
    std = float(getattr(model.config, "initializer_range", 0.02))
    head = model.head.words if isinstance(model.head, ChoiceHead) else model.language_head
    with torch.no_grad():
        grown = nn.Embedding(size, table.embedding_dim, padding_idx=table.padding_idx)
        grown = grown.to(device=table.weight.device, dtype=table.weight.dtype)
        grown.weight.normal_(std=std)
        grown.weight[:old] = table.weight
        model.stack.embed.tokens = grown
        if head is not None:
            output = head.output
            assert isinstance(output, Linear)
            wider = Linear(output.in_features, size, bias=output.bias is not None)
            wider = wider.to(device=table.weight.device, dtype=table.weight.dtype)
            wider.weight.normal_(std=std)
            wider.weight[:old] = output.weight
            if output.bias is not None:
                wider.bias.zero_()
                wider.bias[:old] = output.bias
            head.output = wider
    model.config.vocab_size = size  # type: ignore[attr-defined]
    model.tie_weights()
