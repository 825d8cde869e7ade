"""Masked words in two segments, and whether the second follows the first: BERT's and ALBERT's pretraining."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import Output
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example, Record
from clearhead.train.objectives.base import term_sums
from clearhead.train.objectives.masked import Masking, masked_batch
from clearhead.train.objectives.padding import padded
from clearhead.train.objectives.running_text import around, check_length, document_of, hits, pad_id
from clearhead.train.objectives.text import TextObjective

# Latin sentences end before a space; Chinese and Japanese ones anywhere. What comes after the end is the next one's.
_END = re.compile(
    r"(?<=[.!?])(?=\s)|(?<=[.!?][\"'”’)\]])(?=\s)|(?<=[。！？])(?![。！？”’」』）])|(?<=[。！？][”’」』）])"
)


def sentences_of(text: str) -> list[str]:
    """A text's lines; of a text with one line, the sentences. Joined, they are the text."""
    lines = text.splitlines(keepends=True)
    return lines if len(lines) > 1 else [part for part in _END.split(text) if part]


def sentence_ids(tokenizer: Tokenizer, text: str, max_length: int) -> list[list[int]]:
    """The tokens of each sentence; one that is too long is cut into several."""
    sentences = [s for s in sentences_of(text) if s.strip()]
    rows: list[list[int]] = tokenizer(sentences, add_special_tokens=False)["input_ids"] if sentences else []
    return [row[start : start + max_length] for row in rows for start in range(0, len(row), max_length)]


def chunks_of(sentences: Sequence[Sequence[int]], capacity: int) -> Iterator[Sequence[Sequence[int]]]:
    """A document cut into runs of sentences that fill `capacity` tokens; the last of a run may reach beyond it."""
    first = total = 0
    for n, sentence in enumerate(sentences):
        total += len(sentence)
        if total >= capacity or n == len(sentences) - 1:
            yield sentences[first : n + 1]
            first, total = n + 1, 0


def parts_of(example: Example) -> list[np.ndarray]:
    """The sentences of an example."""
    return np.split(np.asarray(example["input_ids"], dtype=np.int64), np.cumsum(example["sentences"])[:-1])


