"""The next word: every token is guessed from those before it (GPT and its relatives)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.text import Tokenizer
from clearhead.text.readable import is_byte_level
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.padding import IGNORED, mask_of, padded
from clearhead.train.objectives.running_text import (
    RunningText,
    check_length,
    counted,
    pad_id,
    special_id,
    special_table,
)


class CausalLM(RunningText):
    """Blocks of running text: documents, each closed by the tokenizer's end token, joined and cut.

    cross_documents   False: in a block, a document sees itself alone, its positions start at 0, and its first token is
                      guessed from nothing, so not at all. True: plain text from one end of the block to the other.
    """

    name = "causal-lm"
    task = "causal-lm"
    static_shapes = True
    special_tokens = {"eos_token": "<|endoftext|>"}

    def __init__(self, tokenizer: Tokenizer, length: int, *, cross_documents: bool = False) -> None:
        super().__init__(tokenizer, length, closing=special_id(tokenizer, "eos_token", "to close a document"))
        check_length(length, 2)
        self.cross_documents = cross_documents
        self.bytes_of = byte_lengths(tokenizer)
        self.first_position: int | None = 0  # None: the model knows distances only

    def collate(self, examples: Sequence[Example]) -> Batch:
        rows = [example["input_ids"] for example in examples]
        inputs = {"input_ids": padded(rows, pad_id(self.tokenizer))}
        labels = padded(rows, IGNORED)  # the model shifts them
        starts = [self._document_starts(example) for example in examples]  # of documents, but the first of a block
        if any(map(len, starts)):
            documents = [
                np.cumsum(np.isin(np.arange(len(row)), row_starts))
                for row, row_starts in zip(rows, starts, strict=True)
            ]
            inputs["documents"] = padded(documents, -1)  # 0, 1 … within a block; padding is a document of its own
            inputs["position_ids"] = padded(
                [_restarting(len(r), row_starts) for r, row_starts in zip(rows, starts, strict=True)], 0
            )
            for n, row_starts in enumerate(starts):
                labels[n, torch.from_numpy(row_starts)] = IGNORED
        elif len(set(map(len, rows))) > 1:
            inputs["attention_mask"] = mask_of(rows)
        guessed = labels[:, 1:]
        batch = Batch(inputs | {"labels": labels}, {"loss": counted(guessed)}, sum(map(len, rows)))
        if self.bytes_of is not None:
            batch.extra["bytes"] = int(self.bytes_of[guessed[guessed != IGNORED]].sum())
        return batch

    def _document_starts(self, example: Example) -> np.ndarray:
        starts = np.asarray([] if self.cross_documents else example.get("starts", []), dtype=np.int64)
        return starts[starts > 0]

    def training_module(self, model: Model) -> nn.Module:
        head = model.language_head
        if model.is_encoder_decoder or head is None or not head.shift or head.labels_shifted:
            raise InputError(
                f"The {model.family.title} model does not shift its labels by itself, so it cannot learn causal-lm. "
                "Choose a family that writes on from a text, such as gpt2."
            )
        self.first_position = model.first_position
        return model

    def model_inputs(self, batch: Batch) -> dict[str, Tensor]:
        """What the model is called with. The square mask is made here, on the device, where it is cheap."""
        inputs = dict(batch.inputs)
        documents, positions = inputs.pop("documents", None), inputs.pop("position_ids", None)
        if documents is not None:
            inputs["attention_mask"] = documents[:, :, None] == documents[:, None, :]  # (batch, query, key)
        if positions is not None and self.first_position is not None:  # RoBERTa counts from its padding's id on
            inputs["position_ids"] = positions + self.first_position
        return inputs

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return super().measure(model, batch) | ({"bytes": batch.extra["bytes"]} if "bytes" in batch.extra else {})

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The loss in nats per token; perplexity; and bits per byte of text, where tokens are bytes."""
        metrics = super().report(sums)
        metrics["perplexity"] = math.inf if metrics["loss"] > 700 else math.exp(metrics["loss"])
        if sums.get("bytes"):
            metrics["bits_per_byte"] = sums["loss"] / math.log(2) / sums["bytes"]
        return metrics


def _restarting(length: int, starts: np.ndarray) -> np.ndarray:
    """Positions that start at 0 again wherever a document begins."""
    positions = np.arange(length)
    document_start = np.zeros(length, dtype=np.int64)
    document_start[starts] = starts
    return positions - np.maximum.accumulate(document_start)


def byte_lengths(tokenizer: Tokenizer) -> Tensor | None:
    """By id, how many bytes of text a token stands for, a special one for none; None where tokens do not tell."""
    backend = tokenizer.backend
    if not is_byte_level(backend) or backend.normalizer is not None:
        return None
    special, _ = special_table(tokenizer)
    lengths = torch.zeros(len(special), dtype=torch.long)
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    for token, n in tokenizer.get_vocab().items():
        # in the vocabulary each byte is written as one character
        lengths[n] = 0 if special[n] else len(token.encode()) if token in added else len(token)
    return lengths
