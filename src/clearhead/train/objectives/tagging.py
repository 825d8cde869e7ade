"""A label for every word: names, parts of speech. Names are judged whole, as conlleval judges them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from clearhead.errors import InputError
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example, Record, check_columns
from clearhead.train.objectives.base import term_sums
from clearhead.train.objectives.fields import list_of, place
from clearhead.train.objectives.labels import Labels
from clearhead.train.objectives.padding import IGNORED
from clearhead.train.objectives.sequence import SequenceObjective

if TYPE_CHECKING:
    from clearhead.train.data.table import Table

OUTSIDE = "O"
SUMS = ("words", "correct", "gold", "predicted", "true_positives")  # what precision, recall and accuracy are made of


class Tagging(SequenceObjective):
    """The first piece of a word carries its tag; further pieces and special tokens are left out of the loss.

    all_pieces   further pieces are learned too: with the word's tag, B-X becoming I-X
    labels       the tags in the order of their numbers; by default those of the training data, O first, then sorted

    The words are joined by spaces, so that every tokenizer sees a text as it knows texts. A sentence that is too long
    becomes several windows, cut between words: no tag is lost, and none is counted twice.
    """

    name = "tagging"
    task = "token-classification"
    columns = ("tokens", "tags")
    higher_is_better = frozenset({"f1", "precision", "recall", "accuracy"})

    def __init__(
        self, tokenizer: Tokenizer, length: int, *, all_pieces: bool = False, labels: Sequence[str] | None = None
    ) -> None:
        super().__init__(tokenizer, length)
        if length <= tokenizer.num_special_tokens_to_add():
            raise InputError(f"length={length} leaves no room for a word beside the special tokens.")
        self.all_pieces = all_pieces
        self.fixed = labels is not None
        self.labels: Labels = Labels(map(str, labels or ()))

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"all_pieces": self.all_pieces, "labels": self.labels.names}

    def learn_labels(self, records: Iterator[Record]) -> None:
        if not self.fixed:
            self.labels.learn((tag for record in records for tag in tagged_words(record)[1]), first=OUTSIDE)

    def check_labels(self, records: Iterator[Record], name: str) -> None:
        self.labels.check((tag for record in records for tag in tagged_words(record)[1]), name)

    def data_notes(self, training: Table) -> list[str]:
        return self.labels.notes([n for n in training.distinct("labels") if n != IGNORED])

    def encode(self, record: Record) -> Iterator[Example]:
        words, tags = tagged_words(record)
        numbers = [self.labels.number(record, "tags", tag) for tag in tags]
        later_labels = [self._inside(number) if self.all_pieces else IGNORED for number in numbers]
        word_at = np.repeat(np.arange(len(words)), [len(word) + 1 for word in words])  # of each character and its space
        spaces = np.cumsum([len(word) + 1 for word in words]) - 1
        word_at[spaces] = -1

        encoding = self.tokenizer(" ".join(words), return_special_tokens_mask=True, return_offsets_mapping=True)
        full = self.example(encoding, 0)
        added = np.asarray(encoding["special_tokens_mask"], dtype=bool)
        # a piece may begin with the space before its word, so its last character says whose it is
        ends = [int(word_at[end - 1]) if end > start else -1 for start, end in encoding["offset_mapping"]]
        word_of = np.where(added, -1, ends)  # (pieces,); -1: special, or a space
        text = np.flatnonzero(~added)
        if not len(text):
            return  # nothing that the tokenizer can see
        head, tail = np.arange(text[0]), np.arange(text[-1] + 1, len(added))
        seen: set[int] = set()
        for start, stop in self._windows(word_of[text]):
            positions = np.concatenate([head, text[start:stop], tail])
            labels = np.full(len(positions), IGNORED, dtype=np.int32)
            first = np.zeros(len(positions), dtype=np.int32)
            for n, word in enumerate(word_of[positions].tolist()):
                if word < 0:
                    continue
                first[n] = word not in seen
                labels[n] = numbers[word] if first[n] else later_labels[word]
                seen.add(word)
            if (labels == IGNORED).all():
                continue  # the rest of a word that is too long by itself
            example = {name: values[positions] for name, values in full.items()} | {"labels": labels}
            yield example | {"first": first} if self.all_pieces else example

    def _inside(self, number: int) -> int:
        name = self.labels.names[number]
        inside = "I" + name[1:] if name.startswith("B-") else name
        return self.labels.names.index(inside) if inside in self.labels.names else number

    def _windows(self, words: np.ndarray) -> Iterator[tuple[int, int]]:
        """Pieces from … to, as many as fit, cut where a word begins (inside a word only where it alone is too long)."""
        capacity = self.length - self.tokenizer.num_special_tokens_to_add()
        start = 0
        while start < len(words):
            stop = min(start + capacity, len(words))
            if stop < len(words):
                cut = stop
                while cut > start and words[cut] == words[cut - 1]:
                    cut -= 1
                stop = cut if cut > start else stop
            yield start, stop
            start = stop

    def collate(self, examples: Sequence[Example]) -> Batch:
        inputs = self.inputs(examples)
        inputs["labels"] = self.rows([example["labels"] for example in examples], IGNORED)
        counts = {"loss": int((inputs["labels"] != IGNORED).sum())}
        extra = {"first": self.rows([e["first"] for e in examples], 0).bool()} if self.all_pieces else {}
        return Batch(inputs, counts, int(inputs["attention_mask"].sum()), extra)

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        if not len(self.labels):
            raise InputError("The tags are not known yet. Look over the training data first (learn_labels).")
        return self.labels.configure(super().configure(config))

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        out = model(**self.model_inputs(batch))
        predicted, labels = out.logits.argmax(-1).cpu(), batch.inputs["labels"].cpu()
        counted = batch.extra["first"] if self.all_pieces else labels != IGNORED
        sums = dict.fromkeys(SUMS, 0.0)
        for chosen, gold, real in zip(predicted, labels, counted, strict=True):
            guesses, tags = ([self.labels.names[n] for n in row[real].tolist()] for row in (chosen, gold))
            for name, value in entity_sums(guesses, tags).items():
                sums[name] += value
        return term_sums({"loss": out.loss}, batch) | sums

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Precision, recall and F1 of whole names (where tags are of the kind B-X and I-X), and accuracy of words."""
        return super().report(sums) | tagging_scores(sums, self.labels.names)


