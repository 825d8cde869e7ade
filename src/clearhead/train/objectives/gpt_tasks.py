"""GPT's way to other tasks (Radford et al., 2018): every task becomes one running text, and its words are learned too.

    classification    start  text  extract
    entailment        start  premise  delimiter  hypothesis  extract
    similarity        both orders, "start  a  delimiter  b  extract" and "start  b  delimiter  a  extract", added up
    multiple choice   start  context  delimiter  answer  extract, for every answer

The linear layer reads the state at `extract`. The loss is task + λ · language model, λ = 0.5. The three tokens are new,
called as in the published code; so are their rows in the embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import Model, Output
from clearhead.models.heads import HeadInputs, LanguageHead, language_loss, sequence_loss
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example, Record
from clearhead.train.objectives.base import check_weights, term_sums
from clearhead.train.objectives.classification import Classification, Problem
from clearhead.train.objectives.fields import text_of
from clearhead.train.objectives.multiple_choice import choice_example, choice_rows, read_choices, without_missing
from clearhead.train.objectives.padding import IGNORED, mask_of, padded
from clearhead.train.objectives.sequence import SequenceObjective
from clearhead.train.objectives.vocabulary import grow_vocabulary

START, DELIMITER, EXTRACT = "_start_", "_delimiter_", "_classify_"


class GPTInputs:
    """The three tokens, and texts between them."""

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        self.tokenizer, self.length = tokenizer, length
        new = [token for token in (START, DELIMITER, EXTRACT) if token not in tokenizer.get_vocab()]
        if new:
            tokenizer.add_special_tokens({"extra_special_tokens": new}, replace_extra_special_tokens=False)
        ids = [tokenizer.backend.token_to_id(token) for token in (START, DELIMITER, EXTRACT)]
        self.start, self.delimiter, self.extract = (int(n) for n in ids if n is not None)

    def __call__(self, *texts: str) -> np.ndarray:
        """start, the texts with delimiters between them, extract; the longest text gives way where there is no room."""
        parts = [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        capacity = self.length - len(parts) - 1
        if capacity < len(parts):
            raise InputError(f"length={self.length} leaves no room for texts beside the start and delimiter tokens.")
        while sum(map(len, parts)) > capacity:
            max(parts, key=len).pop()
        ids = [self.start]
        for part in parts:
            ids += [*part, self.delimiter]
        return np.asarray([*ids[:-1], self.extract], dtype=np.int32)


class WithLanguageHead(nn.Module):
    """A classifier that predicts the words it reads as well, with its embedding as the output matrix."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        config = model.config
        self.words = LanguageHead(config.hidden_size, config.vocab_size, bias=False, shift=True)
        self.words.output.weight = model.token_tables()[0].weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor, lm_labels: Tensor | None = None) -> Output:
        """logits: of the task; loss: of the words, where labels for them are given."""
        hidden = self.model.output_stack(input_ids, attention_mask=attention_mask)
        out: Output = self.model.head(hidden, HeadInputs(input_ids=input_ids))
        if lm_labels is not None:
            out.loss = self.words(hidden, HeadInputs(labels=lm_labels)).loss
        return out


