"""What the objectives on single texts share: a text or a pair as one sequence, and rows of ids as a model's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from clearhead.models import Model
from clearhead.text import Encoding
from clearhead.train.data.types import Batch, Example, Record, check_columns
from clearhead.train.objectives.padding import padded
from clearhead.train.objectives.text import TextObjective


class SequenceObjective(TextObjective):
    """An objective whose examples are texts, or pairs of texts, with the tokenizer's special tokens around them."""

    segments = True  # whether the model takes token_type_ids

    @property
    def padding(self) -> int:
        """What rows are filled with: the padding token, or the end token of a tokenizer without one (GPT-2's)."""
        pad = self.tokenizer.pad_token_id
        return (self.tokenizer.eos_token_id or 0) if pad is None else pad

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """A head that reads the last token must know what padding is."""
        return config if config.get("pad_token_id") is not None else {**config, "pad_token_id": self.padding}

    def training_module(self, model: Model) -> nn.Module:
        self.segments = model.reads_segments
        return model

    def check(self, record: Record) -> None:
        check_columns(self.columns, record)

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

    def model_inputs(self, batch: Batch) -> dict[str, Tensor]:
        """The batch's inputs as the model takes them: without segments where it has none."""
        return {name: t for name, t in batch.inputs.items() if self.segments or name != "token_type_ids"}
