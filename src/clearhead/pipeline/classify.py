"""Classify texts: by the head that was trained for it, or among labels that are given only now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.pipeline.batches import checked_logits, encode_cut, pairs_of, run_batches, texts_of
from clearhead.pipeline.label_words import check_template, label_log_probs
from clearhead.schema import Field

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline

TEMPLATE = "This example is {}."  # as transformers' zero-shot classification has it
_LABELS = Field(
    name="labels", type=list[str] | tuple[str, ...], expected="a list of different names, none of them empty"
)


@dataclass(frozen=True)
class ScoredLabel:
    """A label, and how sure the model is of it: a probability; of a regression, the number itself."""

    label: str
    score: float


@torch.no_grad()
def classify(
    pipe: TextPipeline,
    text: str | list[str],
    pair: str | list[str] | None = None,
    *,
    labels: Sequence[str] | None = None,
    template: str = TEMPLATE,
    batch_size: int = 32,
) -> list[ScoredLabel] | list[list[ScoredLabel]]:
    """TextPipeline.classify."""
    texts, pairs = texts_of(text), pairs_of(text, pair)
    trained = pipe.model.task == "sequence-classification"
    if labels is None:
        if not trained:
            ranks = pipe.model.language_head is not None and pipe.model.task != "permutation-lm"
            raise InputError(
                f"{pipe.title} is loaded for {pipe.model.task}, so it has no labels of its own. "
                + ("Give some to be ranked (labels), or load" if ranks else "Load")
                + " a model that was trained to classify."
            )
        names = list(pipe.model.config.id2label.values())
        scores = _head_scores(pipe, texts, pairs, batch_size)
    else:
        names = checked_labels(labels)
        check_template(template)
        if pairs is not None:
            raise InputError("With labels= one text is read at a time: leave the pair out.")
        if trained:
            scores = _entailment(pipe, texts, names, template, batch_size)
        else:
            scores = label_log_probs(pipe, texts, names, template, batch_size).softmax(-1)
    found = [ranked(names, row) for row in scores.tolist()]
    return found[0] if isinstance(text, str) else found


def ranked(names: list[str], scores: list[float]) -> list[ScoredLabel]:
    scored = [ScoredLabel(name, score) for name, score in zip(names, scores, strict=True)]
    return sorted(scored, key=lambda label: label.score, reverse=True)


def checked_labels(labels: Sequence[str]) -> list[str]:
    names = [label.strip() if isinstance(label, str) else label for label in _LABELS.check(labels)]
    if not names or not all(names) or len(set(names)) < len(names):
        raise InputError(f"labels is {labels!r}; it must be {_LABELS.expected}.")
    return names


def _logits(
    pipe: TextPipeline, texts: list[str], pairs: list[str] | None, batch_size: int, truncation: str | bool = True
) -> Tensor:
    """(texts, labels)"""
    rows = encode_cut(pipe, texts, pairs, truncation=truncation)
    logits = run_batches(pipe, rows, lambda batch: checked_logits(pipe, batch), batch_size)
    return torch.stack(logits)


def _head_scores(pipe: TextPipeline, texts: list[str], pairs: list[str] | None, batch_size: int) -> Tensor:
    """A probability for each label, or each label's own yes and no, or the number that a regression gives."""
    logits = _logits(pipe, texts, pairs, batch_size)
    kind = pipe.model.config.problem_type
    if kind == "regression":
        return logits
    if kind == "multi_label_classification" or pipe.model.config.num_labels == 1:
        return logits.sigmoid()
    return logits.softmax(-1)


def _entailment(pipe: TextPipeline, texts: list[str], labels: list[str], template: str, batch_size: int) -> Tensor:
    """Zero-shot by inference: does the text entail `template` with the label in it? (Yin et al. 2019)"""
    names = [name.lower() for name in pipe.model.config.id2label.values()]
    entails = next((n for n, name in enumerate(names) if name.startswith("entail")), None)
    if entails is None:
        own = list(pipe.model.config.id2label.values())
        shown = ", ".join(own[:6]) + (" …" if len(own) > 6 else "")
        raise InputError(
            f"{pipe.title} was trained for labels of its own ({shown}): leave labels out. "
            "Labels of your choice take a language model, or a classifier with a label 'entailment'."
        )
    pairs = [(text, template.format(label)) for text in texts for label in labels]
    first, second = (list(side) for side in zip(*pairs, strict=True))
    logits = _logits(pipe, first, second, batch_size, "only_first").view(len(texts), len(labels), -1)
    if len(labels) > 1:
        return logits[..., entails].softmax(-1)
    contradicts = -1 if entails == 0 else 0
    return logits[..., [contradicts, entails]].softmax(-1)[..., 1]
