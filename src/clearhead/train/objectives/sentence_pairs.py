"""Vectors for whole sentences (Sentence-BERT, 2019): the same encoder reads both sides, and the vectors are compared.

Both sides of a batch are read in one pass: all first sentences, then all second ones (and all third ones).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import hub
from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.models.sentence import Normalize, Pooling, SentenceHead
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example, Record
from clearhead.train.objectives.base import term_sums
from clearhead.train.objectives.classification import accuracy_and_f1, class_sums, pearson, pearson_sums
from clearhead.train.objectives.fields import number_of, place, text_of
from clearhead.train.objectives.labels import Labels
from clearhead.train.objectives.sequence import SequenceObjective

SIDES = ("a", "b", "c")
ROWS_OF_A_LENGTH = 64  # fewer leave less padding, and make smaller products


class SentenceEncoder(nn.Module):
    """Ids in, one vector for each row out: (rows, width). `classifier` is for the softmax objective, and only there."""

    def __init__(self, model: Model, head: SentenceHead, classes: int = 0) -> None:
        super().__init__()
        self.model, self.head = model, head
        width = model.config.hidden_size * len(head.pooling.modes)
        self.classifier = nn.Linear(3 * width, classes).to(model.device) if classes else None

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None, sides: int = 1
    ) -> Tensor:
        """sides: how many sentences make an example; with a classifier, its scores (examples, classes)"""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        given = {name: tensor for name, tensor in inputs.items() if tensor is not None}
        vectors = self._by_length(given) if input_ids.device.type == "cpu" else self._vectors(given)
        if self.classifier is None:
            return vectors
        u, v = vectors.chunk(sides)
        scores: Tensor = self.classifier(torch.cat([u, v, (u - v).abs()], -1))
        return scores

    def _vectors(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """(rows, width)"""
        hidden = self.model.output_stack(**inputs)
        vectors: Tensor = self.head(hidden, inputs["attention_mask"])
        return vectors

    def _by_length(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The same in parts of about one length, without the padding that a part does not need.

        A question stands beside a passage in one batch, so most of it would be padding. A CPU's time goes with the
        positions that are computed; a GPU's hardly does, and it would have to wait for the lengths.
        """
        mask = inputs["attention_mask"]
        columns = torch.arange(1, mask.shape[1] + 1)
        lengths = (mask * columns).amax(1)  # up to the last token that counts, on whichever side the padding is
        order = lengths.argsort()
        parts = [
            self._vectors({name: tensor[rows, : int(lengths[rows[-1]])] for name, tensor in inputs.items()})
            for rows in order.split(ROWS_OF_A_LENGTH)
        ]
        return torch.cat(parts)[order.argsort()]


class SentenceObjective(SequenceObjective):
    """
    pooling          how token vectors become one: "mean" (the paper's best), "cls", "max" …
    normalize        unit length, as a step of the saved model
    max_seq_length   how many tokens of a text the saved model reads; by default as many as in training

    `sentence` gives what a Sentence-BERT folder adds to the trained transformer.
    """

    task = "features"
    higher_is_better = frozenset({"accuracy", "macro_f1", "pearson"})

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        pooling: str = "mean",
        normalize: bool = False,
        max_seq_length: int | None = None,
    ) -> None:
        super().__init__(tokenizer, length)
        self.head = SentenceHead(Pooling((pooling,)), [Normalize()] if normalize else [])
        if max_seq_length is not None and max_seq_length < 1:
            raise InputError(f"max_seq_length is {max_seq_length}; a model reads at least 1 token.")
        self.max_seq_length = max_seq_length or length

    def sentence(self) -> hub.SentenceModules:
        return hub.SentenceModules(self.head, max_seq_length=self.max_seq_length)

    @property
    def sides(self) -> tuple[str, ...]:
        """The columns that hold sentences."""
        return self.columns[:2]

    def encode(self, record: Record) -> Iterator[Example]:
        yield from self.encode_batch([record])[0]

    def encode_batch(self, records: Sequence[Record]) -> list[list[Example]]:
        """The examples of each record; the tokenizer is quicker with many texts at once."""
        examples = []
        for record in records:
            self.check(record)
            examples.append(self.label(record))
        for side, column in zip(SIDES, self.sides, strict=False):
            texts = [text_of(record, column) for record in records]
            encoding = self.tokenizer(texts, truncation=True, max_length=self.length)
            for n, example in enumerate(examples):
                example |= {f"{side}_{name}": ids for name, ids in self.example(encoding, n).items()}
        return [[example] for example in examples]

    def label(self, record: Record) -> Example:
        """What is learned, beside which sentences belong together."""
        return {}

    def collate(self, examples: Sequence[Example]) -> Batch:
        """All first sentences, then all second ones (and all third ones), as rows of one batch."""
        sides = [side for side in SIDES if f"{side}_input_ids" in examples[0]]
        rows = [{name[2:]: ids for name, ids in e.items() if name.startswith(f"{s}_")} for s in sides for e in examples]
        inputs = self.inputs(rows)
        tokens = int(inputs["attention_mask"].sum())
        if "label" in examples[0]:
            inputs["labels"] = torch.tensor([e["label"] for e in examples])
        return Batch(inputs, {"loss": len(examples)}, tokens, {"sides": len(sides)})

    def training_module(self, model: Model) -> nn.Module:
        if model.is_encoder_decoder:
            raise InputError("An encoder–decoder has no single stack to embed with. Choose an encoder.")
        super().training_module(model)
        model.head.requires_grad_(False)  # a pooler that nothing reads
        return SentenceEncoder(model, self.head, self.classes)

    @property
    def classes(self) -> int:
        return 0

    def vectors(self, model: nn.Module, batch: Batch) -> Tensor:
        """(sides, examples, width)"""
        inputs = {name: t for name, t in self.model_inputs(batch).items() if name not in ("labels", "texts")}
        out: Tensor = model(**inputs, sides=batch.extra["sides"])
        return out if self.classes else out.float().unflatten(0, (batch.extra["sides"], -1))

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"loss": self.loss(self.vectors(model, batch), batch)}

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        vectors = self.vectors(model, batch)
        return term_sums({"loss": self.loss(vectors, batch)}, batch) | self.metric_sums(vectors, batch)

    def loss(self, vectors: Tensor, batch: Batch) -> Tensor:
        raise NotImplementedError

    def metric_sums(self, vectors: Tensor, batch: Batch) -> dict[str, float]:
        """Sums that `report` makes its figures of."""
        raise NotImplementedError


