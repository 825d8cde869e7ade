"""Where an answer is decided: a tensor of one text is put into the run of another, for each layer and place in turn.

The clean text gives one answer, the corrupted text another. The corrupted one is run again and again, each time with
one piece of the clean run in it. Where the clean answer comes back, the piece carried what the answer depends on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.attention import Kind, Look, Places, look
from clearhead.explain.finding import Finding
from clearhead.explain.next_token import Candidate
from clearhead.explain.reading import at_rest, places
from clearhead.explain.scores import Scores, rows_at_once, scores_of
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.nn.tracing import tap_points, trace
from clearhead.pipeline import Pipeline
from clearhead.units import TokenUnit

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
    scores            (layers, columns): the same as it was measured; what of, say `what` and the two scores
    clean_score, corrupted_score   of the two texts, untouched
    answers           what the clean text leads to, and what it is held against; None where its score stands alone
    position          whose answer it is; None where the whole text has one
    strongest         (layer, column) of the largest effect, as they are numbered in `effect`
    clean_top, corrupted_top   the likeliest answers to each text
    """

    kind: ClassVar[str] = "patching"

    model: str
    side: Kind
    tap: str
    by: By
    clean: list[TokenUnit]
    corrupted: list[TokenUnit]
    layers: list[int]
    positions: list[list[int]]
    heads: list[int]
    effect: np.ndarray
    scores: np.ndarray
    clean_score: float
    corrupted_score: float
    what: str
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
    layers: Places = None,
    positions: Places | Sequence[Sequence[int]] = None,
    heads: Places = None,
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
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise InputError(f"top_k is {top_k!r}; ask for at least one.")
    if other is not None and answer is None:
        raise InputError("An answer is held against another: choose the answer too.")
    if not isinstance(tap, str):
        raise InputError(f"A tap is the name of a tensor, not {type(tap).__name__}.")
    scores = scores_of(pipe)
    tap, side = _named(pipe, tap, side)
    if target is None and scores.writes:
        target = ""  # the first token that would be written
    good, bad = (look(pipe, text, pair, target, side) for text in (clean, corrupted))
    _check_pair(good, bad)
    where = scores.place(good.reading, position)
    if scores.place(bad.reading, position) != where:
        raise InputError("The hidden word stands at another place in the two texts: hide the same one in both.")
    count = len(good.stack.layers)
    layers = places("layer", layers, count, f"the {'model' if side == 'self' else side} has {count} layers")
    names = {layer: _tap_name(good, layer, tap) for layer in layers}
    _check_tap(pipe, names[layers[0]], tap)
    with at_rest(pipe.model):
        kept, wanted = _run(good, scores, where, names)
        there, got = _run(bad, scores, where, names)
        if any(kept[layer].shape != there[layer].shape for layer in layers):
            raise InputError(f"{tap} has another shape in the two texts. Give texts of as many tokens.")
        swap = _Swap.of(kept, by, positions, heads, len(good.queries), tap)
        metric = _Metric.of(scores, wanted, got, answer, other)
        measured, base = _patched(bad, scores, where, names, swap, metric)
    gap = metric(wanted) - metric(got)
    if abs(gap) <= 1e-5 * max(1.0, abs(metric(wanted))):
        raise InputError(
            f"Both texts give the same {metric.what}, so there is nothing to bring back. "
            "Change a word that matters, or choose another answer."
        )
    shape = (len(layers), len(swap.columns))
    effect = ((measured - base) / gap).reshape(shape)
    best = np.unravel_index(int(effect.argmax()), shape)
    return Patching(
        pipe.name, good.side, f"layers.*.{tap}", swap.by, good.queries, bad.queries, layers,
        swap.columns if swap.by == "position" else [], [k for (k,) in swap.columns] if swap.by == "head" else [],
        effect, (metric(got) + measured - base).reshape(shape), metric(wanted), metric(got), metric.what, metric.names,
        where, (int(best[0]), int(best[1])), scores.likeliest(wanted, top_k), scores.likeliest(got, top_k),
    )  # fmt: skip


def _named(pipe: Pipeline, tap: str, side: str) -> tuple[str, str]:
    """A tap as a layer knows it, and whose layers are meant; the whole name may be given, "encoder.layers.*.output"."""
    found = re.fullmatch(r"(?:(encoder|decoder)\.)?layers\.\*\.(.+)", tap)
    whose, tap = (found[1], found[2]) if found else (None, tap)
    if side == "auto":
        if isinstance(pipe.model, EncoderDecoderModel):
            return tap, whose or ("decoder" if tap.startswith("cross_attention.") else "encoder")
        return tap, whose or "self"
    if side == "cross":
        raise InputError("To swap what the decoder takes from the encoder, swap cross_attention.output of the decoder.")
    return tap, side


def _tap_name(looked: Look, layer: int, tap: str) -> str:
    return f"{'' if looked.side == 'self' else looked.side + '.'}layers.{layer}.{tap}"


def _check_tap(pipe: Pipeline, name: str, tap: str) -> None:
    points = tap_points(pipe.model)
    if name not in points:
        begin = name.removesuffix(tap)
        known = [point.removeprefix(begin) for point in points if point.startswith(begin)]
        raise InputError(f"A layer has no tensor {tap!r}; it has {', '.join(known)}.{did_you_mean(tap, known)}")


