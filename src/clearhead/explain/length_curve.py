"""How translations fare as the source grows: BLEU by the length of the source, as it was measured for shipped models.

The numbers lie beside a model's weights, in `measures.json`, and are not computed anew; benchmarks/bleu_by_length.py
writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from clearhead import zoo
from clearhead.errors import InputError
from clearhead.explain.capabilities import Reason
from clearhead.explain.finding import Finding
from clearhead.explain.question import Question
from clearhead.explain.settings import Setting
from clearhead.explain.word_choice import comma_separated
from clearhead.messages import say
from clearhead.pipeline import Pipeline

MEASURE = "bleu_by_source_length"


@dataclass(frozen=True)
class LengthBin:
    """Sources of `first` to `last` words: how many there were, and the BLEU of their translations."""

    first: int
    last: int
    sentences: int
    bleu: float


@dataclass(frozen=True)
class MeasuredCurve:
    """One model: BLEU in each bin, and over all sentences."""

    model: str
    bins: list[LengthBin]
    bleu: float


@dataclass(frozen=True, repr=False, eq=False)
class LengthCurve(Finding):
    """
    data     what was translated; decoding: how; metric: as sacrebleu signs it
    curves   one for each model, over the same sentences
    """

    kind: ClassVar[str] = "length-curve"

    model: str
    data: str
    decoding: str
    metric: str
    curves: list[MeasuredCurve]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["model", "words_from", "words_to", "sentences", "bleu"]
        for curve in self.curves:
            yield from ([curve.model, one.first, one.last, one.sentences, one.bleu] for one in curve.bins)


def length_curve(models: str | Sequence[str]) -> LengthCurve:
    """What was measured for these shipped models, by name; all of them on the same sentences."""
    names = [models] if isinstance(models, str) else list(models)
    if not names:
        raise InputError(say("explain.no_curve", name="", known=_measured()))
    measured = [_measure(name) for name in names]
    same = {(one["data"], one["metric"]) for one in measured}
    if len(same) > 1:
        raise InputError(say("explain.curves_differ", models=names, data=sorted(data for data, _ in same)))
    curves = [
        MeasuredCurve(name, [LengthBin(**row) for row in one["bins"]], float(one["bleu"]))
        for name, one in zip(names, measured, strict=True)
    ]
    first = measured[0]
    return LengthCurve(", ".join(names), first["data"], first["decoding"], first["metric"], curves)


def _measure(name: str) -> dict[str, Any]:
    found = zoo.measures(name).get(MEASURE)
    if found is None:
        raise InputError(say("explain.no_curve", name=repr(name), known=_measured()))
    return dict(found)


def _measured() -> list[str]:
    return [name for name in zoo.cards() if MEASURE in zoo.measures(name)]


# ---- as a question


def _has_curve(pipe: Pipeline) -> Reason:
    if MEASURE in zoo.measures(pipe.name):
        return None
    return say("explain.no_curve", name=repr(pipe.name), known=_measured())


def _answer(pipe: Pipeline, text: str, second: None, others: str | None) -> LengthCurve:
    if (reason := _has_curve(pipe)) is not None:
        raise InputError(reason)
    return length_curve([pipe.name, *(name.strip() for name in comma_separated(others or ""))])


QUESTION = Question(
    name="length-curve", kind="length-curve", group="model", answer=_answer, checks=(_has_curve,), text=False,
    params=(Setting(name="others", key="length-curve.others", type=str),),
)  # fmt: skip
