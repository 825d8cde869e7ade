"""Task heads: what turns hidden states into an answer, and the loss that teaches it.

Shapes: hidden (batch, time, width). Labels of -100 are left out of every loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models.config import Config
from clearhead.models.output import Output
from clearhead.nn.activations import Activation
from clearhead.nn.glass import tap

TASKS = (
    "causal-lm",
    "masked-lm",
    "seq2seq-lm",
    "pretraining",
    "next-sentence",
    "sequence-classification",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "features",
)


@dataclass
class Given:
    """What the caller passed beside the text itself."""

    input_ids: Tensor | None = None
    labels: Tensor | None = None
    next_sentence_label: Tensor | None = None
    start_positions: Tensor | None = None
    end_positions: Tensor | None = None
    logits_to_keep: int | Tensor = 0
    choices: int | None = None  # multiple choice: how many answers each question has


class Pooler(nn.Module):
    """BERT's summary of a text: the first token's vector, through a matrix and tanh."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.tanh(self.dense(hidden[:, 0]))


class FeaturesHead(nn.Module):
    """No task: the hidden states themselves, and the pooled vector where the family has one."""

    def __init__(self, pooler: Pooler | None = None) -> None:
        super().__init__()
        self.pooler = pooler

    @property
    def taps(self) -> tuple[str, ...]:
        return ("pooled",) if self.pooler is not None else ()

    def forward(self, hidden: Tensor, given: Given) -> Output:
        pooled = None if self.pooler is None else tap(self, "pooled", self.pooler(hidden))
        return Output(last_hidden_state=hidden, pooler_output=pooled)


class LanguageHead(nn.Module):
    """A score for every word of the vocabulary.

    transform   BERT's extra step before the output matrix
    shift       the label of a position is the next token (causal) rather than the token there (masked)
    """

    taps = ("logits",)

    def __init__(
        self, width: int, vocab_size: int, *, bias: bool, shift: bool, transform: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.transform = transform
        self.output = nn.Linear(width, vocab_size, bias=bias)
        self.shift = shift

    def forward(self, hidden: Tensor, given: Given) -> Output:
        keep = given.logits_to_keep
        if isinstance(keep, Tensor):
            hidden = hidden[:, keep]
        elif keep:
            hidden = hidden[:, -keep:]
        if self.transform is not None:
            hidden = self.transform(hidden)
        logits = tap(self, "logits", self.output(hidden))
        return Output(logits=logits, loss=language_loss(logits, given.labels, self.shift))


class WordTransform(nn.Module):
    """BERT's step before the output matrix: dense, activation, norm."""

    def __init__(self, width: int, activation: str, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = Activation(activation)
        self.norm = nn.LayerNorm(width, eps=eps)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))


class NextSentenceHead(nn.Module):
    """Does the second sentence follow the first? Label 0: yes; 1: no."""

    taps = ("pooled", "logits")

    def __init__(self, pooler: Pooler, width: int) -> None:
        super().__init__()
        self.pooler = pooler
        self.output = nn.Linear(width, 2)

    def forward(self, hidden: Tensor, given: Given) -> Output:
        logits = tap(self, "logits", self.output(tap(self, "pooled", self.pooler(hidden))))
        loss = None if given.labels is None else F.cross_entropy(logits, given.labels.view(-1))
        return Output(logits=logits, loss=loss)


class PretrainingHead(nn.Module):
    """BERT's two pretraining tasks at once: masked words and next sentence; the loss is their sum."""

    tap_names = {"words": "", "next_sentence": "next_sentence"}

    def __init__(self, words: LanguageHead, next_sentence: NextSentenceHead) -> None:
        super().__init__()
        self.words = words
        self.next_sentence = next_sentence

    def forward(self, hidden: Tensor, given: Given) -> Output:
        words = self.words(hidden, given)
        follows = self.next_sentence(hidden, Given(labels=given.next_sentence_label))
        loss = None if words.loss is None or follows.loss is None else words.loss + follows.loss
        return Output(loss=loss, logits=words.logits, seq_relationship_logits=follows.logits)


