"""Many neurons, few themes: the activations of layers as a sum of a few factors (non-negative factorisation).

activations (neurons, tokens) ≈ strengths (neurons, factors) · factors (factors, tokens), nothing below zero. The
factorisation knows no negative numbers, so activations are clipped at zero first; `clipped` says what that leaves out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.activations import StackSide, activations_of, side_or_none
from clearhead.explain.capabilities import has_neurons, has_sklearn, need_sklearn, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices, checked_count
from clearhead.explain.question import Question
from clearhead.explain.settings import LAYERS, NEW_TOKENS, SEED, STACK, TARGET, Setting, count
from clearhead.messages import say
from clearhead.pipeline import Pipeline
from clearhead.units import Unit

USUAL = 6  # factors, where nobody says how many


@dataclass(frozen=True, repr=False, eq=False)
class Factors(Finding):
    """
    side      of an encoder–decoder: whose neurons; None where there is one stack
    factors   (factors, tokens): how present each is at each token; its peak is 1. The heaviest first
    weights   (factors): the share of all activation that each accounts for; they sum to one
    neurons   for each factor the neurons that take most part in it: (layer, index, strength at the factor's peak)
    error     what the factors do not account for: the length of the remainder, as a share of that of the activations
    clipped   the share of the squared activations that lay below zero and was left out
    """

    kind: ClassVar[str] = "factors"

    model: str
    side: StackSide | None
    tokens: Sequence[Unit]
    layers: list[int]
    factors: np.ndarray
    weights: np.ndarray
    neurons: list[list[tuple[int, int, float]]]
    error: float
    clipped: float
    seed: int

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["factor", "weight", "position", "token", "value"]
        for n, row in enumerate(self.factors):
            for i, token in enumerate(self.tokens):
                yield [n, float(self.weights[n]), i, token.text, float(row[i])]


def factors(
    pipe: Pipeline,
    text: str,
    layers: Indices = None,
    *,
    n: int | None = None,
    seed: int = 0,
    top: int = 8,
    side: StackSide | None = None,
    pair: str | None = None,
    target: str | None = None,
    max_new_tokens: int | None = None,
) -> Factors:
    """The activations of one layer, a range of them or all, as `n` factors; the same seed gives the same ones.

    n                how many; None: six, or as many as a shorter text has tokens
    top              how many neurons are listed for each factor
    side             of an encoder–decoder: whose neurons; by default the decoder's
    target           what the model is made to write; without one, an encoder–decoder writes its own answer
    max_new_tokens   let the model go on with the text first, and look at what it writes too
    """
    need_sklearn(say("explain.factors"))
    from sklearn.decomposition import NMF  # type: ignore[import-untyped]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]

    checked_count("n", 1 if n is None else n), checked_count("top", top)
    fired = activations_of(pipe, text, layers, side=side, pair=pair, target=target, max_new_tokens=max_new_tokens)
    activations = fired.activations
    n = min(USUAL, *activations.shape) if n is None else n
    if n > min(activations.shape):
        raise InputError(
            say("explain.too_many_factors", factors=n, tokens=activations.shape[1], neurons=len(activations))
        )
    positive = activations.clip(min=0).astype(np.float64)
    size = float(np.linalg.norm(positive))
    if size == 0:
        raise InputError(say("explain.nothing_fires"))
    method = NMF(n, init="nndsvda", random_state=seed, max_iter=1000, tol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the error says how far it got
        strengths = method.fit_transform(positive)  # (neurons, n)
    parts = method.components_  # (n, tokens)
    peaks = parts.max(axis=1)
    parts, strengths = parts / np.where(peaks > 0, peaks, 1)[:, None], strengths * peaks
    amount = strengths.sum(axis=0) * parts.sum(axis=1)
    order = np.argsort(-amount, kind="stable")
    strongest = np.argsort(-strengths, axis=0, kind="stable")[:top]
    return Factors(
        pipe.name,
        fired.side,
        fired.tokens,
        fired.layers,
        parts[order],
        amount[order] / amount.sum(),
        [[(*fired.name(int(row)), float(strengths[row, k])) for row in strongest[:, k]] for k in order],
        float(np.linalg.norm(positive - strengths @ parts)) / size,
        1 - size**2 / float(np.square(activations, dtype=np.float64).sum()),
        seed,
    )


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: str | None, k: int, side: str, **values: Any) -> Factors:
    n = values.pop("factors")
    return factors(pipe, text, n=n, top=k, side=side_or_none(side), pair=second, **values)


QUESTION = Question(
    name="factors", kind="factors", group="neurons", answer=_answer,
    checks=(reads_one_input, has_neurons, has_sklearn), second="pair",
    params=(
        LAYERS, Setting(name="factors", key="factors.factors", type=int, least=1, most=64), count("factors.k", 8),
        SEED, STACK, TARGET, NEW_TOKENS,
    ),
)  # fmt: skip
