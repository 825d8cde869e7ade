"""Task heads: what turns hidden states into an answer, and the loss that teaches it.

Shapes: hidden (batch, time, width). Labels of -100 are left out of every loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models.config import Config
from clearhead.models.output import Output
from clearhead.nn.activations import Activation
from clearhead.nn.glass import tap


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


class Summary(nn.Module):
    """One vector for a whole text: one token's, through a matrix and an activation where the family has them.

    token        "first" ([CLS]); "last", the last that is not padding; "end", the last end token
    activation   None: no matrix, the token's vector as it is
    dropout      before the matrix (RoBERTa, ELECTRA, BART)
    """

    def __init__(
        self,
        config: Config,
        token: Literal["first", "last", "end"] = "first",
        activation: str | None = "tanh",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.config, self.token, self.dropout = config, token, dropout
        self.dense = None if activation is None else nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = None if activation is None else Activation(activation)

    def forward(self, hidden: Tensor, given: Given) -> Tensor:
        picked = hidden[torch.arange(len(hidden), device=hidden.device), self._index(hidden, given.input_ids)]
        if self.dense is None or self.activation is None:
            return picked
        return self.activation(self.dense(F.dropout(picked, self.dropout, self.training)))

    def _index(self, hidden: Tensor, input_ids: Tensor | None) -> Tensor:
        """(batch,): which position speaks for each text."""
        batch, time = hidden.shape[:2]
        first = torch.zeros(batch, dtype=torch.long, device=hidden.device)
        if self.token == "first":
            return first
        if self.token == "end":
            eos = self.config.eos_token_id
            if input_ids is None or not isinstance(eos, int):
                raise InputError("This head reads the end token, so it needs input_ids and a single eos_token_id.")
            counts = (input_ids == eos).sum(1)
            if bool((counts != counts[0]).any()) or bool((counts == 0).any()):
                raise InputError("Every text must hold the end token, the same number of times.")
            chosen = input_ids == eos
        else:
            pad = self.config.pad_token_id
            if pad is None and batch > 1:
                raise InputError(
                    "Several texts at once need a padding token, to know where each one ends: "
                    "set config.pad_token_id (and the tokenizer's pad_token)."
                )
            if pad is None or input_ids is None:
                return first + time - 1
            chosen = input_ids != pad
        return (torch.arange(time, device=hidden.device) * chosen).argmax(-1)


class FeaturesHead(nn.Module):
    """No task: the hidden states themselves, and the pooled vector where the family has one."""

    def __init__(self, pooler: Summary | None = None) -> None:
        super().__init__()
        self.pooler = pooler

    @property
    def taps(self) -> tuple[str, ...]:
        return ("pooled",) if self.pooler is not None else ()

    def forward(self, hidden: Tensor, given: Given) -> Output:
        pooled = None if self.pooler is None else tap(self, "pooled", self.pooler(hidden, given))
        return Output(last_hidden_state=hidden, pooler_output=pooled)


class LanguageHead(nn.Module):
    """A score for every word of the vocabulary.

    transform   BERT's extra step before the output matrix
    shift       the label of a position is the next token (causal) rather than the token there (masked)
    scale       multiplies the hidden states (T5 with a tied output: 1/√width)
    """

    taps = ("logits",)

    def __init__(
        self,
        width: int,
        vocab_size: int,
        *,
        bias: bool,
        shift: bool,
        transform: nn.Module | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.transform = transform
        self.output = nn.Linear(width, vocab_size, bias=bias)
        self.shift, self.scale = shift, scale

    def forward(self, hidden: Tensor, given: Given) -> Output:
        keep = given.logits_to_keep
        if isinstance(keep, Tensor):
            hidden = hidden[:, keep]
        elif keep:
            hidden = hidden[:, -keep:]
        if self.transform is not None:
            hidden = self.transform(hidden)
        logits = tap(self, "logits", self.output(hidden if self.scale == 1.0 else hidden * self.scale))
        return Output(logits=logits, loss=language_loss(logits, given.labels, self.shift))


class WordTransform(nn.Module):
    """BERT's step before the output matrix: dense (to the embedding's width, if that differs), activation, norm."""

    def __init__(self, width: int, activation: str, eps: float, out_width: int | None = None) -> None:
        super().__init__()
        self.dense = nn.Linear(width, out_width or width)
        self.activation = Activation(activation)
        self.norm = nn.LayerNorm(out_width or width, eps=eps)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))


class NextSentenceHead(nn.Module):
    """Does the second sentence follow the first? Label 0: yes; 1: no."""

    taps = ("pooled", "logits")

    def __init__(self, pooler: Summary, width: int) -> None:
        super().__init__()
        self.pooler = pooler
        self.output = nn.Linear(width, 2)

    def forward(self, hidden: Tensor, given: Given) -> Output:
        logits = tap(self, "logits", self.output(tap(self, "pooled", self.pooler(hidden, given))))
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
        follows = self.next_sentence(hidden, Given(given.input_ids, given.next_sentence_label))
        loss = None if words.loss is None or follows.loss is None else words.loss + follows.loss
        return Output(loss=loss, logits=words.logits, seq_relationship_logits=follows.logits)


class SequenceHead(nn.Module):
    """One answer for the whole text, from its summary."""

    taps = ("pooled", "logits")

    def __init__(self, config: Config, pooler: Summary, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.config = config
        self.pooler = pooler
        self.dropout = dropout
        self.output = nn.Linear(config.hidden_size, config.num_labels, bias=bias)

    def forward(self, hidden: Tensor, given: Given) -> Output:
        summary = tap(self, "pooled", self.pooler(hidden, given))
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

    def __init__(self, pooler: Summary, width: int, dropout: float) -> None:
        super().__init__()
        self.pooler = pooler
        self.dropout = dropout
        self.output = nn.Linear(width, 1)

    def forward(self, hidden: Tensor, given: Given) -> Output:
        assert given.choices is not None
        pooled = tap(self, "pooled", self.pooler(hidden, given))
        scores = self.output(F.dropout(pooled, self.dropout, self.training))
        logits = tap(self, "logits", scores.view(-1, given.choices))
        loss = None if given.labels is None else F.cross_entropy(logits, given.labels.view(-1))
        return Output(logits=logits, loss=loss)


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