class SequenceHead(nn.Module):
    """One answer for the whole text, from the pooled vector (BERT) or from the last token (GPT-2, pooler None)."""

    def __init__(self, config: Config, pooler: Pooler | None, dropout: float, bias: bool) -> None:
        super().__init__()
        self.config = config
        self.pooler = pooler
        self.dropout = dropout
        self.output = nn.Linear(config.hidden_size, config.num_labels, bias=bias)

    @property
    def taps(self) -> tuple[str, ...]:
        return ("logits",) if self.pooler is None else ("pooled", "logits")

    def forward(self, hidden: Tensor, given: Given) -> Output:
        if self.pooler is not None:
            summary = tap(self, "pooled", self.pooler(hidden))
        else:
            rows = torch.arange(hidden.shape[0], device=hidden.device)
            summary = hidden[rows, last_real_token(hidden, given.input_ids, self.config.pad_token_id)]
        logits = tap(self, "logits", self.output(F.dropout(summary, self.dropout, self.training)))
        return Output(logits=logits, loss=sequence_loss(logits, given.labels, self.config))


class TokenHead(nn.Module):
    """A label for every token."""

    taps = ("logits",)

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.output = nn.Linear(width, labels)

    def forward(self, hidden: Tensor, given: Given) -> Output:
        logits = tap(self, "logits", self.output(F.dropout(hidden, self.dropout, self.training)))
        loss = None
        if given.labels is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), given.labels.reshape(-1))
        return Output(logits=logits, loss=loss)


class SpanHead(nn.Module):
    """Where the answer starts and ends: two scores for every token."""

    taps = ("logits",)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output = nn.Linear(width, 2)

    def forward(self, hidden: Tensor, given: Given) -> Output:
        start, end = tap(self, "logits", self.output(hidden)).unbind(-1)
        loss = None
        if given.start_positions is not None and given.end_positions is not None:
            outside = start.shape[1]  # an answer beyond the text is left out of the loss
            first, last = (p.reshape(-1).clamp(0, outside) for p in (given.start_positions, given.end_positions))
            loss = (
                F.cross_entropy(start, first, ignore_index=outside) + F.cross_entropy(end, last, ignore_index=outside)
            ) / 2
        return Output(start_logits=start.contiguous(), end_logits=end.contiguous(), loss=loss)


class ChoiceHead(nn.Module):
    """Which of several continuations fits: one score each, compared across the choices."""

    taps = ("pooled", "logits")

    def __init__(self, pooler: Pooler, width: int, dropout: float) -> None:
        super().__init__()
        self.pooler = pooler
        self.dropout = dropout
        self.output = nn.Linear(width, 1)

    def forward(self, hidden: Tensor, given: Given) -> Output:
        assert given.choices is not None
        pooled = tap(self, "pooled", self.pooler(hidden))
        scores = self.output(F.dropout(pooled, self.dropout, self.training))
        logits = tap(self, "logits", scores.view(-1, given.choices))
        loss = None if given.labels is None else F.cross_entropy(logits, given.labels.view(-1))
        return Output(logits=logits, loss=loss)


def last_real_token(hidden: Tensor, input_ids: Tensor | None, pad: int | None) -> Tensor:
    """(batch,) index of the last token that is not padding."""
    batch, time = hidden.shape[:2]
    if pad is None and batch > 1:
        raise InputError(
            "Several texts at once need a padding token, to know where each one ends: "
            "set config.pad_token_id (and the tokenizer's pad_token)."
        )
    if pad is None or input_ids is None:
        return torch.full((batch,), time - 1, device=hidden.device)
    return (torch.arange(time, device=hidden.device) * (input_ids != pad)).argmax(-1)


def language_loss(logits: Tensor, labels: Tensor | None, shift: bool) -> Tensor | None:
    if labels is None:
        return None
    if labels.shape != logits.shape[:-1]:
        raise InputError(
            f"labels must have the shape of the input, {tuple(logits.shape[:-1])}, not {tuple(labels.shape)}."
        )
    if shift:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.reshape(-1))


def sequence_loss(logits: Tensor, labels: Tensor | None, config: Config) -> Tensor | None:
    """Classes, several labels at once, or a number: `problem_type`, or guessed from the labels as is the custom."""
    if labels is None:
        return None
    kind = config.problem_type
    if kind is None:
        whole = not labels.is_floating_point()
        kind = (
            "regression"
            if config.num_labels == 1
            else "single_label_classification"
            if whole
            else "multi_label_classification"
        )
    if kind == "regression":
        return F.mse_loss(logits.squeeze(), labels.squeeze().to(logits.dtype))
    if kind == "single_label_classification":
        return F.cross_entropy(logits, labels.view(-1))
    return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