class GPTClassification(Classification):
    """start text extract; with text_pair in a record: start text delimiter text_pair extract.

    lm   λ, what the words count; 0 leaves them out
    """

    name = "gpt-classification"

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        lm: float = 0.5,
        problem_type: Problem = "single_label_classification",
        labels: Sequence[str] | None = None,
    ) -> None:
        super().__init__(tokenizer, length, problem_type=problem_type, labels=labels)
        check_weights(task=1.0, lm=lm)
        self.lm = lm
        self.transformed = GPTInputs(tokenizer, length)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"task": 1.0, "lm": self.lm} if self.lm else {"task": 1.0}

    def ids_of(self, text: str, pair: str | None = None) -> Example:
        return {"input_ids": self.transformed(text) if pair is None else self.transformed(text, pair)}

    def orders(self, example: Example) -> list[np.ndarray]:
        """The texts that speak for one example."""
        return [example["input_ids"]]

    def collate(self, examples: Sequence[Example]) -> Batch:
        orders = [self.orders(example) for example in examples]
        rows = [order[n] for n in range(len(orders[0])) for order in orders]  # all first orders, then all second
        batch = lm_batch(rows, self.padding, len(examples), bool(self.lm))
        batch.inputs["labels"] = self.targets(examples)
        return batch

    def training_module(self, model: Model) -> nn.Module:
        if model.is_encoder_decoder or not model.is_causal:
            raise InputError(
                f"{model.family.title} does not read from left to right: use the objective classification."
            )
        grow_vocabulary(model, self.tokenizer)
        self.config = model.config
        return WithLanguageHead(model)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return self._terms(model, batch)[0]

    def _terms(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        inputs, labels = dict(batch.inputs), batch.inputs["labels"]
        del inputs["labels"]
        out = model(**inputs)
        # the head has no bias, so the sum of both orders' scores is the score of the sum of both states
        logits = out.logits.unflatten(0, (-1, len(labels))).sum(0)
        task = sequence_loss(logits.float(), labels, self.config)
        assert task is not None
        return ({"task": task, "lm": out.loss} if self.lm else {"task": task}), logits

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        terms, logits = self._terms(model, batch)
        return term_sums(terms, batch) | self.metric_sums(logits, batch.inputs["labels"])


class GPTEntailment(GPTClassification):
    """start premise delimiter hypothesis extract."""

    name = "gpt-entailment"
    columns = ("premise", "hypothesis", "label")

    def texts(self, record: Record) -> tuple[str, str | None]:
        return text_of(record, "premise"), text_of(record, "hypothesis")


class GPTSimilarity(GPTClassification):
    """Neither text comes first: both orders are read, and their states added before the linear layer.

    A head without a bias (GPT's, GPT-2's) is needed: then the scores of both orders may be added instead, and a saved
    model is asked in the same way.
    """

    name = "gpt-similarity"
    columns = ("text", "text_pair", "label")

    def encode(self, record: Record) -> Iterator[Example]:
        self.check(record)
        for example in super().encode(record):
            swapped = self.transformed(text_of(record, "text_pair"), text_of(record, "text"))
            yield example | {"swapped_ids": swapped}

    def orders(self, example: Example) -> list[np.ndarray]:
        return [example["input_ids"], example["swapped_ids"]]

    def training_module(self, model: Model) -> nn.Module:
        output = getattr(model.head, "output", None)
        if output is None or getattr(output, "bias", None) is not None:
            raise InputError(f"{model.family.title} has no classifier without a bias, which adding both orders needs.")
        return super().training_module(model)


class GPTMultipleChoice(SequenceObjective):
    """start context delimiter answer extract, for every answer; the answers' scores are compared.

    It is for the "double heads" of GPT and GPT-2. label: the number of the right choice, from 0, or its text.
    """

    name = "gpt-multiple-choice"
    task = "multiple-choice"
    columns: ClassVar[tuple[str, ...]] = ("prompt", "choices", "label")
    higher_is_better = frozenset({"accuracy"})

    def __init__(self, tokenizer: Tokenizer, length: int, *, lm: float = 0.5) -> None:
        super().__init__(tokenizer, length)
        check_weights(task=1.0, lm=lm)
        self.lm = lm
        self.transformed = GPTInputs(tokenizer, length)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"task": 1.0, "lm": self.lm} if self.lm else {"task": 1.0}

    def encode(self, record: Record) -> Iterator[Example]:
        prompt, choices, label = read_choices(self, record)
        yield choice_example([{"input_ids": self.transformed(prompt, choice)} for choice in choices], label)

    def collate(self, examples: Sequence[Example]) -> Batch:
        rows, choice_mask = choice_rows(examples)
        ids = [row["input_ids"] for row in rows]
        batch = lm_batch(ids, self.padding, len(examples), bool(self.lm), choice_mask.flatten())
        inputs = {name: t.unflatten(0, choice_mask.shape) for name, t in batch.inputs.items()}
        inputs["mc_token_ids"] = torch.tensor([len(row) - 1 for row in ids]).view(choice_mask.shape)
        inputs["choice_mask"], inputs["labels"] = choice_mask, torch.tensor([int(e["label"]) for e in examples])
        return Batch(inputs, batch.counts, batch.units)

    def training_module(self, model: Model) -> nn.Module:
        if not model.has_double_heads:
            raise InputError(f"{model.family.title} has no double heads: use the objective multiple-choice.")
        grow_vocabulary(model, self.tokenizer)
        return model

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return self._terms(model, batch)[0]

    def _terms(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        inputs = {name: batch.inputs[name] for name in ("input_ids", "attention_mask", "mc_token_ids")}
        out = model(**inputs)
        scores = without_missing(out.logits, batch)
        terms = {"task": F.cross_entropy(scores, batch.inputs["labels"])}
        if self.lm:
            words = language_loss(out.lm_logits.flatten(0, 1), batch.inputs["lm_labels"].flatten(0, 1), shift=True)
            assert words is not None
            terms["lm"] = words
        return terms, scores

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        terms, scores = self._terms(model, batch)
        return term_sums(terms, batch) | {"correct": float((scores.argmax(1) == batch.inputs["labels"]).sum())}

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        return super().report(sums) | {"accuracy": sums["correct"] / max(sums["task.count"], 1)}


def lm_batch(rows: Sequence[np.ndarray], pad: int, examples: int, words: bool, row_mask: Tensor | None = None) -> Batch:
    """Rows of ids, padded; every token but the first is a word to learn, the new ones too, as in the published code.

    row_mask  (rows,) of yes and no: rows that only fill up teach nothing
    """
    inputs = {"input_ids": padded(rows, pad), "attention_mask": mask_of(rows)}
    counts, real = {"task": examples}, [True] * len(rows) if row_mask is None else row_mask.tolist()
    if words:
        nothing = [np.full(len(row), IGNORED) for row in rows]
        learned = [row if use else none for row, none, use in zip(rows, nothing, real, strict=True)]
        inputs["lm_labels"] = padded(learned, IGNORED)
        counts["lm"] = int((inputs["lm_labels"][:, 1:] != IGNORED).sum())
    return Batch(inputs, counts, sum(len(row) for row, use in zip(rows, real, strict=True) if use))
