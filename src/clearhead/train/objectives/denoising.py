"""Denoising: the encoder reads a corrupted text, the decoder writes it as it was (BART)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from clearhead.errors import InputError, did_you_mean
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example, Record
from clearhead.train.objectives.running_text import check_length, document_of, pad_id, special_id
from clearhead.train.objectives.sentences import parts_of, sentence_ids
from clearhead.train.objectives.spans import read_and_write
from clearhead.train.objectives.text import TextObjective

SPAN = 3.0  # the mean length of a span that is filled in


def mask_tokens(ids: np.ndarray, rate: float, mask: int, rng: np.random.Generator) -> np.ndarray:
    """Tokens become masks."""
    out = ids.copy()
    out[rng.permutation(len(ids))[: round(rate * len(ids))]] = mask
    return out


def delete_tokens(ids: np.ndarray, rate: float, mask: int, rng: np.random.Generator) -> np.ndarray:
    """Tokens are gone: the model must find out where. One stays in any case."""
    deleted = rng.permutation(len(ids))[: min(round(rate * len(ids)), len(ids) - 1)]
    return np.delete(ids, deleted)


def infill(ids: np.ndarray, rate: float, mask: int, rng: np.random.Generator) -> np.ndarray:
    """Spans become one mask each: the model must find out how much is missing.

    Lengths are Poisson(3), drawn until they make up the share; the last is cut to fit. Between two tokens that stay, a
    span of length 0 puts a mask where nothing was. Every arrangement of spans and tokens is as likely.
    """
    num_masked = math.ceil(rate * len(ids))
    lengths: list[int] = []
    while sum(lengths) < num_masked:
        lengths.append(min(int(rng.poisson(SPAN)), num_masked - sum(lengths)))
    num_kept = len(ids) - num_masked
    is_span = np.zeros(num_kept + len(lengths), dtype=bool)
    is_span[rng.permutation(len(is_span))[: len(lengths)]] = True
    width = np.ones(len(is_span), dtype=np.int64)
    width[is_span] = rng.permutation(lengths)
    first = np.cumsum(width) - width  # where in the text each piece begins
    return np.where(is_span, mask, ids[np.minimum(first, len(ids) - 1)])


def permute(sentences: list[np.ndarray], rate: float, rng: np.random.Generator) -> np.ndarray:
    """So many of the sentences change places among themselves."""
    moved = rng.permutation(len(sentences))[: math.ceil(rate * len(sentences))]
    order = np.arange(len(sentences))
    order[moved] = rng.permutation(moved)
    return np.concatenate([sentences[n] for n in order])


def rotate(ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The text begins with a token chosen at random, and what stood before it comes last."""
    return np.roll(ids, -int(rng.integers(len(ids))))


TOKEN_NOISES: dict[str, Callable[[np.ndarray, float, int, np.random.Generator], np.ndarray]] = {
    "token-masking": mask_tokens,
    "token-deletion": delete_tokens,
    "text-infilling": infill,
}
NOISES = ("sentence-permutation", *TOKEN_NOISES, "document-rotation")  # in the order in which they act
PUBLISHED = {"text-infilling": 0.3, "sentence-permutation": 1.0}


class Denoising(TextObjective):
    """A document, or a run of its sentences that fits: <s> corrupted </s> is read, <s> as it was </s> is written.

    noises   name -> rate. By default what BART was trained with: 30 % of the tokens in spans to fill in, and all
             sentences in a random order. Rates are shares of tokens (token-masking, token-deletion, text-infilling),
             of sentences (sentence-permutation), or of documents (document-rotation).
    """

    name = "denoising"
    task = "seq2seq-lm"
    special_tokens = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "mask_token": "<mask>"}

    def __init__(self, tokenizer: Tokenizer, length: int, *, noises: Mapping[str, float] | None = None) -> None:
        super().__init__(tokenizer, length)
        check_length(length, 3)
        self.noises = dict(PUBLISHED if noises is None else noises)
        for name, rate in self.noises.items():
            if name not in NOISES:
                known = ", ".join(NOISES)
                raise InputError(f"There is no noise {name!r}.{did_you_mean(name, NOISES)} There are: {known}.")
            if not 0 <= rate <= 1:
                raise InputError(f"The rate of {name} is {rate}; a share lies between 0 and 1.")
        self.mask = special_id(tokenizer, "mask_token", "to stand for what is missing")
        self.first = special_id(tokenizer, "bos_token" if tokenizer.cls_token is None else "cls_token", "to begin with")
        self.end = special_id(tokenizer, "eos_token" if tokenizer.sep_token is None else "sep_token", "to end with")

    def encode(self, record: Record) -> Iterator[Example]:
        capacity = self.length - 2
        run: list[list[int]] = []
        for sentence in sentence_ids(self.tokenizer, document_of(self, record), capacity):
            if sum(map(len, run)) + len(sentence) > capacity:
                yield _example(run)
                run = []
            run.append(sentence)
        if run:
            yield _example(run)

    def noise(self, example: Example, rng: np.random.Generator) -> Example:
        ids = np.asarray(example["input_ids"], dtype=np.int64)
        corrupted = ids
        if "sentence-permutation" in self.noises:
            corrupted = permute(parts_of(example), self.noises["sentence-permutation"], rng)
        for name, act in TOKEN_NOISES.items():
            if name in self.noises:
                corrupted = act(corrupted, self.noises[name], self.mask, rng)
        if rng.random() < self.noises.get("document-rotation", 0.0):
            corrupted = rotate(corrupted, rng)
        return {"input_ids": self._around(corrupted), "labels": self._around(ids)}

    def _around(self, ids: np.ndarray) -> np.ndarray:
        return np.concatenate(([self.first], ids, [self.end])).astype(np.int64)

    def collate(self, examples: Sequence[Example]) -> Batch:
        return read_and_write(examples, pad_id(self.tokenizer))

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """BART's decoder starts from the end token; then it writes the first one itself."""
        ids = {"bos_token_id": self.first, "eos_token_id": self.end, "pad_token_id": pad_id(self.tokenizer)}
        return {**config, **ids, "decoder_start_token_id": self.end, "forced_eos_token_id": self.end}


def _example(sentences: Sequence[Sequence[int]]) -> Example:
    return {"input_ids": np.concatenate(sentences), "sentences": np.array([len(s) for s in sentences])}
