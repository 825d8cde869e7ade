"""What a model with a head answers: labels with their chances, hidden words, whether a sentence follows another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.answering import writes
from clearhead.explain.finding import Finding
from clearhead.explain.reading import at_rest, call
from clearhead.models.heads import (
    ChoiceHead,
    LanguageHead,
    NextSentenceHead,
    PretrainingHead,
    ReplacedHead,
    SequenceHead,
    SpanHead,
    TokenHead,
)
from clearhead.pipeline import Pipeline, Reading
from clearhead.text.units import display_texts, units_of_ids
from clearhead.units import TokenUnit

What = Literal["label", "labels", "number", "next-sentence", "word", "token-label", "replaced", "span"]
FOLLOWS = ("follows", "does not follow")  # in the order of the head's two scores


@dataclass(frozen=True)
class Choice:
    """One possible answer. probability: None where the head gives a number that is none."""

    label: str
    probability: float | None
    score: float  # as the head gives it


@dataclass(frozen=True)
class Answer:
    """What is said of one place, or of the whole.

    what       "label": one of several; "labels": each for itself, yes or no; "number": a score as it is;
               "next-sentence"; "word": what is hidden here; "token-label"; "replaced": is this token another's;
               "span": where the answer to a question stands
    position   the token it speaks of; None: the whole text. Of a span the first one, and `last` its last
    choices    the likeliest first
    """

    what: What
    position: int | None
    choices: list[Choice]
    last: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Prediction(Finding):
    kind: ClassVar[str] = "prediction"

    model: str
    task: str
    tokens: list[TokenUnit]
    answers: list[Answer]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["what", "position", "token", "label", "probability", "score"]
        for one in self.answers:
            token = None if one.position is None else self.tokens[one.position].text
            for choice in one.choices:
                yield [one.what, one.position, token, choice.label, choice.probability, choice.score]


def prediction(
    pipe: Pipeline, text: str, pair: str | None = None, top_k: int = 5, choices: list[str] | None = None
) -> Prediction:
    """What the head says.

    pair      a second text: the sentence that may follow, the premise's hypothesis, the text that a question asks
    top_k     for hidden words, and places of an answer: how many candidates
    choices   multiple choice: the continuations to choose from
    """
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise InputError(f"top_k is {top_k!r}; ask for at least one answer.")
    head = pipe.model.head
    if isinstance(head, ChoiceHead):
        return _choose(pipe, text, choices)
    if choices is not None:
        raise InputError(f"{_name(pipe)} is loaded for {pipe.model.task}; only multiple choice takes choices.")
    _check(pipe, head, pair)
    reading = pipe.read(text, pair)
    with at_rest(pipe.model):
        out = call(pipe, reading)
    answers: list[Answer] = []
    labels = [label for _, label in sorted(pipe.model.config.id2label.items())]
    if isinstance(head, NextSentenceHead):
        answers = [_one("next-sentence", FOLLOWS, out.logits[0])]
    elif isinstance(head, PretrainingHead | LanguageHead):
        if isinstance(head, PretrainingHead) and pair is not None:
            answers = [_one("next-sentence", FOLLOWS, out.seq_relationship_logits[0])]
        answers += _words(pipe, reading, out.logits[0], top_k, needed=not answers)
    elif isinstance(head, SequenceHead):
        answers = [_sequence(pipe, labels, out.logits[0])]
    elif isinstance(head, TokenHead):
        answers = [
            _one("token-label", labels, row, position)
            for position, (token, row) in enumerate(zip(reading.units, out.logits[0], strict=True))
            if not token.special
        ]
    elif isinstance(head, ReplacedHead):
        for position, (token, score) in enumerate(zip(reading.units, out.logits[0].float().tolist(), strict=True)):
            if not token.special:
                chance = float(torch.tensor(score).sigmoid())
                answers.append(Answer("replaced", position, [Choice("replaced", chance, score)]))
    elif isinstance(head, SpanHead):
        answers = _spans(pipe, reading, out.start_logits[0].float(), out.end_logits[0].float(), top_k)
    return Prediction(pipe.name, pipe.model.task, reading.outputs, answers)


def _name(pipe: Pipeline) -> str:
    return pipe.name or "This model"


def _check(pipe: Pipeline, head: Any, pair: str | None) -> None:
    known = (NextSentenceHead, PretrainingHead, SequenceHead, TokenHead, ReplacedHead, SpanHead)
    language = pipe.model.language_head
    masked = language is not None and not language.shift and pipe.model.task == "masked-lm"
    if not isinstance(head, known) and not masked:
        other = "writes: ask for its next token" if writes(pipe) else "has no head that answers a text as it stands"
        raise InputError(f"{_name(pipe)} is loaded for {pipe.model.task} and {other}.")
    if pair is None and isinstance(head, NextSentenceHead):
        raise InputError("Whether one sentence follows another takes two: give a second text.")
    if pair is None and isinstance(head, SpanHead):
        raise InputError("An answer is looked for in a text: give the question, then that text as the second.")


def _one(what: What, labels: Iterable[str], logits: Tensor, position: int | None = None) -> Answer:
    """One of several labels, by softmax."""
    scores = logits.float()
    rows = zip(labels, scores.softmax(-1).tolist(), scores.tolist(), strict=True)
    found = [Choice(*row) for row in rows]
    return Answer(what, position, sorted(found, key=lambda choice: -choice.score))


def _sequence(pipe: Pipeline, labels: list[str], logits: Tensor) -> Answer:
    kind = pipe.model.config.problem_type
    if kind == "regression" or len(labels) == 1:
        pairs = zip(labels, logits.float().tolist(), strict=True)
        return Answer("number", None, [Choice(label, None, score) for label, score in pairs])
    if kind == "multi_label_classification":
        scores = logits.float()
        rows = zip(labels, scores.sigmoid().tolist(), scores.tolist(), strict=True)
        return Answer("labels", None, sorted((Choice(*row) for row in rows), key=lambda choice: -choice.score))
    return _one("label", labels, logits)


def _words(pipe: Pipeline, reading: Reading, logits: Tensor, top_k: int, needed: bool) -> list[Answer]:
    """The likeliest words for every mask in the text."""
    mask = pipe.tokenizer.mask_token_id
    places = [n for n, token in enumerate(reading.units) if token.id == mask]
    if needed and not places:
        raise InputError(f"Nothing is hidden in the text. Write {pipe.tokenizer.mask_token} where a word is missing.")
    found = []
    for position in places:
        scores = logits[position].float()
        best = scores.topk(min(top_k, len(scores)))
        chances = scores.softmax(-1)[best.indices].tolist()
        words = display_texts(pipe.tokenizer, best.indices.tolist())
        rows = zip(words, chances, best.values.tolist(), strict=True)
        found.append(Answer("word", position, [Choice(*row) for row in rows]))
    return found


def _spans(pipe: Pipeline, reading: Reading, start: Tensor, end: Tensor, top_k: int) -> list[Answer]:
    """The likeliest places in the second text, by p(start) · p(end), at most 30 tokens long."""
    inside = torch.tensor([token.segment == 1 and not token.special for token in reading.units], device=start.device)
    log_p = start.log_softmax(-1)[:, None] + end.log_softmax(-1)[None, :]  # (first, last)
    score = start[:, None] + end[None, :]
    possible = torch.ones_like(log_p).triu().tril(29).bool() & inside[:, None] & inside[None, :]
    best = log_p.masked_fill(~possible, -torch.inf).flatten().topk(min(top_k, int(possible.sum())))
    spans = [divmod(n, len(start)) for n in best.indices.tolist()]
    ids = [token.id for token in reading.units]
    found = [
        Choice(pipe.tokenizer.decode(ids[a : b + 1]).strip(), float(log_p[a, b].exp()), float(score[a, b]))
        for a, b in spans
    ]
    return [Answer("span", spans[0][0], found, last=spans[0][1])] if spans else []


def _choose(pipe: Pipeline, text: str, choices: list[str] | None) -> Prediction:
    """Multiple choice: each continuation is read with the text, alone, and their scores are compared."""
    given = choices if isinstance(choices, list | tuple) else []
    if len(given) < 2 or not all(isinstance(choice, str) and choice.strip() for choice in given):
        raise InputError(f"{_name(pipe)} chooses between continuations: give two choices or more.")
    if not isinstance(text, str) or not text.strip():
        raise InputError("There is no text to explain. Give at least one word.")
    both = pipe.tokenizer([text] * len(given), list(given), padding=True, return_tensors="pt")
    inputs = {name: value[None].to(pipe.model.device) for name, value in both.items()}
    with at_rest(pipe.model):
        out = pipe.model(**inputs)
    tokens = units_of_ids(pipe.tokenizer, pipe.tokenizer.encode(text), text)
    return Prediction(pipe.name, pipe.model.task, tokens, [_one("label", given, out.logits[0])])
