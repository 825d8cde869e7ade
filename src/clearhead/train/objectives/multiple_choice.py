"""Which of several answers fits: each is read with the question, scored, and compared with the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.train.data.types import Batch, Example, Record
from clearhead.train.objectives.base import term_sums
from clearhead.train.objectives.fields import list_of, place, text_of
from clearhead.train.objectives.sequence import SequenceObjective


class MultipleChoice(SequenceObjective):
    """Questions of a batch may have different numbers of answers: those that are not there get no probability.

    label: the number of the right choice, from 0, or the choice itself.
    """

    name = "multiple-choice"
    task = "multiple-choice"
    columns = ("prompt", "choices", "label")
    higher_is_better = frozenset({"accuracy"})

    def encode(self, record: Record) -> Iterator[Example]:
        prompt, choices, label = read_choices(self, record)
        yield choice_example([self.ids_of(prompt, choice) for choice in choices], label)

    def collate(self, examples: Sequence[Example]) -> Batch:
        rows, choice_mask = choice_rows(examples)
        inputs = {name: t.unflatten(0, choice_mask.shape) for name, t in self.inputs(rows).items()}
        inputs["choice_mask"], inputs["labels"] = choice_mask, torch.tensor([int(e["label"]) for e in examples])
        return Batch(inputs, {"loss": len(examples)}, sum(len(e["input_ids"]) for e in examples))

    def training_module(self, model: Model) -> nn.Module:
        if model.has_double_heads:
            raise InputError(
                f"{model.family.title} reads its choices in another form: use the objective gpt-multiple-choice."
            )
        return super().training_module(model)

    def scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """(questions, choices)"""
        inputs = {name: t for name, t in self.model_inputs(batch).items() if name not in ("labels", "choice_mask")}
        return without_missing(model(**inputs).logits, batch)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"loss": F.cross_entropy(self.scores(model, batch), batch.inputs["labels"])}

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        scores, labels = self.scores(model, batch), batch.inputs["labels"]
        correct = float((scores.argmax(1) == labels).sum())
        return term_sums({"loss": F.cross_entropy(scores, labels)}, batch) | {"correct": correct}

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        return super().report(sums) | {"accuracy": sums["correct"] / max(sums["loss.count"], 1)}


def read_choices(objective: SequenceObjective, record: Record) -> tuple[str, list[str], int]:
    """The prompt, its choices, and the number of the right one."""
    objective.check(record)
    prompt, choices = text_of(record, "prompt"), list_of(record, "choices")
    for choice in choices:
        if not isinstance(choice, str) or not choice.strip():
            raise InputError(f"{place(record)}: choices must be texts, but one is {choice!r}.")
    if len(choices) < 2:
        raise InputError(f"{place(record)}: there is only one choice. A question needs two or more.")
    label: Any = record["label"]
    if label in choices:
        return prompt, choices, choices.index(label)
    try:
        number = int(label)
    except (TypeError, ValueError):
        number = -1
    if isinstance(label, bool) or not 0 <= number < len(choices):
        raise InputError(
            f"{place(record)}: label is {label!r}; it must be the number of a choice, 0 to {len(choices) - 1}, "
            "or the text of one."
        )
    return prompt, choices, number


def choice_example(rows: Sequence[Example], label: int) -> Example:
    """The choices of a question, one behind the other, as a table keeps them."""
    joined: Example = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    lengths = np.asarray([len(row["input_ids"]) for row in rows], dtype=np.int32)
    return joined | {"lengths": lengths, "label": label}


def choice_rows(examples: Sequence[Example]) -> tuple[list[Example], Tensor]:
    """Every choice as a row of its own, and which are there: (questions, most choices). A missing one repeats."""
    max_choices = max(len(example["lengths"]) for example in examples)
    choice_mask = torch.zeros(len(examples), max_choices, dtype=torch.bool)
    rows: list[Example] = []
    for n, example in enumerate(examples):
        cuts = np.cumsum(example["lengths"])[:-1]
        names = [name for name in ("input_ids", "token_type_ids") if name in example]
        parts = {name: np.split(example[name], cuts) for name in names}
        choices: list[Example] = [{name: parts[name][c] for name in names} for c in range(len(cuts) + 1)]
        choice_mask[n, : len(choices)] = True
        rows += choices + choices[:1] * (max_choices - len(choices))
    return rows, choice_mask


def without_missing(scores: Tensor, batch: Batch) -> Tensor:
    return scores.float().masked_fill(~batch.inputs["choice_mask"], -torch.inf)
