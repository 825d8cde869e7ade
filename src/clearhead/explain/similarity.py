"""Representation similarity: how alike two models, or two layers, see the same texts, by CKA and CCA.

cka   linear centred kernel alignment: do the same pairs of tokens lie close together in both? It does not change under
      rotations and common factors. 1 is the same, 0 has nothing in common.
cca   the mean canonical correlation, as in SVCCA: of both sides the strongest directions are kept, then the directions
      along which they agree best are paired. It does not change under any invertible linear map of what is kept.

Both come from one decomposition of each layer. Its centred states, a row for each token, are U · S · Vᵀ; the V is a
rotation, which neither measure sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.capabilities import reads_one_input, reads_text
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices, checked_count, checked_indices
from clearhead.explain.layer_states import layer_states, read_for_states, text_spans
from clearhead.explain.question import Question
from clearhead.explain.settings import LAYERS, IndicesSetting, ModelSetting, Setting
from clearhead.explain.word_choice import lines_of
from clearhead.messages import say
from clearhead.pipeline import Pipeline

Measure = Literal["cka", "cca"]
LEAST = 4  # tokens; the unbiased estimate is not defined for fewer
_TOKENS_PER_DIRECTION = 10  # with fewer, CCA finds agreement in anything


@dataclass(frozen=True, repr=False, eq=False)
class Similarity(Finding):
    """
    layers_a, layers_b   0 is the embedding, n what the nth layer puts out; of an encoder–decoder, those of its encoder
    values               (layers of a, layers of b)
    shuffled_baseline    what is left on average when the tokens of b are put in a random order: no agreement at all
    count                how many tokens were compared, over all texts
    aligned              "tokens": both read the same ones. "stretches": they cut the text differently, and the tokens
                         between two places where both cut were averaged
    """

    kind: ClassVar[str] = "similarity"

    a: str
    b: str
    measure: Measure
    unbiased: bool
    layers_a: list[int]
    layers_b: list[int]
    values: np.ndarray
    shuffled_baseline: float
    count: int
    aligned: Literal["tokens", "stretches"]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["layer_a", "layer_b", self.measure]
        for (n, k), value in np.ndenumerate(self.values):
            yield [self.layers_a[n], self.layers_b[k], float(value)]


def similarity(
    a: Pipeline,
    texts: str | Sequence[str],
    b: Pipeline | None = None,
    measure: Measure = "cka",
    layers_a: Indices = None,
    layers_b: Indices = None,
    unbiased: bool = False,
    variance: float = 0.99,
    skip: int = 0,
) -> Similarity:
    """Compare every layer of `a` with every layer of `b`, or with the layers of `a` itself.

    texts      one or several, which both models read; the more tokens, the more the numbers mean. Special tokens are
               left out. Models of any two families can be compared: where they cut a text differently, tokens are
               averaged over the shortest stretches of characters that both have
    unbiased   of CKA: the estimate that is zero on average for unrelated states, however few the tokens
    variance   of CCA: the share of each layer's variance that the directions kept must hold. There are never more of
               them than one for ten tokens
    skip       so many tokens at the beginning of each text are left out. In models that read left to right the first
               one is often so long a vector that it decides everything
    """
    _check(measure, unbiased, variance, skip)
    corpus = [texts] if isinstance(texts, str) else list(texts)
    if not corpus:
        raise InputError(say("explain.no_texts"))
    other = a if b is None else b
    ours, theirs, aligned = _aligned_states(a, other, corpus, skip)
    tokens = len(ours[0])
    if tokens < LEAST:
        raise InputError(say("explain.too_little_to_compare", count=tokens, least=LEAST))
    chosen_a, chosen_b = (
        checked_indices("layer", layers, len(states), say("explain.layers_from_embedding", last=len(states) - 1))
        for layers, states in ((layers_a, ours), (layers_b, theirs))
    )
    rows = [_LayerStates.of(ours[n]) for n in chosen_a]
    columns = rows if other is a and chosen_a == chosen_b else [_LayerStates.of(theirs[n]) for n in chosen_b]

    values = np.empty((len(rows), len(columns)))
    for (n, x), (k, y) in product(enumerate(rows), enumerate(columns)):
        mirrored = columns is rows and k < n
        values[n, k] = values[k, n] if mirrored else _value(x, y, measure, unbiased, variance)
    order = torch.randperm(tokens, generator=torch.Generator().manual_seed(0))
    pairs = [(rows[n % len(rows)], columns[n % len(columns)]) for n in range(max(len(rows), len(columns)))]
    shuffled = np.array([_value(x, y.shuffled(order), measure, unbiased, variance) for x, y in pairs])
    name_b = other.name if other is a or other.name != a.name else f"{other.name} (the other)"
    return Similarity(
        a.name, name_b, measure, unbiased, chosen_a, chosen_b, values,
        float(np.nanmean(shuffled)) if np.isfinite(shuffled).any() else float("nan"), tokens, aligned,
    )  # fmt: skip


def _check(measure: str, unbiased: bool, variance: float, skip: int) -> None:
    if measure not in ("cka", "cca"):
        raise InputError(say("explain.cka_or_cca", measure=repr(measure)))
    if unbiased and measure != "cka":
        raise InputError(say("explain.unbiased_is_cka"))
    if isinstance(variance, bool) or not isinstance(variance, int | float) or not 0 < variance <= 1:
        raise InputError(say("explain.variance_range", value=repr(variance)))
    checked_count("skip", skip, least=0)


# ---- the measures


@dataclass(frozen=True)
class _LayerStates:
    """Centred states without their last rotation: `basis` (tokens, rank), orthonormal, and `sizes` (rank), falling."""

    basis: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, states: Tensor) -> _LayerStates:
        """states (tokens, width)"""
        states = states.double()
        centred = states - states.mean(0)
        basis, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
        largest = float(states.abs().max()) * max(states.shape) ** 0.5
        kept = sizes > largest * max(states.shape) * torch.finfo(torch.float64).eps
        return cls(basis[:, kept], sizes[kept])

    def shuffled(self, order: Tensor) -> _LayerStates:
        return _LayerStates(self.basis[order], self.sizes)

    def strongest(self, variance: float) -> Tensor:
        """(tokens, directions): as many as hold this share of the variance, but enough tokens for each."""
        held = (self.sizes**2).cumsum(0) / (self.sizes**2).sum()
        enough = int((held < variance - 1e-12).sum()) + 1
        return self.basis[:, : min(enough, max(1, len(self.basis) // _TOKENS_PER_DIRECTION))]


def _value(x: _LayerStates, y: _LayerStates, measure: Measure, unbiased: bool, variance: float) -> float:
    if len(x.sizes) == 0 or len(y.sizes) == 0:
        return float("nan")  # every token has the same state: nothing varies
    if measure == "cca":
        agreement = x.strongest(variance).T @ y.strongest(variance)
        return float(torch.linalg.svdvals(agreement).clamp(max=1).mean())
    return float(_shared(x, y, unbiased) / (_shared(x, x, unbiased) * _shared(y, y, unbiased)).sqrt())


def _shared(x: _LayerStates, y: _LayerStates, unbiased: bool) -> Tensor:
    """HSIC, up to a factor that CKA divides out: the sum over all pairs of tokens of (product in x) · (product in y).

    A token's product with itself is never small, so the sum is above zero even for unrelated states. The unbiased
    estimate (Song et al. 2012) leaves those out; for centred states the rest of its terms come down to these two.
    """
    if x is y:
        all_pairs = (x.sizes**4).sum()
    else:
        all_pairs = ((x.sizes[:, None] * (x.basis.T @ y.basis) * y.sizes) ** 2).sum()
    if not unbiased:
        return all_pairs
    n = len(x.basis)
    own_x, own_y = (((layer.basis * layer.sizes) ** 2).sum(-1) for layer in (x, y))  # each token with itself
    return all_pairs - n / (n - 2) * (own_x * own_y).sum() + own_x.sum() * own_y.sum() / ((n - 1) * (n - 2))


# ---- the states of both models, token beside token


def _aligned_states(
    a: Pipeline, b: Pipeline, texts: list[str], skip: int
) -> tuple[list[Tensor], list[Tensor], Literal["tokens", "stretches"]]:
    """(tokens, width) of each layer of each model, over all texts. Layers may differ in width."""
    ours: list[list[Tensor]] = []
    theirs: list[list[Tensor]] = []
    same = True
    for text in texts:
        x = read_for_states(a, text)
        y = x if b is a else read_for_states(b, text)
        if [(t.id, t.text) for t in x.units] == [(t.id, t.text) for t in y.units]:
            groups = [([n], [n]) for n, token in enumerate(x.units) if not token.special]
        else:
            groups, same = _stretches(text, text_spans(x, text), text_spans(y, text)), False
        groups = groups[skip:]
        if not groups:
            continue
        states = layer_states(a, x)
        ours.append(_averaged(states, [group for group, _ in groups]))
        theirs.append(_averaged(states if b is a else layer_states(b, y), [group for _, group in groups]))
    if not ours:
        raise InputError(say("explain.no_token_left"))
    joined = [[torch.cat(parts) for parts in zip(*side, strict=True)] for side in (ours, theirs)]
    return joined[0], joined[1], "tokens" if same else "stretches"


def _averaged(states: list[Tensor], groups: list[list[int]]) -> list[Tensor]:
    return [torch.stack([state[group].mean(0) for group in groups]) for state in states]


def _stretches(
    text: str, ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> list[tuple[list[int], list[int]]]:
    """The shortest stretches of characters that no token of either model reaches across: whose tokens lie in each."""
    inside = np.zeros(len(text) + 1, dtype=bool)  # whether a token goes on from the character before to this one
    for begin, end in (*ours, *theirs):
        inside[begin + 1 : end] = True
    which = np.cumsum(~inside[:-1])  # the stretch of each character
    stretches: dict[int, tuple[list[int], list[int]]] = {}
    for side, spans in enumerate((ours, theirs)):
        for n, (begin, end) in enumerate(spans):
            if begin < end:
                stretches.setdefault(int(which[begin]), ([], []))[side].append(n)
    return [stretches[key] for key in sorted(stretches) if all(stretches[key])]


# ---- as a question


def _answer(
    pipe: Pipeline, text: str, second: None, other: Pipeline | None, layers: Indices, other_layers: Indices,
    measure: Measure, unbiased: bool, **values: Any,
) -> Similarity:  # fmt: skip
    if other is not None and (reason := reads_one_input(other)) is not None:
        raise InputError(reason)
    unbiased = unbiased and measure == "cka"
    return similarity(pipe, lines_of(text), other, measure, layers, other_layers, unbiased, **values)


QUESTION = Question(
    name="similarity", kind="similarity", group="layers", answer=_answer, checks=(reads_one_input, reads_text),
    params=(
        ModelSetting(name="other", key="similarity.other"),
        Setting(name="measure", key="similarity.measure", type=Measure, default="cka"),
        replace(LAYERS, key="similarity.layers"), IndicesSetting(name="other_layers", key="similarity.other_layers"),
        Setting(name="unbiased", key="similarity.unbiased", type=bool, default=True),
        Setting(name="variance", key="similarity.variance", type=float, default=0.99, least=0.01, most=1.0),
        Setting(name="skip", key="similarity.skip", type=int, default=0, least=0, most=1000),
    ),
)  # fmt: skip
