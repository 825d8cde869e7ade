"""Task heads: what turns hidden states into an answer, and the loss that teaches it.

Shapes: hidden (batch, time, width). Labels of -100 are left out of every loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models.config import Config
from clearhead.models.output import Output
from clearhead.nn.activations import Activation
from clearhead.nn.cross_entropy import linear_cross_entropy
from clearhead.nn.linear import Linear
from clearhead.nn.tracing import is_tracing, tap


@dataclass
class HeadInputs:
    """What the caller passed beside the text itself."""

    input_ids: Tensor | None = None
    labels: Tensor | None = None
    next_sentence_label: Tensor | None = None
    start_positions: Tensor | None = None
    end_positions: Tensor | None = None
    logits_to_keep: int | Tensor = 0
    choices: int | None = None  # multiple choice: how many answers each question has
    mc_token_ids: Tensor | None = None  # (batch · choices,): the position that speaks for each answer
    lm_labels: Tensor | None = None  # (batch · choices, time): the words, where a choice head also predicts them
    attention_mask: Tensor | None = None
    labels_shifted: bool = False  # each label is already what follows its token


class Summary(nn.Module):
    """One vector for a whole text: one token's, through a matrix and an activation where the family has them.

    token        "first" ([CLS]); "last", the last that is not padding; "end", the last end token;
                 "cls_index", the one at mc_token_ids, else "final", the last position whatever is there;
                 "mean", the average of all positions
    activation   None: no matrix, the token's vector as it is
    matrix       False: the activation alone
    dropout      before the matrix (RoBERTa, ELECTRA, BART)
    """

    def __init__(
        self,
        config: Config,
        token: Literal["first", "last", "end", "cls_index", "final", "mean"] = "first",
        activation: str | None = "tanh",
        dropout: float = 0.0,
        matrix: bool = True,
    ) -> None:
        super().__init__()
        self.config, self.token, self.dropout = config, token, dropout
        self.dense = Linear(config.hidden_size, config.hidden_size) if matrix and activation is not None else None
        self.activation = None if activation is None else Activation(activation)

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Tensor:
        if inputs.mc_token_ids is not None and self.token != "cls_index":
            raise InputError(f"This head reads the {self.token} token of a text: leave mc_token_ids out.")
        if self.token == "mean":
            picked = hidden.mean(1)
        else:
            picked = hidden[torch.arange(len(hidden), device=hidden.device), self._index(hidden, inputs)]
        if self.activation is None:
            return picked
        picked = F.dropout(picked, self.dropout, self.training)
        return self.activation(picked if self.dense is None else self.dense(picked))

    def _index(self, hidden: Tensor, inputs: HeadInputs) -> Tensor:
        """(batch,): which position speaks for each text."""
        batch, time = hidden.shape[:2]
        input_ids = inputs.input_ids
        first = torch.zeros(batch, dtype=torch.long, device=hidden.device)
        if self.token == "first":
            return first
        if self.token in ("cls_index", "final"):
            positions = inputs.mc_token_ids
            if positions is None:
                return first + time - 1
            if positions.shape != (batch,):
                raise InputError("mc_token_ids must give one position for each choice: (batch, choices).")
            if positions.device.type == "cpu" and bool(((positions < 0) | (positions >= time)).any()):
                raise InputError(f"mc_token_ids must be positions in the text, 0 to {time - 1}.")
            return positions
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
        positions = (torch.arange(chosen.shape[1], device=hidden.device) * chosen).argmax(-1)
        if chosen.shape[1] > time and bool((positions >= time).any()):
            raise InputError(
                f"The end token stands at position {int(positions.max())}, but the decoder read {time} only."
            )
        return positions


class Head(nn.Module):
    """What turns hidden states into an answer.

    answers   what it gives: vectors; scores of words; whether a sentence follows; "pretraining", both of these; labels
              of the whole text, or of every token; whether a token was replaced; where a span starts and ends;
              "choice", one score for each of several texts; "similarity", of texts and pictures
    """

    answers: ClassVar[
        Literal[
            "vectors",
            "words",
            "next-sentence",
            "pretraining",
            "label",
            "token-labels",
            "replaced",
            "span",
            "choice",
            "similarity",
        ]
    ] = "vectors"

    @property
    def language(self) -> LanguageHead | None:
        """The part that scores the words of the vocabulary, be it the answer or beside it; None: it scores none."""
        return None


class FeaturesHead(Head):
    """No task: the hidden states themselves, and the pooled vector where the family has one."""

    def __init__(self, pooler: nn.Module | None = None) -> None:
        super().__init__()
        self.pooler = pooler

    @property
    def taps(self) -> tuple[str, ...]:
        return ("pooled",) if self.pooler is not None else ()

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        if inputs.labels is not None:
            raise InputError("Without a task there is nothing to learn from labels. Load the model for one (task=…).")
        pooled = None if self.pooler is None else tap(self, "pooled", self.pooler(hidden, inputs))
        return Output(last_hidden_state=hidden, pooler_output=pooled)


class LanguageHead(Head):
    """A score for every word of the vocabulary.

    transform        BERT's extra step before the output matrix
    shift            the label of a position is the next token (causal) rather than the token there (masked)
    scale            multiplies the hidden states (T5 with a tied output: 1/√width)
    output           what scores the words, where it is not one matrix (Transformer-XL)
    labels_shifted   labels come shifted by the caller, though scores are the next token's (BART's decoder alone)

    Two attributes are set by who trains, and count in training only:
    smoothing   label smoothing: the share of the target that is spread over all words
    chunk       the loss is made of so many positions at a time, and no scores are returned; 0: all at once
    """

    answers = "words"
    taps: tuple[str, ...] = ("logits",)

    def __init__(
        self,
        width: int,
        vocab_size: int,
        *,
        bias: bool,
        shift: bool,
        transform: nn.Module | None = None,
        scale: float = 1.0,
        output: nn.Module | None = None,
        labels_shifted: bool = False,
    ) -> None:
        super().__init__()
        self.transform = transform
        self.output = Linear(width, vocab_size, bias=bias) if output is None else output
        self.shift, self.scale, self.labels_shifted = shift, scale, labels_shifted
        self.smoothing, self.chunk = 0.0, 0

    @property
    def language(self) -> Self:
        return self

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        if (
            self.training
            and self.chunk
            and inputs.labels is not None
            and type(self.output) is Linear
            and not is_tracing()
        ):
            return Output(loss=self._loss_in_chunks(self.output, hidden, inputs))
        keep = inputs.logits_to_keep
        if isinstance(keep, Tensor):
            hidden = hidden[:, keep]
        elif keep:
            hidden = hidden[:, -keep:]
        if self.transform is not None:
            hidden = self.transform(hidden)
        logits = tap(self, "logits", self.output(hidden if self.scale == 1.0 else hidden * self.scale))
        smoothing = self.smoothing if self.training else 0.0
        return Output(logits=logits, loss=language_loss(logits, inputs.labels, self._shifts(inputs), smoothing))

    def _shifts(self, inputs: HeadInputs) -> bool:
        return self.shift and not self.labels_shifted and not inputs.labels_shifted

    def _loss_in_chunks(self, output: Linear, hidden: Tensor, inputs: HeadInputs) -> Tensor:
        labels = inputs.labels
        assert labels is not None
        check_labels(labels, output.out_features, hidden)
        if self._shifts(inputs):
            labels = F.pad(labels[:, 1:], (0, 1), value=-100)
        if self.transform is not None:  # only where a label asks for it: a masked model has few
            labelled = (labels != -100).reshape(-1).nonzero()[:, 0]
            hidden, labels = hidden.flatten(0, 1)[labelled], labels.reshape(-1)[labelled]
            hidden = self.transform(hidden)
        hidden = hidden if self.scale == 1.0 else hidden * self.scale
        rows = hidden.reshape(-1, hidden.shape[-1])
        return linear_cross_entropy(rows, output.weight, output.bias, labels.reshape(-1), self.chunk, self.smoothing)


def language_heads(model: nn.Module) -> list[LanguageHead]:
    """All that score words in a model, whatever heads they are a part of."""
    return [module for module in model.modules() if isinstance(module, LanguageHead)]


class WordTransform(nn.Module):
    """BERT's step before the output matrix: dense (to the embedding's width, if that differs), activation, norm."""

    def __init__(self, width: int, activation: str, eps: float, out_width: int | None = None) -> None:
        super().__init__()
        self.dense = Linear(width, out_width or width)
        self.activation = Activation(activation)
        self.norm = nn.LayerNorm(out_width or width, eps=eps)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))


class NextSentenceHead(Head):
    """Does the second sentence follow the first? Label 0: yes; 1: no (BERT: another one; ALBERT: they are swapped)."""

    answers = "next-sentence"
    taps = ("pooled", "logits")

    def __init__(self, pooler: Summary, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.pooler = pooler
        self.dropout = dropout
        self.output = Linear(width, 2)

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        pooled = tap(self, "pooled", self.pooler(hidden, inputs))
        logits = tap(self, "logits", self.output(F.dropout(pooled, self.dropout, self.training)))
        loss = None if inputs.labels is None else F.cross_entropy(logits, inputs.labels.view(-1))
        return Output(logits=logits, loss=loss)


class PretrainingHead(Head):
    """BERT's and ALBERT's two pretraining tasks at once: masked words and next sentence; the loss is their sum."""

    answers = "pretraining"
    tap_names = {"words": "", "next_sentence": "next_sentence"}

    def __init__(self, words: LanguageHead, next_sentence: NextSentenceHead) -> None:
        super().__init__()
        self.words = words
        self.next_sentence = next_sentence

    @property
    def language(self) -> LanguageHead:
        return self.words

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        words = self.words(hidden, inputs)
        follows = self.next_sentence(hidden, HeadInputs(inputs.input_ids, inputs.next_sentence_label))
        loss = None if words.loss is None or follows.loss is None else words.loss + follows.loss
        return Output(loss=loss, logits=words.logits, seq_relationship_logits=follows.logits)


class SequenceHead(Head):
    """One answer for the whole text, from its summary: `width` numbers, by default as many as a hidden state has."""

    answers = "label"
    taps = ("pooled", "logits")

    def __init__(
        self, config: Config, pooler: nn.Module, dropout: float = 0.0, bias: bool = True, width: int | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.pooler = pooler
        self.dropout = dropout
        self.output = Linear(width or config.hidden_size, config.num_labels, bias=bias)

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        summary = tap(self, "pooled", self.pooler(hidden, inputs))
        logits = tap(self, "logits", self.output(F.dropout(summary, self.dropout, self.training)))
        return Output(logits=logits, loss=sequence_loss(logits, inputs.labels, self.config))


class TokenHead(Head):
    """A label for every token."""

    answers = "token-labels"
    taps = ("logits",)

    def __init__(self, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.output = Linear(width, labels)

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        logits = tap(self, "logits", self.output(F.dropout(hidden, self.dropout, self.training)))
        loss = None
        if inputs.labels is not None:
            check_labels(inputs.labels, logits.shape[-1])
            loss = F.cross_entropy(logits.flatten(0, 1), inputs.labels.reshape(-1))
        return Output(logits=logits, loss=loss)


class ReplacedHead(Head):
    """Was this token replaced? One score for every token; label 1: yes (ELECTRA's discriminator)."""

    answers = "replaced"
    taps = ("logits",)

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.dense = Linear(width, width)
        self.activation = Activation(activation)
        self.output = Linear(width, 1)

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        logits = tap(self, "logits", self.output(self.activation(self.dense(hidden))).squeeze(-1))  # (batch, time)
        loss = None
        if inputs.labels is not None:
            counted = inputs.labels != -100
            if inputs.attention_mask is not None and inputs.attention_mask.ndim == 2:
                counted = counted & inputs.attention_mask.bool()
            loss = F.binary_cross_entropy_with_logits(logits[counted], inputs.labels[counted].to(logits.dtype))
        return Output(logits=logits, loss=loss)


class SpanHead(Head):
    """Where the answer starts and ends: two scores for every token."""

    answers = "span"
    taps = ("logits",)

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.output = Linear(width, 2)

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        if inputs.labels is not None:
            raise InputError("Question answering learns from start_positions and end_positions, not from labels.")
        hidden = F.dropout(hidden, self.dropout, self.training)
        start, end = tap(self, "logits", self.output(hidden)).unbind(-1)
        loss = span_loss(start, end, inputs.start_positions, inputs.end_positions)
        return Output(start_logits=start.contiguous(), end_logits=end.contiguous(), loss=loss)


class ChoiceHead(Head):
    """Which of several continuations fits: one score each, compared across the choices.

    activation, last_dropout   on the score (the "double heads" of GPT and GPT-2 may have them)
    words                      a second head, which predicts the words of every choice; the loss is the sum
    """

    answers = "choice"
    taps = ("pooled", "logits")

    def __init__(
        self,
        pooler: Summary,
        width: int,
        dropout: float,
        *,
        activation: str | None = None,
        last_dropout: float = 0.0,
        words: LanguageHead | None = None,
    ) -> None:
        super().__init__()
        self.pooler = pooler
        self.dropout, self.last_dropout = dropout, last_dropout
        self.output = Linear(width, 1)
        self.activation = Activation(activation) if activation else None
        self.words = words

    @property
    def language(self) -> LanguageHead | None:
        return self.words

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        assert inputs.choices is not None
        pooled = tap(self, "pooled", self.pooler(hidden, inputs))
        scores = self.output(F.dropout(pooled, self.dropout, self.training))
        if self.activation is not None:
            scores = self.activation(scores)
        scores = F.dropout(scores, self.last_dropout, self.training)
        logits = tap(self, "logits", scores.view(-1, inputs.choices))
        loss = None if inputs.labels is None else F.cross_entropy(logits, inputs.labels.view(-1))
        if self.words is None:
            return Output(logits=logits, loss=loss)
        words = self.words(hidden, HeadInputs(labels=inputs.lm_labels, logits_to_keep=inputs.logits_to_keep))
        if words.loss is not None:
            loss = words.loss if loss is None else loss + words.loss
        return Output(logits=logits, lm_logits=words.logits.unflatten(0, (-1, inputs.choices)), loss=loss)


def check_labels(labels: Tensor, size: int, hidden: Tensor | None = None) -> None:
    """Labels are whole numbers below `size`, or -100 for what does not count; looked at on the CPU only.

    hidden   what they must be as many as: (batch, time, …)
    """
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dtype == torch.bool:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise InputError(f"labels must be a tensor of whole numbers here, not {kind}.")
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = labels[(labels != -100) & ((labels < 0) | (labels >= size))]
        if wrong.numel():
            raise InputError(f"labels hold {int(wrong[0])}; they can be 0 to {size - 1}, or -100 to leave one out.")
    if hidden is not None and labels.shape != hidden.shape[:-1]:
        raise InputError(
            f"labels must have the shape of the input, {tuple(hidden.shape[:-1])}, not {tuple(labels.shape)}."
        )


def language_loss(logits: Tensor, labels: Tensor | None, shift: bool, smoothing: float = 0.0) -> Tensor | None:
    if labels is None:
        return None
    check_labels(labels, logits.shape[-1], logits)
    if shift:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.reshape(-1), label_smoothing=smoothing)


def span_loss(start: Tensor, end: Tensor, first: Tensor | None, last: Tensor | None) -> Tensor | None:
    """start, end (batch, time): scores; first, last (batch,): where the answer is. Beyond the text: left out."""
    if first is None or last is None:
        return None
    outside = start.shape[1]
    first, last = (p.reshape(-1).clamp(0, outside) for p in (first, last))
    return (F.cross_entropy(start, first, ignore_index=outside) + F.cross_entropy(end, last, ignore_index=outside)) / 2


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
        check_labels(labels, config.num_labels)
        return F.cross_entropy(logits, labels.view(-1))
    return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