def tagged_words(record: Record) -> tuple[list[str], list[str]]:
    """The words and their tags, as many of the one as of the other."""
    check_columns(Tagging.columns, record)
    words, tags = list_of(record, "tokens"), list_of(record, "tags")
    if len(words) != len(tags):
        raise InputError(f"{place(record)}: there are {len(words)} tokens but {len(tags)} tags; each word needs one.")
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise InputError(f"{place(record)}: tokens must be words, but one is {word!r}.")
    return words, [Labels.name(record, "tags", tag) for tag in tags]


def tagging_scores(sums: Mapping[str, float], labels: Sequence[str]) -> dict[str, float]:
    """Of the sums of `entity_sums`: names where there are any among the labels, and words."""
    scores = {}
    if any(name[:2] in ("B-", "I-") for name in labels):
        hits, predicted, gold = (sums[name] for name in ("true_positives", "predicted", "gold"))
        scores = {"f1": 2 * hits / max(predicted + gold, 1), "precision": hits / max(predicted, 1)}
        scores["recall"] = hits / max(gold, 1)
    return scores | {"accuracy": sums["correct"] / max(sums["words"], 1)}


def entity_sums(guesses: Sequence[str], tags: Sequence[str]) -> dict[str, float]:
    """Of one sentence: words, words tagged right, names there, names found, names found that are there."""
    gold, predicted = set(entities(tags)), set(entities(guesses))
    right = sum(a == b for a, b in zip(guesses, tags, strict=True))
    return dict(
        zip(SUMS, map(float, (len(tags), right, len(gold), len(predicted), len(gold & predicted))), strict=True)
    )


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """(kind, first word, word after the last) of each name, read as conlleval reads it.

    B-X begins a name, and so does I-X after another kind or outside: a missing B- is forgiven.
    """
    spans: list[tuple[str, int, int]] = []
    kind, start = "", -1  # of the name that is open; -1: none
    for n, tag in enumerate([*tags, OUTSIDE]):
        mark, _, name = tag.partition("-")
        inside = mark in ("B", "I")
        if start >= 0 and (not inside or mark == "B" or name != kind):
            spans.append((kind, start, n))
            start = -1
        if inside and start < 0:
            kind, start = name, n
    return spans
