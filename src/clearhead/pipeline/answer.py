"""Answer a question with a span of a passage: the best valid one over all windows of all passages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.session import check_numbers
from clearhead.pipeline.batches import Row, TextBatch, log, max_input_length, rows_of, run_batches, texts_of
from clearhead.pipeline.task_params import task_params
from clearhead.schema import Field

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline

_COUNTS = (
    Field(name="top_k", type=int, default=1, least=1),
    Field(name="max_answer_len", type=int, default=15, least=1),
    Field(name="max_seq_len", type=int, default=384, least=8),
    Field(name="doc_stride", type=int, default=128, least=0),
)


@dataclass(frozen=True)
class Answer:
    """passage[start:end], or "" where the passage has no answer."""

    text: str
    score: float  # P(start) · P(end) within its window
    start: int
    end: int
    passage: int = 0  # which of the passages, where there are several


@dataclass(frozen=True)
class PassageWindow:
    """A part of a passage behind the question."""

    item: int  # which question with which passage
    row: Row
    offsets: list[tuple[int, int]]
    words: list[int | None]  # the word that each token is part of
    context: Tensor  # (time,): whether a token is the passage's
    cls: int | None  # where "no answer" is pointed at


@torch.no_grad()
def answer(
    pipe: TextPipeline,
    question: str | list[str],
    passage: str | list[str],
    *,
    top_k: int = 1,
    max_answer_len: int = 15,
    max_seq_len: int = 384,
    doc_stride: int = 128,
    handle_impossible_answer: bool | None = None,
    batch_size: int = 32,
) -> Answer | list[Answer] | list[list[Answer]]:
    """TextPipeline.answer."""
    if pipe.model.task != "question-answering":
        raise InputError(
            f"{pipe.title} is loaded for {pipe.model.task}; only a model that was trained to find answers can answer. "
            "Choose a checkpoint for question-answering."
        )
    for field, value in zip(_COUNTS, (top_k, max_answer_len, max_seq_len, doc_stride), strict=True):
        field.check(value)
    if handle_impossible_answer is None:
        stored = task_params(pipe.model.config, "question-answering")
        handle_impossible_answer = bool(stored.get("handle_impossible_answer"))
    questions, passages = texts_of(question), texts_of(passage)
    together = isinstance(question, str)  # the passages are ranked together
    if not together and (isinstance(passage, str) or len(questions) != len(passages)):
        raise InputError(
            f"There are {len(questions)} questions, so there must be a list of as many passages. "
            "To ask several passages the same thing, give the question as one text."
        )
    windows = [
        window
        for n, text in enumerate(passages)
        for window in passage_windows(pipe, n, questions[0 if together else n], text, max_seq_len, doc_stride)
    ]

    def logits(batch: TextBatch) -> list[tuple[Tensor, Tensor]]:
        out = pipe.model(**batch.inputs)
        check_numbers(torch.cat([out.start_logits, out.end_logits], -1), pipe.model)
        return list(zip(out.start_logits.float().cpu(), out.end_logits.float().cpu(), strict=True))

    scores = run_batches(pipe, [window.row for window in windows], logits, batch_size)
    answers_by_item: list[list[Answer]] = [[] for _ in range(1 if together else len(questions))]
    nulls = [math.inf] * len(answers_by_item)
    for window, (start, end) in zip(windows, scores, strict=True):
        item = 0 if together else window.item
        spans, null = _best_spans(window, start, end, max_answer_len, 2 * top_k + 10)
        nulls[item] = min(nulls[item], null)
        for score, first, last in spans:
            answers_by_item[item].append(
                Answer(passages[window.item][first:last], score, first, last, window.item if together else 0)
            )
    if handle_impossible_answer:
        for answers, null in zip(answers_by_item, nulls, strict=True):
            answers.append(Answer("", null, 0, 0))
    ranked = [_ranked(answers)[:top_k] for answers in answers_by_item]
    results: list[Any] = [row[0] for row in ranked] if top_k == 1 else ranked
    return results[0] if together else results


def _ranked(answers: list[Answer]) -> list[Answer]:
    """Best first, each place once: overlapping windows find it twice."""
    by_place: dict[tuple[int, int, int], Answer] = {}
    for answer in sorted(answers, key=lambda answer: answer.score, reverse=True):
        by_place.setdefault((answer.passage, answer.start, answer.end), answer)
    return list(by_place.values()) or [Answer("", 0.0, 0, 0)]


def passage_windows(
    pipe: TextPipeline, item: int, question: str, passage: str, max_seq_len: int, doc_stride: int
) -> Iterator[PassageWindow]:
    """The question with the passage, or with parts of it that overlap by `doc_stride` tokens."""
    tokenizer = pipe.tokenizer
    limit = min(max_input_length(pipe.model, tokenizer), tokenizer.model_max_length, max_seq_len)
    question_ids = tokenizer(question, add_special_tokens=False)
    question_length = len(question_ids["input_ids"])
    if question_length > limit // 2:  # more would leave too little room for the passage
        log.warning("The question has %s tokens; it was cut to %s.", question_length, limit // 2)
        question_length = limit // 2
        question = question[: question_ids.offsets()[question_length - 1][1]]
    capacity = limit - question_length - tokenizer.num_special_tokens_to_add(pair=True)
    # as published: where padding is on the left (XLNet), the passage comes first
    first = tokenizer.padding_side == "left"
    encoding = tokenizer(
        [passage if first else question],
        [question if first else passage],
        truncation="only_first" if first else "only_second",
        max_length=limit,
        stride=min(doc_stride, limit // 2, capacity // 2),
        return_overflowing_tokens=True,
    )
    for n, row in enumerate(rows_of(pipe.model, encoding)):
        ids = row["input_ids"]
        context = torch.tensor([side == (0 if first else 1) for side in encoding.sequence_ids(n)])
        cls = ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else None
        yield PassageWindow(item, row, encoding.offsets(n), encoding.word_ids(n), context, cls)


def _best_spans(
    window: PassageWindow, start: Tensor, end: Tensor, max_answer_len: int, count: int
) -> tuple[list[tuple[float, int, int]], float]:
    """(probability, first character, character after the last) of the best spans; the probability of no answer.

    start, end   (time or more,): logits. Only the passage and [CLS] share the probability, and a span is at most
                 max_answer_len tokens of the passage, made longer to whole words
    """
    time = len(window.context)
    allowed = window.context.clone()
    if window.cls is not None:
        allowed[window.cls] = True
    if not bool(window.context.any()):
        return [], 1.0
    starts, ends = (logits[:time].masked_fill(~allowed, -torch.inf).softmax(-1) for logits in (start, end))
    null = 0.0 if window.cls is None else float(starts[window.cls] * ends[window.cls])
    inside = window.context.float()
    spans = torch.outer(starts * inside, ends * inside).triu().tril(max_answer_len - 1)
    best = spans.flatten().topk(min(count, spans.numel()))
    found = []
    for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        first, last = divmod(place, time)
        if window.context[first] and window.context[last] and first <= last < first + max_answer_len:
            found.append((score, _word_edge(window, first)[0], _word_edge(window, last)[1]))
    return found, null


def _word_edge(window: PassageWindow, token: int) -> tuple[int, int]:
    """The characters of the word that the token is part of; of the token alone where there are no words."""
    word = window.words[token]
    if word is None:
        return window.offsets[token]
    pieces = [
        span
        for span, other, inside in zip(window.offsets, window.words, window.context.tolist(), strict=True)
        if inside and other == word
    ]
    return min(first for first, _ in pieces), max(last for _, last in pieces)