class SentenceSoftmax(SentenceObjective):
    """Is it entailment, contradiction or neither? A linear layer reads (u, v, |u − v|); it is not kept afterwards."""

    name = "sentence-softmax"
    not_saved = "the classifier over pairs of vectors"
    columns = ("sentence1", "sentence2", "label")

    def __init__(self, tokenizer: Tokenizer, length: int, *, labels: Sequence[str] | None = None, **head: Any) -> None:
        super().__init__(tokenizer, length, **head)
        self.fixed = labels is not None
        self.labels: Labels = Labels(map(str, labels or ()))

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"labels": self.labels.names}

    def learn_labels(self, records: Iterator[Record]) -> None:
        if not self.fixed:
            self.labels.learn(self._name(record) for record in records)

    def _name(self, record: Record) -> str:
        self.check(record)
        return Labels.name(record, "label", record["label"])

    def label(self, record: Record) -> Example:
        return {"label": self.labels.number(record, "label", record["label"])}

    @property
    def classes(self) -> int:
        return len(self.labels)

    def loss(self, vectors: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(vectors.float(), batch.inputs["labels"])

    def metric_sums(self, vectors: Tensor, batch: Batch) -> dict[str, float]:
        return class_sums(vectors.argmax(-1), batch.inputs["labels"], self.classes)

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        return super().report(sums) | accuracy_and_f1(sums, self.classes)


class SentenceSimilarity(SentenceObjective):
    """The cosine of both vectors shall be the score: mean squared error (STS).

    max_score   the score of sentences that mean the same, which scores are divided by (STS: 5)
    """

    name = "sentence-similarity"
    columns = ("sentence1", "sentence2", "score")

    def __init__(self, tokenizer: Tokenizer, length: int, *, max_score: float = 1.0, **head: Any) -> None:
        super().__init__(tokenizer, length, **head)
        if not max_score > 0:
            raise InputError(f"max_score is {max_score}; it must be greater than 0.")
        self.max_score = max_score

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"max_score": self.max_score}

    def label(self, record: Record) -> Example:
        score = number_of(record, "score") / self.max_score
        if not -1 <= score <= 1:
            raise InputError(
                f"{place(record)}: score is {record['score']}, but a cosine lies between -1 and 1. Set max_score to "
                "the highest score there can be (5 for STS)."
            )
        return {"label": score}

    def loss(self, vectors: Tensor, batch: Batch) -> Tensor:
        return F.mse_loss(F.cosine_similarity(vectors[0], vectors[1], dim=-1), batch.inputs["labels"].float())

    def metric_sums(self, vectors: Tensor, batch: Batch) -> dict[str, float]:
        return pearson_sums(F.cosine_similarity(vectors[0], vectors[1], dim=-1), batch.inputs["labels"])

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        return super().report(sums) | {"pearson": pearson(sums)}


