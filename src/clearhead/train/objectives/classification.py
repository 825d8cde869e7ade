"""One answer for a text or a pair of texts: a class, several labels at once, or a number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError, did_you_mean
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example, Record
from clearhead.train.objectives.base import term_sums
from clearhead.train.objectives.fields import list_of, number_of, text_of
from clearhead.train.objectives.labels import Labels
from clearhead.train.objectives.sequence import SequenceObjective

if TYPE_CHECKING:
    from clearhead.train.data.table import Table

Problem = Literal["single_label_classification", "multi_label_classification", "regression"]


class Classification(SequenceObjective):
    """
    problem_type   one class (the default), "multi_label_classification" (label: a list, which may be empty), or
                   "regression" (label: a number)
    labels         the names in the order of their numbers; by default those of the training data, sorted

    A record may have a text_pair. Texts that are too long are cut. What is told beside the loss: accuracy (of a list of
    labels: all of them right) and macro-F1, as scikit-learn defines them; of numbers Pearson's correlation.
    """

    name = "classification"
    task = "sequence-classification"
    columns: ClassVar[tuple[str, ...]] = ("text", "label")
    higher_is_better = frozenset({"accuracy", "macro_f1", "pearson"})

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        problem_type: Problem = "single_label_classification",
        labels: Sequence[str] | None = None,
    ) -> None:
        super().__init__(tokenizer, length)
        if problem_type not in get_args(Problem):
            near = did_you_mean(str(problem_type), get_args(Problem))
            raise InputError(f"problem_type is {problem_type!r}.{near} Known: {', '.join(get_args(Problem))}.")
        self.problem_type = problem_type
        self.fixed = labels is not None  # the names are given, and not to be learned
        self.labels: Labels = Labels(map(str, labels or ()))

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"problem_type": self.problem_type, "labels": self.labels.names}

    def learn_labels(self, records: Iterator[Record]) -> None:
        if self.problem_type == "regression" or self.fixed:
            return
        self.labels.learn(name for record in records for name in self._names(record))

    def check_labels(self, records: Iterator[Record], name: str) -> None:
        if self.problem_type != "regression":
            self.labels.check((label for record in records for label in self._names(record)), name)

    def data_notes(self, training: Table) -> list[str]:
        values = training.distinct("label")
        if self.problem_type == "single_label_classification":
            return self.labels.notes(values)
        if len(values) == 1 and self.problem_type == "regression":
            return [
                f"The number to learn is {values[0]:g} in all of the training data: there is nothing to tell apart."
            ]
        return ["No training example has any label: there is nothing to tell apart."] if values == [0] else []

    def _names(self, record: Record) -> list[str]:
        self.check(record)
        several = self.problem_type == "multi_label_classification"
        values = list_of(record, "label", may_be_empty=True) if several else [record["label"]]
        return [Labels.name(record, "label", value) for value in values]

    def texts(self, record: Record) -> tuple[str, str | None]:
        """The text, and the other one of a pair."""
        pair = None if record.get("text_pair") is None else text_of(record, "text_pair")
        return text_of(record, "text"), pair

    def encode(self, record: Record) -> Iterator[Example]:
        self.check(record)
        example = self.ids_of(*self.texts(record))
        if self.problem_type == "regression":
            yield example | {"label": number_of(record, "label")}
            return
        numbers = [self.labels.number(record, "label", name) for name in self._names(record)]
        if self.problem_type == "single_label_classification":
            yield example | {"label": numbers[0]}
        else:
            chosen = np.zeros(len(self.labels), dtype=np.int32)
            chosen[numbers] = 1
            yield example | {"label": chosen}

    def collate(self, examples: Sequence[Example]) -> Batch:
        inputs = self.inputs(examples) | {"labels": self.targets(examples)}
        return Batch(inputs, {"loss": len(examples)}, int(inputs["attention_mask"].sum()))

    def targets(self, examples: Sequence[Example]) -> Tensor:
        """(examples,): numbers of classes, or numbers; of several labels (examples, labels) of 1 and 0."""
        kind = torch.long if self.problem_type == "single_label_classification" else torch.float32
        return torch.from_numpy(np.stack([np.asarray(example["label"]) for example in examples])).to(kind)

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        labels = Labels(["LABEL_0"]) if self.problem_type == "regression" else self.labels
        if not len(labels):
            raise InputError("The labels are not known yet. Look over the training data first (learn_labels).")
        return labels.configure(super().configure(config)) | {"problem_type": self.problem_type}

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        out = model(**self.model_inputs(batch))
        return term_sums({"loss": out.loss}, batch) | self.metric_sums(out.logits, batch.inputs["labels"])

    def metric_sums(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """Sums that `report` makes its figures of."""
        if self.problem_type == "regression":
            return pearson_sums(logits.squeeze(-1), labels)
        if self.problem_type == "single_label_classification":
            return class_sums(logits.argmax(-1), labels, len(self.labels))
        return label_sums(logits > 0, labels > 0.5)

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        metrics = super().report(sums)
        if self.problem_type == "regression":
            return metrics | {"pearson": pearson(sums)}
        every = self.problem_type == "multi_label_classification"
        return metrics | accuracy_and_f1(sums, len(self.labels), every_label=every)


def class_sums(predicted: Tensor, labels: Tensor, classes: int) -> dict[str, float]:
    """How many are right, and of each class the true positives, false positives and false negatives."""
    return label_sums(F.one_hot(predicted, classes).bool(), F.one_hot(labels, classes).bool())


def label_sums(predicted: Tensor, labels: Tensor) -> dict[str, float]:
    """The same where a row may have several labels, or none: (rows, labels) of yes and no."""
    kinds = {"tp": predicted & labels, "fp": predicted & ~labels, "fn": ~predicted & labels}
    counts = {f"{kind}.{n}": float(c) for kind, cells in kinds.items() for n, c in enumerate(cells.sum(0).tolist())}
    return {"rows": float(len(labels)), "correct": float((predicted == labels).all(-1).sum())} | counts


def accuracy_and_f1(sums: Mapping[str, float], classes: int, every_label: bool = False) -> dict[str, float]:
    """every_label: labels that neither occur nor were chosen count in macro-F1, with 0 (scikit-learn: of lists)."""
    scores = []
    for n in range(classes):
        doubled = 2 * sums[f"tp.{n}"]
        total = doubled + sums[f"fp.{n}"] + sums[f"fn.{n}"]
        if total or every_label:
            scores.append(doubled / total if total else 0.0)
    macro = sum(scores) / max(len(scores), 1)
    return {"accuracy": sums["correct"] / max(sums["rows"], 1), "macro_f1": macro}


def pearson_sums(x: Tensor, y: Tensor) -> dict[str, float]:
    """What Pearson's correlation is made of; unlike Spearman's it can be added up over batches."""
    x, y = x.double(), y.double()
    sums = {"x": x.sum(), "y": y.sum(), "xx": (x * x).sum(), "yy": (y * y).sum(), "xy": (x * y).sum()}
    return {name: float(value) for name, value in sums.items()} | {"n": float(len(x))}


def pearson(sums: Mapping[str, float]) -> float:
    """Between -1 and 1; 0 where one side does not vary."""
    n = max(sums["n"], 1)
    covariance = sums["xy"] / n - sums["x"] * sums["y"] / n**2
    variances = (sums["xx"] / n - (sums["x"] / n) ** 2) * (sums["yy"] / n - (sums["y"] / n) ** 2)
    return covariance / math.sqrt(variances) if variances > 1e-24 else 0.0
