"""What a model with a head predicts: labels with their probabilities, hidden words, the next sentence, a span."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.capabilities import answers_as_it_stands, has_tokenizer
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_count
from clearhead.explain.inference import call, eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import Setting, count
from clearhead.explain.word_choice import comma_separated, unquoted
from clearhead.messages import say
from clearhead.pipeline import Pipeline, Reading
from clearhead.text.units import display_texts, units_of_ids
from clearhead.units import Unit

AnswerKind = Literal["label", "labels", "number", "next-sentence", "word", "token-label", "replaced", "span"]
FOLLOWS = ("follows", "does not follow")  # in the order of the head's two scores


@dataclass(frozen=True)
class LabelScore:
    """One possible answer. probability: None where the head gives a number that is none."""

    label: str
    probability: float | None
    score: float  # as the head gives it


@dataclass(frozen=True)
class PredictedAnswer:
    """What is said of one place, or of the whole.

    kind       "label": one of several; "labels": each for itself, yes or no; "number": a score as it is;
               "next-sentence"; "word": what is hidden here; "token-label"; "replaced": is this token another's;
               "span": where the answer to a question stands
    position   the token it speaks of; None: the whole text. Of a span the first one, and `last` its last
    choices    the likeliest first
    """

    kind: AnswerKind
    position: int | None
    choices: list[LabelScore]
    last: int | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Prediction(Finding):
    kind: ClassVar[str] = "prediction"

    model: str
    task: str
    tokens: Sequence[Unit]
    answers: list[PredictedAnswer]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["kind", "position", "token", "label", "probability", "score"]
        for one in self.answers:
            token = None if one.position is None else self.tokens[one.position].text
            for choice in one.choices:
                yield [one.kind, one.position, token, choice.label, choice.probability, choice.score]


def prediction(
    pipe: Pipeline, text: str, pair: str | None = None, top_k: int = 5, choices: list[str] | None = None
) -> Prediction:
    """What the head says.

    pair      a second text: the sentence that may follow, the premise's hypothesis, the text that a question asks
    top_k     for hidden words, and places of an answer: how many candidates
    choices   multiple choice: the continuations to choose from
    """
    checked_count("top_k", top_k)
    kind = pipe.model.head.answers
    if kind == "choice":
        return _choose(pipe, text, choices)
    if choices is not None:
        raise InputError(say("explain.only_multiple_choice", task=pipe.model.task))
    _check(pipe, kind, pair)
    reading = pipe.read(text, pair)
    with eval_mode(pipe.model):
        out = call(pipe, reading)
    answers: list[PredictedAnswer] = []
    labels = [label for _, label in sorted(pipe.model.config.id2label.items())]
    if kind == "next-sentence":
        answers = [_best_label("next-sentence", FOLLOWS, out.logits[0])]
    elif kind in ("pretraining", "words"):
        if kind == "pretraining" and pair is not None:
            answers = [_best_label("next-sentence", FOLLOWS, out.seq_relationship_logits[0])]
        answers += _words(pipe, reading, out.logits[0], top_k, needed=not answers)
    elif kind == "label":
        answers = [_sequence(pipe, labels, out.logits[0])]
    elif kind == "token-labels":
        answers = [
            _best_label("token-label", labels, row, position)
            for position, (token, row) in enumerate(zip(reading.units, out.logits[0], strict=True))
            if not token.special
        ]
    elif kind == "replaced":
        for position, (token, score) in enumerate(zip(reading.units, out.logits[0].float().tolist(), strict=True)):
            if not token.special:
                probability = float(torch.tensor(score).sigmoid())
                answers.append(PredictedAnswer("replaced", position, [LabelScore("replaced", probability, score)]))
    elif kind == "span":
        answers = _spans(pipe, reading, out.start_logits[0].float(), out.end_logits[0].float(), top_k)
    return Prediction(pipe.name, pipe.model.task, reading.outputs, answers)


def _name(pipe: Pipeline) -> str:
    return pipe.name or "This model"


def _check(pipe: Pipeline, kind: str, pair: str | None) -> None:
    language = pipe.model.language_head
    masked = language is not None and not language.shift and pipe.model.task == "masked-lm"
    if kind == "vectors" or (kind == "words" and not masked):
        if pipe.model.can_generate:
            raise InputError(say("explain.ask_for_next_token"))
        raise InputError(say("explain.gives_vectors", task=pipe.model.task))
    if pair is None and kind == "next-sentence":
        raise InputError(say("explain.follows_takes_two"))
    if pair is None and kind == "span":
        raise InputError(say("explain.span_takes_two"))


def _best_label(
    kind: AnswerKind, labels: Iterable[str], logits: Tensor, position: int | None = None
) -> PredictedAnswer:
    """One of several labels, by softmax."""
    scores = logits.float()
    rows = zip(labels, scores.softmax(-1).tolist(), scores.tolist(), strict=True)
    scored = [LabelScore(*row) for row in rows]
    return PredictedAnswer(kind, position, sorted(scored, key=lambda choice: -choice.score))


def _sequence(pipe: Pipeline, labels: list[str], logits: Tensor) -> PredictedAnswer:
    kind = pipe.model.config.problem_type
    if kind == "regression" or len(labels) == 1:
        pairs = zip(labels, logits.float().tolist(), strict=True)
        return PredictedAnswer("number", None, [LabelScore(label, None, score) for label, score in pairs])
    if kind == "multi_label_classification":
        scores = logits.float()
        rows = zip(labels, scores.sigmoid().tolist(), scores.tolist(), strict=True)
        ranked = sorted((LabelScore(*row) for row in rows), key=lambda choice: -choice.score)
        return PredictedAnswer("labels", None, ranked)
    return _best_label("label", labels, logits)


def _words(pipe: Pipeline, reading: Reading, logits: Tensor, top_k: int, needed: bool) -> list[PredictedAnswer]:
    """The likeliest words for every mask in the text."""
    mask = pipe.tokenizer.mask_token_id
    masks = [n for n, token in enumerate(reading.units) if token.id == mask]
    if needed and not masks:
        raise InputError(say("explain.no_mask", mask=pipe.tokenizer.mask_token))
    answers = []
    for position in masks:
        scores = logits[position].float()
        best = scores.topk(min(top_k, len(scores)))
        probabilities = scores.softmax(-1)[best.indices].tolist()
        words = display_texts(pipe.tokenizer, best.indices.tolist())
        rows = zip(words, probabilities, best.values.tolist(), strict=True)
        answers.append(PredictedAnswer("word", position, [LabelScore(*row) for row in rows]))
    return answers


def _spans(pipe: Pipeline, reading: Reading, start: Tensor, end: Tensor, top_k: int) -> list[PredictedAnswer]:
    """The likeliest places in the second text, by p(start) · p(end), at most 30 tokens long."""
    inside = torch.tensor([token.segment == 1 and not token.special for token in reading.units], device=start.device)
    log_p = start.log_softmax(-1)[:, None] + end.log_softmax(-1)[None, :]  # (first, last)
    score = start[:, None] + end[None, :]
    possible = torch.ones_like(log_p).triu().tril(29).bool() & inside[:, None] & inside[None, :]
    best = log_p.masked_fill(~possible, -torch.inf).flatten().topk(min(top_k, int(possible.sum())))
    spans = [divmod(n, len(start)) for n in best.indices.tolist()]
    ids = [token.id for token in reading.units]
    answers = [
        LabelScore(pipe.tokenizer.decode(ids[a : b + 1]).strip(), float(log_p[a, b].exp()), float(score[a, b]))
        for a, b in spans
    ]
    return [PredictedAnswer("span", spans[0][0], answers, last=spans[0][1])] if spans else []


def _choose(pipe: Pipeline, text: str, choices: list[str] | None) -> Prediction:
    """Multiple choice: each continuation is read with the text, alone, and their scores are compared."""
    continuations = choices if isinstance(choices, list | tuple) else []
    if len(continuations) < 2 or not all(isinstance(choice, str) and choice.strip() for choice in continuations):
        raise InputError(say("explain.two_choices"))
    if not isinstance(text, str) or not text.strip():
        raise InputError(say("questions.no_text"))
    inputs = _choice_inputs(pipe, text, continuations)
    with eval_mode(pipe.model):
        out = pipe.model(**inputs)
    tokens = units_of_ids(pipe.tokenizer, pipe.tokenizer.encode(text), text)
    return Prediction(pipe.name, pipe.model.task, tokens, [_best_label("label", continuations, out.logits[0])])


def _choice_inputs(pipe: Pipeline, text: str, continuations: Sequence[str]) -> dict[str, Tensor]:
    """The text with each continuation, (1, choices, time); padding is masked, so a tokenizer need not know any."""
    rows = [pipe.tokenizer(text, continuation) for continuation in continuations]
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": pipe.tokenizer.pad_token_id or 0, "token_type_ids": pipe.tokenizer.pad_token_type_id}
    inputs = {
        name: torch.tensor([[row[name] + [fill.get(name, 0)] * (longest - len(row[name])) for row in rows]])
        for name in rows[0]
    }
    if pipe.model.has_double_heads:  # it is told where each choice is read: at its last token
        inputs["mc_token_ids"] = inputs["attention_mask"].sum(-1) - 1
    return {name: value.to(pipe.model.device) for name, value in inputs.items()}


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: str | None, k: int, choices: str | None) -> Prediction:
    continuations = None if choices is None else [unquoted(choice) for choice in comma_separated(choices)]
    return prediction(pipe, text, second, k, continuations)


QUESTION = Question(
    name="prediction", kind="prediction", group="answer", answer=_answer, second="pair",
    checks=(has_tokenizer, answers_as_it_stands),
    params=(count("prediction.k", 5), Setting(name="choices", key="prediction.choices", type=str)),
)  # fmt: skip
