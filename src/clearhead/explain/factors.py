"""Many neurons, few themes: the activations of whole layers as a sum of a few factors (non-negative factorisation).

activations (neurons, tokens) ≈ strengths (neurons, factors) · factors (factors, tokens), nothing below zero. The
factorisation knows no negative numbers, so activations are clipped at zero first; `clipped` says what that leaves out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.attention import Places
from clearhead.explain.finding import Finding
from clearhead.explain.neurons import Side, listen, need_sklearn
from clearhead.pipeline import Pipeline
from clearhead.units import TokenUnit

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
    side: Side | None
    tokens: list[TokenUnit]
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
    layers: Places = None,
    *,
    n: int | None = None,
    seed: int = 0,
    top: int = 8,
    side: Side | None = None,
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
    need_sklearn("Factors")
    from sklearn.decomposition import NMF  # type: ignore[import-untyped]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]

    for name, value in (("n", 1 if n is None else n), ("top", top)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} is {value!r}; it is a whole number, 1 or more.")
    heard = listen(pipe, text, layers, side=side, pair=pair, target=target, max_new_tokens=max_new_tokens)
    whole = heard.activations
    n = min(USUAL, *whole.shape) if n is None else n
    if n > min(whole.shape):
        raise InputError(
            f"{n} factors of {whole.shape[1]} tokens and {len(whole)} neurons: ask for fewer, or for more text."
        )
    positive = whole.clip(min=0).astype(np.float64)
    size = float(np.linalg.norm(positive))
    if size == 0:
        raise InputError("No neuron of these layers fires above zero at this text: there is nothing to take apart.")
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
        heard.side,
        heard.tokens,
        heard.layers,
        parts[order],
        amount[order] / amount.sum(),
        [[(*heard.name(int(row)), float(strengths[row, k])) for row in strongest[:, k]] for k in order],
        float(np.linalg.norm(positive - strengths @ parts)) / size,
        1 - size**2 / float(np.square(whole, dtype=np.float64).sum()),
        seed,
    )