def _check_pair(good: Look, bad: Look) -> None:
    if [t.id for t in good.reading.units] == [t.id for t in bad.reading.units]:
        raise InputError("The two texts are the same to this model: there is nothing to swap. Change a word in one.")
    if len(good.queries) != len(bad.queries):
        ours, theirs = ("  ".join(repr(token.text) for token in looked.queries) for looked in (good, bad))
        raise InputError(
            f"The clean text has {len(good.queries)} tokens and the corrupted one {len(bad.queries)}, so positions do "
            f"not correspond. Change a word for one of as many tokens.\nclean:      {ours}\ncorrupted:  {theirs}"
        )


def _run(looked: Look, scores: Scores, where: int | None, names: dict[int, str]) -> tuple[dict[int, Tensor], Tensor]:
    """The tensors of each layer, and the scores (words or labels,)."""
    with trace(looked.pipe.model, *names.values()) as seen:
        answered = scores.rows(looked.reading, where, 1, {})[0].double().cpu()
    return {layer: seen[name] for layer, name in names.items()}, answered


@dataclass(frozen=True)
class _Metric:
    """The number that is followed: the score of one answer, or how far it lies above another."""

    answer: int
    other: int | None
    names: tuple[str, str | None]

    @classmethod
    def of(
        cls, scores: Scores, wanted: Tensor, got: Tensor, answer: str | int | None, other: str | int | None
    ) -> _Metric:
        if answer is None:
            mine, against = int(wanted.argmax()), int(got.argmax())
            rival = None if mine == against or not scores.rivals else against
        else:
            mine = scores.id_of(answer, len(wanted))
            rival = None if other is None else scores.id_of(other, len(wanted))
            if mine == rival:
                raise InputError("The answer and what it is held against are the same. Choose two.")
        texts = scores.names([mine] if rival is None else [mine, rival])
        return cls(mine, rival, (texts[0], texts[1] if rival is not None else None))

    def __call__(self, row: Tensor) -> float:
        return float(row[self.answer] - (0.0 if self.other is None else row[self.other]))

    @property
    def what(self) -> str:
        answer, other = self.names
        return f"score of {answer!r}" + ("" if other is None else f" above that of {other!r}")


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
        positions: Places | Sequence[Sequence[int]],
        heads: Places,
        tokens: int,
        tap: str,
    ) -> _Swap:
        one = next(iter(kept.values()))
        by = by or ("head" if one.ndim == 4 else "position")
        if by not in ("position", "head"):
            raise InputError(f"Tensors are swapped by='position' or by='head', not {by!r}.")
        if by == "head":
            if one.ndim != 4:
                raise InputError(f"{tap} is not split into heads; swap it by position, or take attention.heads.")
            if positions is not None:
                raise InputError("A head is swapped at all positions: leave the positions out, or swap by position.")
            count = one.shape[1]
            return cls(kept, by, 1, [[n] for n in places("head", heads, count, f"a layer has {count} heads")])
        if heads is not None:
            raise InputError("Positions are swapped for all heads together: leave the heads out, or swap by head.")
        axis = one.ndim - 2
        if one.ndim < 3 or one.shape[axis] != tokens:
            raise InputError(f"{tap} does not have one row for each token: it cannot be swapped by position.")
        whole = f"there are {tokens} tokens"
        if isinstance(positions, Sequence) and any(isinstance(group, Sequence) for group in positions):
            asked: Any = [group if isinstance(group, list | tuple | range) else [group] for group in positions]
            return cls(kept, by, axis, [places("position", group, tokens, whole) for group in asked])
        return cls(kept, by, axis, [[n] for n in places("position", positions, tokens, whole)])  # type: ignore[arg-type]

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
    bad: Look, scores: Scores, where: int | None, names: dict[int, str], swap: _Swap, metric: _Metric
) -> tuple[np.ndarray, np.ndarray]:
    """What is measured with each layer and column swapped, and beside it without: the last row of every batch."""
    model = bad.pipe.model
    runs = list(product(names, range(len(swap.columns))))
    time = max(len(bad.queries), len(bad.keys), len(bad.reading.units))
    size = rows_at_once(time, model.config.hidden_size, bad.head_count) - 1
    memory = None
    if isinstance(model, EncoderDecoderModel) and bad.side != "encoder":
        memory = model.encode(bad.reading.inputs["input_ids"], None, None)
    measured: list[float] = []
    base: list[float] = []
    for first in range(0, len(runs), size):
        group = runs[first : first + size]
        by_layer: dict[int, list[tuple[int, int]]] = {}
        for row, (layer, column) in enumerate(group):
            by_layer.setdefault(layer, []).append((row, column))
        fixed = {} if memory is None else {"encoder_outputs": memory.expand(len(group) + 1, -1, -1)}
        with trace(model, replace={names[layer]: swap.into(layer, rows) for layer, rows in by_layer.items()}):
            found = scores.rows(bad.reading, where, len(group) + 1, fixed).double().cpu()
        measured += [metric(row) for row in found[:-1]]
        base += [metric(found[-1])] * len(group)
    return np.array(measured), np.array(base)