class SegmentPair(TextObjective):
    """[CLS] A [SEP] B [SEP] with masked words, and a question about the two. A subclass says which two, and the answer.

    An example is a run of a document's sentences: input_ids, the sentences' lengths, and a number for the document.

    mlm_probability   the share of tokens that is chosen to be guessed
    max_predictions   never more than so many per sequence
    short_seq_prob    how often a run is cut to a random length, so that the model meets short texts too
    """

    task = "pretraining"
    # ALBERT's
    special_tokens = {"pad_token": "<pad>", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    question: ClassVar[str]  # the name of the second term
    min_tokens = 1  # tokens that a run must have

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        mlm_probability: float = 0.15,
        whole_word: bool = False,
        ngrams: int = 1,
        max_predictions: int | None = None,
        short_seq_prob: float = 0.1,
    ) -> None:
        super().__init__(tokenizer, length)
        check_length(length, 5)
        self.first, self.last = around(tokenizer)
        self.masking = Masking(
            tokenizer,
            mlm_probability=mlm_probability,
            whole_word=whole_word,
            ngrams=ngrams,
            max_predictions=max_predictions,
        )
        if not 0 <= short_seq_prob <= 1:
            raise InputError(f"short_seq_prob is {short_seq_prob}; a share lies between 0 and 1.")
        self.short_seq_prob = short_seq_prob
        self.capacity = length - 3  # for words

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"mlm": 1.0, self.question: 1.0}

    def encode(self, record: Record) -> Iterator[Example]:
        text = document_of(self, record)
        for run in chunks_of(sentence_ids(self.tokenizer, text, self.capacity), self.capacity):
            ids = np.concatenate([np.asarray(sentence) for sentence in run])
            if len(ids) >= self.min_tokens:
                lengths = np.array([len(sentence) for sentence in run])
                yield {"input_ids": ids, "sentences": lengths, "document": zlib.crc32(text.encode()) >> 1}

    def segments(self, example: Example, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """A, B, and the answer: 0, B follows A; 1, it does not."""
        raise NotImplementedError

    def run(self, example: Example, rng: np.random.Generator) -> tuple[list[np.ndarray], int]:
        """The sentences to use and how long they should be: all, or now and then fewer, from the first on."""
        sentences, target = parts_of(example), self.capacity
        if rng.random() < self.short_seq_prob:
            target = int(rng.integers(2, self.capacity + 1))
            enough = np.cumsum([len(sentence) for sentence in sentences]) >= target
            sentences = sentences[: int(enough.argmax()) + 1] if enough.any() else sentences
        return sentences, target

    def noise(self, example: Example, rng: np.random.Generator) -> Example:
        a, b, answer = self.segments(example, rng)
        a, b = shortened(a, b, self.capacity, rng)
        ids = np.concatenate(([self.first], a, [self.last], b, [self.last])).astype(np.int64)
        inputs, labels = self.masking(ids, rng)
        types = np.repeat([0, 1], [len(a) + 2, len(b) + 1])
        return {"input_ids": inputs, "labels": labels, "token_type_ids": types, "answer": answer}

    def collate(self, examples: Sequence[Example]) -> Batch:
        batch = masked_batch(examples, pad_id(self.tokenizer))
        batch.inputs["token_type_ids"] = padded([e["token_type_ids"] for e in examples], 0)
        batch.inputs["next_sentence_label"] = torch.tensor([int(e["answer"]) for e in examples])
        batch.counts = {"mlm": batch.counts["loss"], self.question: len(examples)}
        return batch

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return self._terms(model(**batch.inputs), batch)

    def _terms(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """The model gives the sum; each term has a mean over labels of its own."""
        follows = F.cross_entropy(out["seq_relationship_logits"], batch.inputs["next_sentence_label"])
        return {"mlm": out["loss"] - follows, self.question: follows}

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        out = model(**batch.inputs)
        return term_sums(self._terms(out, batch), batch) | {
            "masked_hits": hits(out.logits, batch.inputs["labels"]),
            "answer_hits": hits(out.seq_relationship_logits, batch.inputs["next_sentence_label"]),
        }

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        return super().report(sums) | {
            "masked_accuracy": sums["masked_hits"] / max(sums["mlm.count"], 1),
            f"{self.question}_accuracy": sums["answer_hits"] / max(sums[f"{self.question}.count"], 1),
        }


class NextSentence(SegmentPair):
    """BERT: in half of the examples B is what follows A, in the other half it comes from another document."""

    name = "bert-pretraining"
    question = "next_sentence"
    higher_is_better = frozenset({"masked_accuracy", "next_sentence_accuracy"})

    def segments(self, example: Example, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        sentences, target = self.run(example, rng)
        cut = int(rng.integers(1, len(sentences))) if len(sentences) > 1 else 1
        a = np.concatenate(sentences[:cut])
        if len(sentences) == 1 or rng.random() < 0.5:  # one sentence alone has no next
            return a, self._random_next(example["document"], target - len(a), rng), 1
        return a, np.concatenate(sentences[cut:]), 0

    def _random_next(self, document: int, length: int, rng: np.random.Generator) -> np.ndarray:
        """Sentences of another document, about as long as wanted, from a random one on."""
        sentences = parts_of(self._another(document, rng))
        remaining = np.cumsum([len(sentence) for sentence in sentences][::-1])[::-1]  # from each sentence to the end
        num_starts = max(1, int((remaining >= length).sum()))
        first = int(rng.integers(num_starts))
        lengths = np.cumsum([len(sentence) for sentence in sentences[first:]])
        count = int((lengths < length).sum()) + 1
        return np.concatenate(sentences[first : first + count])

    def _another(self, document: int, rng: np.random.Generator) -> Example:
        if self.training_data is None:
            raise InputError("bert-pretraining takes random sentences from the training examples: set training_data.")
        for _ in range(10):
            other = self.training_data[int(rng.integers(len(self.training_data)))]
            if other["document"] != document:
                return other
        start = int(rng.integers(len(self.training_data)))
        for n in range(len(self.training_data)):  # nearly all examples are this document's: look at each
            other = self.training_data[(start + n) % len(self.training_data)]
            if other["document"] != document:
                return other
        raise InputError(
            "The training data holds one document only, and bert-pretraining takes its random next sentences from "
            "another. Split the text into several documents (one a record), or train masked-lm, which needs no second."
        )


class SentenceOrder(SegmentPair):
    """ALBERT: A and B follow each other in the text; in half of the examples they have changed places.

    Words are masked whole, up to three neighbours at once.
    """

    name = "sentence-order"
    question = "sentence_order"
    higher_is_better = frozenset({"masked_accuracy", "sentence_order_accuracy"})
    min_tokens = 2

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        mlm_probability: float = 0.15,
        whole_word: bool = True,
        ngrams: int = 3,
        max_predictions: int | None = None,
        short_seq_prob: float = 0.1,
    ) -> None:
        super().__init__(
            tokenizer,
            length,
            mlm_probability=mlm_probability,
            whole_word=whole_word,
            ngrams=ngrams,
            max_predictions=max_predictions,
            short_seq_prob=short_seq_prob,
        )

    def segments(self, example: Example, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        sentences, _ = self.run(example, rng)
        if len(sentences) == 1 and len(sentences[0]) == 1:  # cut too short: take all
            sentences = parts_of(example)
        if len(sentences) == 1:  # one sentence alone is cut in two
            sentences = np.split(sentences[0], [int(rng.integers(1, len(sentences[0])))])
        cut = int(rng.integers(1, len(sentences)))
        a, b = np.concatenate(sentences[:cut]), np.concatenate(sentences[cut:])
        return (b, a, 1) if rng.random() < 0.5 else (a, b, 0)


def shortened(a: np.ndarray, b: np.ndarray, capacity: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Token by token, the longer of the two loses its first or its last, by the toss of a coin."""
    ends = {"a": [0, len(a)], "b": [0, len(b)]}
    over = len(a) + len(b) - capacity
    for front in rng.random(max(over, 0)) < 0.5:
        lengths = {name: last - first for name, (first, last) in ends.items()}
        longer = ends["a"] if lengths["a"] > lengths["b"] else ends["b"]
        longer[0 if front else 1] += 1 if front else -1
    return a[slice(*ends["a"])], b[slice(*ends["b"])]
