"""Span corruption: short spans are cut out of a text and written down, each behind a mark of its own (T5)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from clearhead.errors import InputError
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.padding import IGNORED, mask_of, padded
from clearhead.train.objectives.running_text import RunningText, check_length, pad_id, special_id


class SpanCorruption(RunningText):
    """The encoder reads `Thank you <extra_id_0> me to your party <extra_id_1> week . END`, the decoder learns to write
    `<extra_id_0> for inviting <extra_id_1> last <extra_id_2> END`.

    noise_density      the share of tokens that is cut out
    mean_span_length   of a span, in tokens
    final_sentinel     a last mark closes the target, as the paper prints it; T5's code goes without

    Inputs are exactly `length` tokens long, their END counted, and targets `target_length`: blocks of text are as much
    longer as the cutting makes them shorter. Documents follow each other without a mark between them, as in T5.
    """

    name = "span-corruption"
    task = "seq2seq-lm"
    special_tokens = {"pad_token": "<pad>", "eos_token": "</s>"}

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        noise_density: float = 0.15,
        mean_span_length: float = 3.0,
        final_sentinel: bool = True,
    ) -> None:
        super().__init__(tokenizer, length, closing=None)
        check_length(length, 3)
        if not 0 < noise_density < 1 or mean_span_length < 1:
            raise InputError(
                f"noise_density is {noise_density} and mean_span_length {mean_span_length}; a share between 0 and 1, "
                "and at least one token."
            )
        self.noise_density, self.mean_span_length, self.final_sentinel = noise_density, mean_span_length, final_sentinel
        self.end = special_id(tokenizer, "eos_token", "to close inputs and targets")
        self.sentinels = sentinels_of(tokenizer)
        needed = self.counts_for(self.block_length)[1] + final_sentinel
        if needed > len(self.sentinels):
            raise InputError(
                f"Inputs of {length} tokens lose {needed - final_sentinel} spans, and need {needed} sentinels; the "
                f"tokenizer has {len(self.sentinels)}. Lower length or noise_density, or give it more (<extra_id_N>)."
            )

    @classmethod
    def extra_tokens(cls) -> list[str]:
        """T5's hundred sentinels, numbered downwards like its own."""
        return [f"<extra_id_{n}>" for n in reversed(range(100))]

    def counts_for(self, tokens: int) -> tuple[int, int]:
        """How many of so many tokens are cut out, and in how many spans."""
        if tokens < 2:
            return 0, 0
        noise = min(max(round(tokens * self.noise_density), 1), tokens - 1)
        return noise, min(max(round(noise / self.mean_span_length), 1), tokens - noise)

    def lengths_for(self, tokens: int) -> tuple[int, int]:
        """How long inputs and targets are, of so many tokens."""
        noise, spans = self.counts_for(tokens)
        return tokens - noise + spans + 1, noise + spans + self.final_sentinel + 1

    @property
    def block_length(self) -> int:
        """As much text as `length` tokens of input can come from."""
        tokens = 2
        while self.lengths_for(tokens + 1)[0] <= self.length:
            tokens += 1
        return tokens

    @property
    def target_length(self) -> int:
        return self.lengths_for(self.block_length)[1]

    def noise(self, example: Example, rng: np.random.Generator) -> Example:
        ids = np.asarray(example["input_ids"], dtype=np.int64)
        noise, spans = self.counts_for(len(ids))
        kept, cut = random_parts(len(ids) - noise, spans, rng), random_parts(noise, spans, rng)
        inputs: list[np.ndarray] = []
        targets: list[np.ndarray] = []
        position = 0
        for n, (kept_length, cut_length) in enumerate(zip(kept, cut, strict=True)):  # the text begins with what stays
            sentinel = self.sentinels[n : n + 1]
            inputs += [ids[position : position + kept_length], sentinel]
            targets += [sentinel, ids[position + kept_length : position + kept_length + cut_length]]
            position += kept_length + cut_length
        end = np.array([self.end])
        last = self.sentinels[spans : spans + self.final_sentinel]
        return {
            "input_ids": np.concatenate((*inputs, ids[position:], end)),
            "labels": np.concatenate((*targets, last, end)),
        }

    def collate(self, examples: Sequence[Example]) -> Batch:
        return read_and_write(examples, pad_id(self.tokenizer))

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """T5's decoder starts from the padding token."""
        pad = pad_id(self.tokenizer)
        return {**config, "pad_token_id": pad, "eos_token_id": self.end, "decoder_start_token_id": pad}


def read_and_write(examples: Sequence[Example], pad: int) -> Batch:
    """What the encoder reads and what the decoder should write; the model shifts the labels."""
    rows, labels = [e["input_ids"] for e in examples], [e["labels"] for e in examples]
    inputs = {"input_ids": padded(rows, pad), "labels": padded(labels, IGNORED)}
    if len(set(map(len, rows))) > 1:
        inputs["attention_mask"] = mask_of(rows)
    written = sum(map(len, labels))
    return Batch(inputs, {"loss": written}, sum(map(len, rows)) + written)


def random_parts(items: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """The lengths of so many parts, none empty, of a row of items cut at random; every way is as likely."""
    if parts == 0:
        return np.zeros(0, dtype=np.int64)
    cuts = np.sort(rng.permutation(items - 1)[: parts - 1]) + 1
    return np.diff(cuts, prepend=0, append=items)


def sentinels_of(tokenizer: Tokenizer) -> np.ndarray:
    """The ids of <extra_id_0>, <extra_id_1> … In T5's vocabulary they are the last, counting down."""
    vocabulary = tokenizer.get_vocab()
    for form in ("<extra_id_{}>", "▁<extra_id_{}>"):  # mT5's are ordinary pieces
        names = (form.format(n) for n in itertools.count())
        ids = [vocabulary[name] for name in itertools.takewhile(vocabulary.__contains__, names)]
        if ids:
            return np.array(ids, dtype=np.int64)
    raise InputError(
        "This tokenizer has no sentinels (<extra_id_0>, <extra_id_1> …), which stand for what is cut out. Train it "
        'with special_tokens=[f"<extra_id_{n}>" for n in reversed(range(100))].'
    )
