"""The next word, with neighbours at hand: what RETRO learns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.models.retrieval import RetrievalModel
from clearhead.pipeline.retrieval import open_store
from clearhead.text import Tokenizer
from clearhead.train.data.neighbors import with_neighbors
from clearhead.train.data.types import Batch, Example, Record, check_columns
from clearhead.train.objectives.base import term_sums
from clearhead.train.objectives.causal import CausalLM
from clearhead.train.objectives.fields import place


class RetrievalLM(CausalLM):
    """Texts whose neighbours are looked up once, while the data is prepared, and kept beside it.

    store        where: a folder of `clearhead index build`, or a shipped store. Records that hold token ids need none:
                 `input_ids` of a text, and `neighbor_ids` (chunks, k, tokens) of its whole chunks
    neighbors    how many for every chunk
    chunk_size   tokens of a chunk: the model's

    What would give the text away is left out (train/data/neighbors.py). Held-out text is read three times: with its
    neighbours, with those of another text, and without any.
    """

    name = "retrieval-lm"
    columns = ()  # text, or input_ids and neighbor_ids: each record is looked at when it is encoded
    blocks = False
    static_shapes = False
    length_column = "input_ids"

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        store: str | None = None,
        neighbors: int = 2,
        chunk_size: int = 64,
    ) -> None:
        super().__init__(tokenizer, length, cross_documents=True)
        if neighbors < 1:
            raise InputError(f"objective.neighbors is {neighbors}; a chunk has one neighbour or more.")
        self.where, self.neighbors, self.chunk_size = store, neighbors, chunk_size
        self.hidden_id = 0

    @classmethod
    def texts_of(cls, record: Record) -> Iterator[str]:
        if isinstance(text := record.get("text"), str):
            yield text

    @cached_property
    def store(self) -> Any:
        return open_store(self.where)

    def identity(self) -> dict[str, Any]:
        found = {} if self.where is None else {"store": self.store.fingerprint}
        return super().identity() | {"length": self.length} | found

    def encode_batch(self, records: Sequence[Record]) -> list[list[Example]]:
        return [[example for made in self._records(record) for example in self.encode(made)] for record in records]

    def _records(self, record: Record) -> Iterator[Record]:
        """A record of token ids as it is; of a text those that are made of it, with neighbours."""
        if "input_ids" in record:
            check_columns(("neighbor_ids",), record)
            yield record
            return
        check_columns(("text",), record)
        if self.where is None:
            raise InputError(
                f"{place(record)}: there is a text and no store to look its neighbours up in. Build one (clearhead "
                "index build) and name it: objective.store=FOLDER."
            )
        # a text file is one document of a store, named by its path; a row is named by its place
        where = str(record.get("where", ""))
        names = {where, re.sub(r":\d+$", "", where)}
        made = with_neighbors(
            [(names, record["text"])], self.store, self.tokenizer, length=self.length, chunk_size=self.chunk_size,
            neighbors=self.neighbors,
        )  # fmt: skip
        for one in made:
            yield one | {"where": where}

    def encode(self, record: Record) -> Iterator[Example]:
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
        if self.where is not None and model.chunk_size != self.chunk_size:
            raise InputError(
                f"The model's chunks have {model.chunk_size} tokens, and neighbours were looked up for chunks of "
                f"{self.chunk_size}: set objective.chunk_size={model.chunk_size}."
            )
        self.hidden_id = model.hidden_id
        return super().training_module(model)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        terms = super().losses(model, batch)
        if model.training and not terms["loss"].requires_grad:  # no text has a whole chunk, and only new parts learn
            terms["loss"] = terms["loss"] + 0 * next(p for p in model.parameters() if p.requires_grad).sum()
        return terms

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        inputs = dict(self.model_inputs(batch))
        neighbors = inputs.pop("neighbor_ids")
        others = neighbors.roll(1, 0 if len(neighbors) > 1 else 1)  # of another text, or of another chunk
        sums = super().measure(model, batch)
        for name, changed in (("without", None), ("random", others)):
            sums[f"{name}_loss"] = term_sums({"loss": model(**inputs, neighbor_ids=changed).loss}, batch)["loss"]
        return sums

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Beside the loss: that without neighbours, and that with neighbours of another text."""
        metrics, count = super().report(sums), max(sums["loss.count"], 1)
        for name in ("without", "random"):
            loss = sums[f"{name}_loss"] / count
            metrics[f"loss_{name}_neighbors"] = loss
            if metrics["loss"] and "bits_per_byte" in metrics:
                metrics[f"bits_per_byte_{name}_neighbors"] = metrics["bits_per_byte"] * loss / metrics["loss"]
        return metrics


def _whole_numbers(record: Record, column: str, ndim: int) -> np.ndarray:
    try:
        numbers = np.array(record[column])
    except ValueError:  # rows of several lengths
        numbers = np.zeros(0)
    if numbers.ndim != ndim or not np.issubdtype(numbers.dtype, np.integer) or not numbers.size:
        form = "a list of token ids" if ndim == 1 else "token ids (chunks, k, tokens), padded to one length"
        raise InputError(f"{place(record)}: {column} must be {form}.")
    return numbers.astype(np.int64)
