"""A small tokenizer and a small objective, for tests of how data gets from files to batches."""

import numpy as np
import pytest

from clearhead.text import train_tokenizer
from clearhead.train.data.types import Batch
from clearhead.train.objectives.padding import mask_of, padded
from clearhead.train.objectives.text import TextObjective

SENTENCES = [f"The {a} {b} near the old {c}." for a in "red big shy".split() for b in "fox hen".split() for c in "oak"]


class Documents(TextObjective):
    """Running text: a document each, closed by the end token."""

    name = "documents"
    blocks = True
    calls = 0

    def encode(self, record):
        type(self).calls += 1
        ids = self.tokenizer.encode(record["text"], add_special_tokens=False)
        yield {"input_ids": np.asarray(ids if record.get("unfinished") else [*ids, self.tokenizer.eos_token_id])}

    def collate(self, examples):
        rows = [example["input_ids"] for example in examples]
        inputs = {"input_ids": padded(rows, 0), "attention_mask": mask_of(rows)}
        return Batch(inputs, {"loss": sum(map(len, rows))}, sum(map(len, rows)))


class Noisy(Documents):
    """Every token is replaced by a draw."""

    blocks = False

    def noise(self, example, rng):
        return {"input_ids": rng.integers(0, 1000, len(example["input_ids"]))}


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(
        iter(SENTENCES), "bpe", 300, special_tokens=["<|endoftext|>"], min_frequency=1, show_progress=False
    )


@pytest.fixture
def documents(tokenizer):
    assert tokenizer.eos_token_id is not None
    Documents.calls = 0
    return Documents(tokenizer, 16)


@pytest.fixture
def noisy(tokenizer):
    return Noisy(tokenizer, 16)
