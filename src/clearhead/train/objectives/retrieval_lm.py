"""The next word, with neighbours at hand: what RETRO learns, from texts whose neighbours were looked up before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.models.retrieval import RetrievalModel
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example, Record, check_columns
from clearhead.train.objectives.base import term_sums
from clearhead.train.objectives.causal import CausalLM
from clearhead.train.objectives.fields import place


class RetrievalLM(CausalLM):
    """Records hold token ids: `input_ids` of a text, and `neighbor_ids` (chunks, k, tokens) of its whole chunks.

    `train/data/neighbors.py` makes them from a store. Held-out text is read twice, with its neighbours and without.
    """

    name = "retrieval-lm"
    columns = ("input_ids", "neighbor_ids")
    blocks = False
    static_shapes = False
    codec_kinds: ClassVar[tuple[str, ...]] = ()  # the records are made of a tokenizer's ids already
    length_column = "input_ids"

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        super().__init__(tokenizer, length, cross_documents=True)
        self.hidden_id = 0

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"length": self.length}

    def encode_batch(self, records: Sequence[Record]) -> list[list[Example]]:
        return [list(self.encode(record)) for record in records]

    def encode(self, record: Record) -> Iterator[Example]:
        check_columns(self.columns, record)
        ids = _whole_numbers(record, "input_ids", 1)
        neighbors = _whole_numbers(record, "neighbor_ids", 3) if record["neighbor_ids"] else np.zeros((0, 0, 0), int)
        if len(ids) > self.length:
            raise InputError(
                f"{place(record)}: the text has {len(ids)} tokens, and batch.length is {self.length}. Make it longer, "
                "or cut the texts before their neighbours are looked up."
            )
        chunks, k, tokens = neighbors.shape
        shape = {"neighbor_chunks": chunks, "neighbor_count": k, "neighbor_tokens": tokens}
        yield {"input_ids": ids, "neighbor_ids": neighbors.reshape(-1), **shape}

    def collate(self, examples: Sequence[Example]) -> Batch:
        batch = super().collate(examples)
        shapes = [tuple(int(e[f"neighbor_{n}"]) for n in ("chunks", "count", "tokens")) for e in examples]
        largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
        neighbors = torch.full((len(examples), *largest), self.hidden_id)
        for row, (example, (chunks, k, tokens)) in enumerate(zip(examples, shapes, strict=True)):
            found = torch.from_numpy(np.asarray(example["neighbor_ids"], dtype=np.int64))
            neighbors[row, :chunks, :k, :tokens] = found.view(chunks, k, tokens)
        batch.inputs["neighbor_ids"] = neighbors
        return batch

    def training_module(self, model: Model) -> nn.Module:
        if not isinstance(model, RetrievalModel) or model.hidden_id is None:
            raise InputError(
                f"{self.name} trains a model that looks at neighbours and has a padding token: model.family=retro, or "
                "model.retrofit, a GPT-2 that becomes one."
            )
        self.hidden_id = model.hidden_id
        return super().training_module(model)

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        without = {name: t for name, t in self.model_inputs(batch).items() if name != "neighbor_ids"}
        bare = term_sums({"loss": model(**without).loss}, batch)
        return super().measure(model, batch) | {"bare_loss": bare["loss"]}

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        bare = sums["bare_loss"] / max(sums["loss.count"], 1)
        return super().report(sums) | {"loss_without_neighbors": bare}


def _whole_numbers(record: Record, column: str, ndim: int) -> np.ndarray:
    try:
        numbers = np.array(record[column])
    except ValueError:  # rows of several lengths
        numbers = np.zeros(0)
    if numbers.ndim != ndim or not np.issubdtype(numbers.dtype, np.integer) or not numbers.size:
        form = "a list of token ids" if ndim == 1 else "token ids (chunks, k, tokens), padded to one length"
        raise InputError(f"{place(record)}: {column} must be {form}.")
    return numbers.astype(np.int64)
