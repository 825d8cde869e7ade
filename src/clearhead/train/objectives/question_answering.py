"""Where in a text the answer to a question stands: SQuAD's task, with SQuAD's own figures."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models.heads import span_loss
from clearhead.text import Encoding, Tokenizer
from clearhead.train.data.types import Batch, Example, Record
from clearhead.train.objectives.base import term_sums
from clearhead.train.objectives.fields import place, text_of
from clearhead.train.objectives.sequence import SequenceObjective

if TYPE_CHECKING:
    from clearhead.pipeline import TextPipeline
    from clearhead.train.data.table import Table


@dataclass
class _ContextWindow:
    """A part of the context that fits: its tokens, and where in the context each stands (None: not of the context)."""

    example: Example
    spans: list[tuple[int, int] | None]
    cls: int


class QuestionAnswering(SequenceObjective):
    """The first answer of a record is learned; a window that does not hold all of it points at [CLS].

    answers: {"text": [...], "answer_start": [...]}, or a list of {"text", "answer_start"}, as SQuAD's data set and its
    file have them (empty lists: no answer); or the columns answer and answer_start. Without a start, the first place
    where the answer stands.

    doc_stride        how far a window of a long context moves, in tokens (BERT's meaning: the step, not the overlap)
    question_length   longer questions are cut
    answer_length     the longest answer that is given, in tokens
    """

    name = "question-answering"
    task = "question-answering"
    columns = ("question", "context")
    higher_is_better = frozenset({"exact_positions", "exact_match", "f1"})

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        doc_stride: int = 128,
        question_length: int = 64,
        answer_length: int = 30,
    ) -> None:
        super().__init__(tokenizer, length)
        if min(doc_stride, question_length, answer_length) < 1:
            raise InputError("doc_stride, question_length and answer_length are numbers of tokens, at least 1.")
        self.doc_stride, self.question_length, self.answer_length = doc_stride, question_length, answer_length
        self.may_refuse = False  # whether some questions of the training data have no answer

    def learn_labels(self, records: Iterator[Record]) -> None:
        self.may_refuse = any(not self.answers(record) for record in records)

    @property
    def learned_labels(self) -> Any:
        return self.may_refuse

    @learned_labels.setter
    def learned_labels(self, labels: Any) -> None:
        self.may_refuse = bool(labels)

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """Whether "no answer" was learned is kept where pipe.answer looks for it."""
        config = super().configure(config)
        if not self.may_refuse:
            return config
        params = config.get("task_specific_params") or {}
        params_of_task = {**params.get(self.task, {}), "handle_impossible_answer": True}
        return config | {"task_specific_params": {**params, self.task: params_of_task}}

    def identity(self) -> dict[str, Any]:
        own = {"doc_stride": self.doc_stride, "question_length": self.question_length}
        return super().identity() | own | ({"context_first": True} if self.context_first else {})

    def encode(self, record: Record) -> Iterator[Example]:
        answers = self.answers(record)
        for window in self._windows(record):
            first = last = window.cls
            if answers:
                text, start = answers[0]
                inside = _token_span(window.spans, start, start + len(text))
                first, last = inside or (first, last)
            yield window.example | {"start": first, "end": last}

    def data_notes(self, training: Table) -> list[str]:
        if training.distinct("start") == training.distinct("end") == [0]:
            return ["No training example holds an answer: the model will learn to give none."]
        return []

    def answers(self, record: Record) -> list[tuple[str, int]]:
        """(text, where it starts) of each answer; none where the question has none."""
        self.check(record)
        context = text_of(record, "context")
        if record.get("answers") is not None:
            answers = record["answers"]
            if isinstance(answers, list) and all(
                isinstance(answer, Mapping) and "text" in answer for answer in answers
            ):
                answers = {name: [answer.get(name) for answer in answers] for name in ("text", "answer_start")}
            is_valid = isinstance(answers, Mapping) and isinstance(answers.get("text"), list)
            if not is_valid or not isinstance(answers.get("answer_start", []), list | None):
                raise InputError(
                    f'{place(record)}: answers must look like {{"text": [...], "answer_start": [...]}}, or like '
                    '[{"text": ..., "answer_start": ...}], as in SQuAD\'s file.'
                )
            texts = answers["text"]
            starts = answers.get("answer_start") or [None] * len(texts)
        elif "answer" in record:
            texts = [record["answer"]] if record["answer"] else []
            starts = [record.get("answer_start")] * len(texts)
        else:
            raise InputError(
                f"{place(record)} has no column 'answers' (as in SQuAD) nor 'answer'. "
                "Name yours in the recipe: data.columns.answers=…"
            )
        if len(texts) != len(starts):
            raise InputError(
                f"{place(record)}: there are {len(texts)} answers but {len(starts)} values of answer_start."
            )
        return [(text, _answer_start(record, context, text, start)) for text, start in zip(texts, starts, strict=True)]

    @property
    def context_first(self) -> bool:
        """As published, and as pipe.answer reads: before the question where padding is on the left (XLNet)."""
        return self.tokenizer.padding_side == "left"

    def _windows(self, record: Record) -> Iterator[_ContextWindow]:
        question, context = text_of(record, "question"), text_of(record, "context")
        encoded = self.tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)
        question_tokens = len(encoded["input_ids"])
        if question_tokens > self.question_length:
            question, question_tokens = (
                question[: encoded["offset_mapping"][self.question_length - 1][1]],
                self.question_length,
            )
        capacity = self.length - question_tokens - self.tokenizer.num_special_tokens_to_add(pair=True)
        if capacity < 1:
            raise InputError(
                f"{place(record)}: the question takes {question_tokens} tokens, which leaves no room for the context "
                f"in length={self.length}. Choose a greater length, or a smaller question_length."
            )
        step = self.doc_stride if self.doc_stride < capacity else max(capacity // 2, 1)
        context_first = self.context_first
        encoding = self.tokenizer(
            [context if context_first else question],
            [question if context_first else context],
            truncation="only_first" if context_first else "only_second",
            max_length=self.length,
            stride=capacity - step,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for row in range(len(encoding["input_ids"])):
            yield self._window(encoding, row)

    def _window(self, encoding: Encoding, row: int) -> _ContextWindow:
        ids: list[int] = encoding["input_ids"][row]
        sides = encoding.sequence_ids(row)
        of_context = 0 if self.context_first else 1
        spans = [
            tuple(span) if side == of_context else None for span, side in zip(encoding.offsets(row), sides, strict=True)
        ]
        cls = self.tokenizer.cls_token_id
        return _ContextWindow(self.example(encoding, row), spans, ids.index(cls) if cls in ids else 0)  # type: ignore[arg-type]

    def collate(self, examples: Sequence[Example]) -> Batch:
        inputs = self.inputs(examples)
        is_left_padded = self.tokenizer.padding_side == "left"
        shift = (inputs["attention_mask"] == 0).sum(1) * is_left_padded  # by padding on the left
        inputs["start_positions"] = torch.tensor([int(e["start"]) for e in examples]) + shift
        inputs["end_positions"] = torch.tensor([int(e["end"]) for e in examples]) + shift
        return Batch(inputs, {"loss": len(examples)}, int(inputs["attention_mask"].sum()))

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"loss": self._loss(*self._scores(model, batch), batch)}

    def _scores(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The scores of starts and ends, each (batch, time). Padding has none: how much of it there is must not count.

        The model's own loss lets padding compete with the text, as the published code does."""
        out = model(**{name: t for name, t in self.model_inputs(batch).items() if not name.endswith("_positions")})
        hidden = batch.inputs["attention_mask"] == 0
        return out.start_logits.masked_fill(hidden, -torch.inf), out.end_logits.masked_fill(hidden, -torch.inf)

    @staticmethod
    def _loss(first: Tensor, last: Tensor, batch: Batch) -> Tensor:
        loss = span_loss(first, last, batch.inputs["start_positions"], batch.inputs["end_positions"])
        assert loss is not None
        return loss

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        first, last = self._scores(model, batch)
        starts, ends = batch.inputs["start_positions"], batch.inputs["end_positions"]
        correct = (first.argmax(1) == starts) & (last.argmax(1) == ends)
        return term_sums({"loss": self._loss(first, last, batch)}, batch) | {"correct": float(correct.sum())}

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        return super().report(sums) | {"exact_positions": sums["correct"] / max(sums["loss.count"], 1)}

    @torch.no_grad()
    def evaluate_test(self, pipe: TextPipeline, records: Iterable[Record], **options: Any) -> dict[str, float]:
        """Exact match and F1 in percent, as SQuAD's own script has them: the best over the answers that are right."""
        self.check_test_options(options, {})
        pairs = [(self.answers(record), record) for record in records]
        if not pairs:
            raise InputError("There is nothing to answer: the test data has no records.")
        may_refuse = any(not answers for answers, _ in pairs)
        exact = f1 = 0.0
        for done, (answers, record) in enumerate(pairs):
            self.watch(done, len(pairs))
            answer = self.answer(pipe, record, may_refuse)
            gold = [text for text, _ in answers] or [""]
            exact += max(float(normalised(answer) == normalised(text)) for text in gold)
            f1 += max(overlap_f1(answer, text) for text in gold)
        return {"exact_match": 100 * exact / len(pairs), "f1": 100 * f1 / len(pairs)}

    @torch.no_grad()
    def answer(self, pipe: TextPipeline, record: Record, may_refuse: bool = False) -> str:
        """The best span over all windows: start ≤ end, no longer than answer_length, inside the context.

        may_refuse   "" where [CLS] scores higher than every span, as in SQuAD 2
        """
        windows = list(self._windows(record))
        model = pipe.model
        self.segments = model.reads_segments
        best, answer, refusal = -np.inf, "", np.inf
        for start in range(0, len(windows), 16):
            chunk = windows[start : start + 16]
            batch = self.collate([window.example | {"start": 0, "end": 0} for window in chunk]).to(model.device)
            real_positions = batch.inputs["attention_mask"].bool()
            for window, real, first, last in zip(chunk, real_positions, *self._scores(model, batch), strict=True):
                first, last = first[real].float().cpu(), last[real].float().cpu()
                refusal = min(refusal, float(first[window.cls] + last[window.cls]))
                score, begin, end = self._best(first, last, window)
                if score > best:
                    best, answer = score, record["context"][begin:end]
        return "" if may_refuse and refusal > best else answer.strip()

    def _best(self, first: Tensor, last: Tensor, window: _ContextWindow) -> tuple[float, int, int]:
        """The score of the best span, and its characters."""
        context = torch.tensor([span is not None for span in window.spans])
        pairs = first[:, None] + last[None, :]  # (start, end)
        allowed = (context[:, None] & context[None, :]).triu().tril(self.answer_length - 1)
        pairs = pairs.masked_fill(~allowed, -torch.inf)
        begin, end = divmod(int(pairs.argmax()), len(last))
        opening, closing = window.spans[begin], window.spans[end]
        if opening is None or closing is None:
            return -np.inf, 0, 0
        return float(pairs[begin, end]), opening[0], closing[1]


def _answer_start(record: Record, context: str, text: Any, start: Any) -> int:
    """Where the answer starts: as said, or at the nearest place where it really stands."""
    if not isinstance(text, str) or not text:
        raise InputError(f"{place(record)}: an answer must be a text, but it is {text!r}.")
    if start is not None and (not isinstance(start, int | float) or isinstance(start, bool) or start != int(start)):
        raise InputError(f"{place(record)}: answer_start is {start!r}; it must be a whole number, counted from 0.")
    start = 0 if start is None else int(start)
    if context[start : start + len(text)] == text:
        return start
    starts = [match.start() for match in re.finditer(re.escape(text), context)]
    if not starts:
        raise InputError(f"{place(record)}: the answer {text[:60]!r} does not stand in the context.")
    return min(starts, key=lambda found_at: abs(found_at - start))


def _token_span(spans: Sequence[tuple[int, int] | None], start: int, end: int) -> tuple[int, int] | None:
    """The tokens that cover the characters from start to end; None where the window does not hold all of them."""
    inside = [(n, span) for n, span in enumerate(spans) if span is not None]
    if not inside or inside[0][1][0] > start or inside[-1][1][1] < end:
        return None
    first = max(n for n, (begin, _) in inside if begin <= start)
    last = min(n for n, (_, stop) in inside if stop >= end)
    return (first, last) if first <= last else None


_PUNCTUATION = set(string.punctuation)
_CJK_PUNCTUATION = "\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # written without spaces: a token each


def normalised(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces: SQuAD's normalisation (and no CJK punctuation)."""
    text = "".join(char for char in text.lower() if char not in _PUNCTUATION)
    text = re.sub(f"[{_CJK_PUNCTUATION}]", " " if re.search(r"\s", text) else "", text)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def overlap_f1(answer: str, gold: str) -> float:
    """F1 of the words that both share; of Chinese, of the characters."""
    ours, theirs = (re.sub(f"([{_CJK}])", r" \1 ", normalised(text)).split() for text in (answer, gold))
    if not ours or not theirs:
        return float(ours == theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))
