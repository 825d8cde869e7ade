"""Activation patching: a tensor of one text is put into the run of another, for each layer and place in turn.

The clean text gives one answer, the corrupted text another. The corrupted one is run again and again, each time with
one piece of the clean run in it. Where the clean answer comes back, the piece carried what the answer depends on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.attention_site import AttentionSide, AttentionSite, attention_site
from clearhead.explain.capabilities import has_probabilities, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices, checked_count, checked_indices
from clearhead.explain.inference import eval_mode
from clearhead.explain.question import Question
from clearhead.explain.scores import AnswerScores, Candidate, answer_scores, batch_size_for
from clearhead.explain.settings import (
    ANSWER_POSITION,
    HEADS,
    LAYERS,
    POSITIONS,
    STACK,
    WRITTEN_SO_FAR,
    Setting,
    chosen_word,
    count,
)
from clearhead.explain.word_choice import token_or_label
from clearhead.messages import Message, say
from clearhead.nn.tracing import tap_points, trace
from clearhead.pipeline import Pipeline, Reading
from clearhead.units import Unit

By = Literal["position", "head"]


@dataclass(frozen=True, repr=False, eq=False)
class Patching(Finding):
    """
    tap               which tensor of each layer was taken from the clean run
    by                what was taken at a time: a "position", or a "head" at all positions
    clean, corrupted  the two texts: what stands where the tensor is
    positions         (by position) those of each column, together; empty by head
    heads             (by head) that of each column; empty by position
    effect            (layers, columns): 0 leaves the corrupted answer, 1 brings the clean one back. It may lie outside
    scores            (layers, columns): the same as it was measured; of what, say `metric` and the two scores
    clean_score, corrupted_score   of the two texts, untouched
    answers           what the clean text leads to, and what it is held against; None where its score stands alone
    position          whose answer it is; None where the whole text has one
    strongest         (layer, column) of the largest effect, as they are numbered in `effect`
    clean_top, corrupted_top   the likeliest answers to each text
    """

    kind: ClassVar[str] = "patching"

    model: str
    side: AttentionSide
    tap: str
    by: By
    clean: Sequence[Unit]
    corrupted: Sequence[Unit]
    layers: list[int]
    positions: list[list[int]]
    heads: list[int]
    effect: np.ndarray
    scores: np.ndarray
    clean_score: float
    corrupted_score: float
    metric: str
    answers: tuple[str, str | None]
    position: int | None
    strongest: tuple[int, int]
    clean_top: list[Candidate]
    corrupted_top: list[Candidate]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["layer", self.by, "clean_token", "corrupted_token", "effect", "score"]
        for (n, layer), k in product(enumerate(self.layers), range(self.effect.shape[1])):
            if self.by == "head":
                column = [self.heads[k], "", ""]
            else:
                texts = ("".join(tokens[p].text for p in self.positions[k]) for tokens in (self.clean, self.corrupted))
                column = [" ".join(map(str, self.positions[k])), *texts]
            yield [layer, *column, float(self.effect[n, k]), float(self.scores[n, k])]


def patching(
    pipe: Pipeline,
    clean: str,
    corrupted: str,
    tap: str = "output",
    by: By | None = None,
    answer: str | int | None = None,
    other: str | int | None = None,
    layers: Indices = None,
    positions: Indices | Sequence[Sequence[int]] = None,
    heads: Indices = None,
    position: int | None = None,
    pair: str | None = None,
    target: str | None = None,
    side: str = "auto",
    top_k: int = 5,
) -> Patching:
    """Put what the clean text makes of a tensor into the run of the corrupted text, one layer and place at a time.

    clean, corrupted   two texts of as many tokens, which differ where it should matter
    tap          a tensor that every layer has: "input" or "output" (the residual stream before or after the layer),
                 "attention.output", "feedforward.output", "attention.heads" or any other of docs/architecture.md
    by           a "position" at a time, or a "head"; by default heads where the tensor has them
    answer       the token or label whose score is followed; by default the clean text's own answer, held against the
                 corrupted text's
    other        the score of `answer` is taken above the score of this one
    layers, positions, heads   where; by default everywhere. Positions may be lists of positions, swapped together
    position     whose answer is followed; by default the next token (of an encoder–decoder the first it writes), the
                 first masked word, or the label of the text
    pair         a second text, which follows both
    target       of an encoder–decoder: what it has written so far
    side         of an encoder–decoder: whose tensor, the "encoder"'s (the default) or the "decoder"'s
    """
    checked_count("top_k", top_k)
    if other is not None and answer is None:
        raise InputError(say("explain.choose_the_answer_too"))
    if not isinstance(tap, str):
        raise InputError(say("explain.tap_is_a_name", got=type(tap).__name__))
    scores = answer_scores(pipe)
    tap, side = _named(pipe, tap, side)
    if target is None and scores.writes:
        target = ""  # the first token that would be written
    good, bad = (attention_site(pipe, text, pair, target, side) for text in (clean, corrupted))
    _check_pair(good, bad)
    where = scores.position(good.reading, position)
    if scores.position(bad.reading, position) != where:
        raise InputError(say("explain.masks_differ"))
    layers = good.layers(layers)
    names = {layer: _tap_name(good, layer, tap) for layer in layers}
    _check_tap(pipe, names[layers[0]], tap)
    with eval_mode(pipe.model):
        kept, wanted = _run(good, scores, where, names)
        there, got = _run(bad, scores, where, names)
        if any(kept[layer].shape != there[layer].shape for layer in layers):
            raise InputError(say("explain.shapes_differ", tap=tap))
        swap = _Swap.of(kept, by, positions, heads, len(good.queries), tap)
        metric = _Metric.of(scores, wanted, got, answer, other)
        measured, base = _patched(bad, scores, where, names, swap, metric)
    gap = metric(wanted) - metric(got)
    if abs(gap) <= 1e-5 * max(1.0, abs(metric(wanted))):
        raise InputError(say("explain.nothing_to_bring_back", metric=metric.title))
    shape = (len(layers), len(swap.columns))
    effect = ((measured - base) / gap).reshape(shape)
    best = np.unravel_index(int(effect.argmax()), shape)
    return Patching(
        pipe.name, good.side, f"layers.*.{tap}", swap.by, good.queries, bad.queries, layers,
        swap.columns if swap.by == "position" else [], [k for (k,) in swap.columns] if swap.by == "head" else [],
        effect, (metric(got) + measured - base).reshape(shape), metric(wanted), metric(got), metric.title, metric.names,
        where, (int(best[0]), int(best[1])), scores.likeliest(wanted, top_k), scores.likeliest(got, top_k),
    )  # fmt: skip


def _named(pipe: Pipeline, tap: str, side: str) -> tuple[str, str]:
    """A tap as a layer knows it, and whose layers are meant; the whole name may be given, "encoder.layers.*.output"."""
    full_name = re.fullmatch(r"(?:(encoder|decoder)\.)?layers\.\*\.(.+)", tap)
    whose, tap = (full_name[1], full_name[2]) if full_name else (None, tap)
    if side == "auto":
        if pipe.model.is_encoder_decoder:
            return tap, whose or ("decoder" if tap.startswith("cross_attention.") else "encoder")
        return tap, whose or "self"
    if side == "cross":
        raise InputError(say("explain.swap_cross_attention"))
    return tap, side


def _tap_name(site: AttentionSite, layer: int, tap: str) -> str:
    return f"{site.prefix}layers.{layer}.{tap}"


def _check_tap(pipe: Pipeline, name: str, tap: str) -> None:
    points = tap_points(pipe.model)
    if name not in points:
        begin = name.removesuffix(tap)
        known = [point.removeprefix(begin) for point in points if point.startswith(begin)]
        raise InputError(say("explain.no_tensor", tap=repr(tap), known=known, near=did_you_mean(tap, known)))


def _check_pair(good: AttentionSite, bad: AttentionSite) -> None:
    if _same_inputs(good.reading, bad.reading):
        raise InputError(say("explain.same_texts"))
    if len(good.queries) != len(bad.queries):
        ours, theirs = ("  ".join(repr(unit.text) for unit in site.queries) for site in (good, bad))
        counts = {"clean": len(good.queries), "corrupted": len(bad.queries)}
        raise InputError(say("explain.lengths_differ", **counts, clean_units=ours, corrupted_units=theirs))


def _same_inputs(one: Reading, two: Reading) -> bool:
    """Whether the model is given the same, leaving aside what a decoder is made to write."""
    names = [name for name in one.inputs if not name.startswith("decoder_")]
    return all(torch.equal(one.inputs[name], two.inputs[name]) for name in names)


def _run(
    site: AttentionSite, scores: AnswerScores, where: int | None, names: dict[int, str]
) -> tuple[dict[int, Tensor], Tensor]:
    """The tensors of each layer, and the scores (words or labels,)."""
    with trace(site.pipe.model, *names.values()) as seen:
        answered = scores.rows(site.reading, where, 1, {})[0].double().cpu()
    return {layer: seen[name] for layer, name in names.items()}, answered


@dataclass(frozen=True)
class _Metric:
    """The number that is followed: the score of one answer, or how far it lies above another."""

    answer: int
    other: int | None
    names: tuple[str, str | None]

    @classmethod
    def of(
        cls, scores: AnswerScores, wanted: Tensor, got: Tensor, answer: str | int | None, other: str | int | None
    ) -> _Metric:
        if answer is None:
            mine, against = int(wanted.argmax()), int(got.argmax())
            rival = None if mine == against or not scores.exclusive else against
        else:
            mine = scores.id_of(answer, len(wanted))
            rival = None if other is None else scores.id_of(other, len(wanted))
            if mine == rival:
                raise InputError(say("explain.same_answers"))
        texts = scores.names([mine] if rival is None else [mine, rival])
        return cls(mine, rival, (texts[0], texts[1] if rival is not None else None))

    def __call__(self, row: Tensor) -> float:
        return float(row[self.answer] - (0.0 if self.other is None else row[self.other]))

    @property
    def title(self) -> Message:
        answer, other = (None if name is None else repr(name) for name in self.names)
        if other is None:
            return say("explain.score_of", answer=answer)
        return say("explain.score_above", answer=answer, other=other)


# ---- what is swapped


@dataclass(frozen=True)
class _Swap:
    """
    kept      of each layer the clean tensor, (1, time, width) or (1, heads, time, …)
    columns   what is swapped together: positions, or one head
    """

    kept: dict[int, Tensor]
    by: By
    axis: int
    columns: list[list[int]]

    @classmethod
    def of(
        cls,
        kept: dict[int, Tensor],
        by: By | None,
        positions: Indices | Sequence[Sequence[int]],
        heads: Indices,
        units: int,
        tap: str,
    ) -> _Swap:
        one = next(iter(kept.values()))
        by = by or ("head" if one.ndim == 4 else "position")
        if by not in ("position", "head"):
            raise InputError(say("explain.swap_by", by=repr(by)))
        if by == "head":
            if one.ndim != 4:
                raise InputError(say("explain.no_heads_in_tensor", tap=tap))
            if positions is not None:
                raise InputError(say("explain.head_at_all_positions"))
            heads_there = one.shape[1]
            owner = say("explain.layer_has_heads", count=heads_there)
            return cls(kept, by, 1, [[n] for n in checked_indices("head", heads, heads_there, owner)])
        if heads is not None:
            raise InputError(say("explain.positions_for_all_heads"))
        axis = one.ndim - 2
        if one.ndim < 3 or one.shape[axis] != units:
            raise InputError(say("explain.no_row_per_unit", tap=tap))
        owner = say("explain.there_are_units", count=units)
        if isinstance(positions, Sequence) and any(isinstance(group, Sequence) for group in positions):
            groups: Any = [group if isinstance(group, list | tuple | range) else [group] for group in positions]
            return cls(kept, by, axis, [checked_indices("position", group, units, owner) for group in groups])
        return cls(kept, by, axis, [[n] for n in checked_indices("position", positions, units, owner)])  # type: ignore[arg-type]

    def into(self, layer: int, rows: list[tuple[int, int]]) -> Callable[[Tensor], Tensor]:
        """rows: (row of the batch, column to swap in it)"""

        def put(corrupted: Tensor) -> Tensor:
            corrupted = corrupted.clone()
            inside, source = corrupted.movedim(self.axis, 1), self.kept[layer].movedim(self.axis, 1)[0]
            for row, column in rows:
                inside[row, self.columns[column]] = source[self.columns[column]]
            return corrupted

        return put


def _patched(
    bad: AttentionSite, scores: AnswerScores, where: int | None, names: dict[int, str], swap: _Swap, metric: _Metric
) -> tuple[np.ndarray, np.ndarray]:
    """What is measured with each layer and column swapped, and beside it without: the last row of every batch."""
    model = bad.pipe.model
    runs = list(product(names, range(len(swap.columns))))
    time = max(len(bad.queries), len(bad.keys), len(bad.reading.units))
    size = batch_size_for(time, model.config.hidden_size, bad.head_count) - 1
    fixed = bad.encoder_outputs()
    measured: list[float] = []
    base: list[float] = []
    for first in range(0, len(runs), size):
        group = runs[first : first + size]
        by_layer: dict[int, list[tuple[int, int]]] = {}
        for row, (layer, column) in enumerate(group):
            by_layer.setdefault(layer, []).append((row, column))
        with trace(model, replace={names[layer]: swap.into(layer, rows) for layer, rows in by_layer.items()}):
            answers = scores.rows(bad.reading, where, len(group) + 1, fixed).double().cpu()
        measured += [metric(row) for row in answers[:-1]]
        base += [metric(answers[-1])] * len(group)
    return np.array(measured), np.array(base)


# ---- as a question

TAPS = (
    "output", "input", "attention.output", "feedforward.output", "attention.heads", "attention.query", "attention.key",
    "attention.value", "attention.scores", "attention.weights", "feedforward.hidden", "cross_attention.output",
    "cross_attention.heads",
)  # fmt: skip


def _answer(
    pipe: Pipeline, text: str, second: str | None, chosen: str | None, against: str | None, by: str, k: int,
    **values: Any,
) -> Patching:  # fmt: skip
    answer, other = (token_or_label(pipe, word, text) for word in (chosen, against))
    unit: Any = None if by == "auto" else by
    return patching(pipe, text, second or "", by=unit, answer=answer, other=other, top_k=k, **values)


QUESTION = Question(
    name="patching", kind="patching", group="why", answer=_answer, checks=(reads_one_input, has_probabilities),
    second="needed",
    params=(
        Setting(name="tap", key="patching.tap", choices=TAPS, default="output"),
        Setting(name="by", key="patching.by", type=Literal["auto", "position", "head"], default="auto"),
        chosen_word("patching.chosen"), chosen_word("patching.against", "against"), LAYERS, POSITIONS, HEADS,
        ANSWER_POSITION, WRITTEN_SO_FAR, replace(STACK, key="patching.side"), count("patching.k", 5),
    ),
)  # fmt: skip