class SentenceContrastive(SentenceObjective):
    """Which of all the positives of the batch belongs to the anchor? Everything else in the batch is a negative.

    A record may have a `negative` too: those of the whole batch join the candidates. The larger the batch, the harder
    the task; on several devices each compares within its own part. What cannot be wrong is no negative: the positive's
    text again, the anchor's own text, the positive of the same anchor in another record (two questions about one
    passage, two answers to one question).

    scale       what cosines are multiplied by before the softmax
    symmetric   also which anchor belongs to the positive: the mean of both
    """

    name = "sentence-contrastive"
    columns = ("anchor", "positive")
    compares_rows = True

    def __init__(
        self, tokenizer: Tokenizer, length: int, *, scale: float = 20.0, symmetric: bool = False, **head: Any
    ) -> None:
        super().__init__(tokenizer, length, **head)
        if scale <= 0:
            raise InputError(f"scale is {scale}; it must be more than 0, or the wrong sentence would win.")
        self.scale, self.symmetric = scale, symmetric
        self.negatives: bool | None = None  # whether records have one; the first says it for all

    @property
    def sides(self) -> tuple[str, ...]:
        return ("anchor", "positive", "negative") if self.negatives else self.columns

    def learn_labels(self, records: Iterator[Record]) -> None:
        self.negatives = next(("negative" in record for record in records), None)

    @property
    def learned_labels(self) -> bool | None:
        return self.negatives

    @learned_labels.setter
    def learned_labels(self, negatives: bool | None) -> None:
        self.negatives = negatives

    def check_rows(self, rows: int) -> None:
        if rows < 2 and not self.negatives:
            raise InputError(
                "A pair alone has nothing to be told from, and each part of a batch is compared within itself. Raise "
                "batch.size, or lower batch.gradient_accumulation_steps."
            )

    def check(self, record: Record) -> None:
        super().check(record)
        if self.negatives is None:
            self.negatives = "negative" in record
        if self.negatives != ("negative" in record):
            raise InputError(
                f"{place(record)} has {'no' if self.negatives else 'a'} column 'negative', unlike the first record. "
                "Either every record has one, or none."
            )

    def collate(self, examples: Sequence[Example]) -> Batch:
        batch = super().collate(examples)
        numbers: dict[bytes, int] = {}  # of each text of the batch: the same number is the same text
        rows = [e[f"{side}_input_ids"].tobytes() for side in SIDES[: batch.extra["sides"]] for e in examples]
        batch.inputs["texts"] = torch.tensor([numbers.setdefault(row, len(numbers)) for row in rows])
        if len(examples) == 1 and not self.negatives:  # nothing to tell it from: it is neither learned nor counted
            batch.counts["loss"] = 0
        return batch

    def _scores(self, vectors: Tensor, batch: Batch) -> Tensor:
        """(anchors, candidates): the right one stands on the diagonal, what is right too has no chance."""
        anchors, *others = F.normalize(vectors, dim=-1)
        scores = anchors @ torch.cat(others).T * self.scale
        return scores.masked_fill(_also_right(batch.inputs["texts"].unflatten(0, (len(vectors), -1))), -torch.inf)

    def loss(self, vectors: Tensor, batch: Batch) -> Tensor:
        scores = self._scores(vectors, batch)
        targets = torch.arange(len(scores), device=scores.device)
        loss = F.cross_entropy(scores, targets)
        return (loss + F.cross_entropy(scores[:, : len(scores)].T, targets)) / 2 if self.symmetric else loss

    def metric_sums(self, vectors: Tensor, batch: Batch) -> dict[str, float]:
        best = self._scores(vectors, batch).argmax(1).cpu()
        correct = float((best == torch.arange(len(best))).sum())
        return {"correct": correct if batch.counts["loss"] else 0.0}

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        if not sums["loss.count"]:
            raise InputError(
                "The held-out batches have one pair each, and nothing to tell it from. Hold out more pairs."
            )
        return super().report(sums) | {"accuracy": sums["correct"] / sums["loss.count"]}


def _also_right(texts: Tensor) -> Tensor:
    """(anchors, candidates): true where a candidate is no wrong answer and yet not the anchor's own positive.

    texts   (sides, examples): a number for each text
    """
    anchors, positives = texts[0], texts[1]
    candidates = texts[1:].flatten()
    also = (candidates == positives[:, None]) | (candidates == anchors[:, None])
    also[:, : len(anchors)] |= anchors == anchors[:, None]
    also.diagonal().fill_(False)
    return also


class SentenceTriplet(SentenceObjective):
    """The positive shall be nearer to the anchor than the negative, by a margin of Euclidean distance."""

    name = "sentence-triplet"
    columns = ("anchor", "positive", "negative")

    def __init__(self, tokenizer: Tokenizer, length: int, *, margin: float = 1.0, **head: Any) -> None:
        super().__init__(tokenizer, length, **head)
        if not margin >= 0:
            raise InputError(f"margin is {margin}; a distance is 0 or more.")
        self.margin = margin

    @property
    def sides(self) -> tuple[str, ...]:
        return self.columns

    def _distances(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        anchor, positive, negative = vectors
        return F.pairwise_distance(anchor, positive), F.pairwise_distance(anchor, negative)

    def loss(self, vectors: Tensor, batch: Batch) -> Tensor:
        near, far = self._distances(vectors)
        return F.relu(near - far + self.margin).mean()

    def metric_sums(self, vectors: Tensor, batch: Batch) -> dict[str, float]:
        near, far = self._distances(vectors)
        return {"correct": float((near < far).sum())}

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        return super().report(sums) | {"accuracy": sums["correct"] / max(sums["loss.count"], 1)}
