"""Warpers: what shapes the distribution that the next token is drawn from. Temperature, top-k, nucleus sampling, …

A warper takes and returns scores (rows, vocab), as any logits processor; `warpers` puts together those that some
options ask for, in the order that users of `transformers` know. `keep` tokens stay whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from clearhead.generate.options import Options
from clearhead.generate.processors import FORBIDDEN, LogitsProcessor


def warpers(options: Options, eos: list[int]) -> list[LogitsProcessor]:
    """What shapes the distribution that is drawn from, and makes it one again if asked to."""
    last: list[LogitsProcessor] = [lambda tokens, scores: scores.log_softmax(-1)] if options.renormalize_logits else []
    if not options.samples:
        return last
    keep = 1 if options.num_beams == 1 else 1 + max(len(eos), 1)  # a beam needs a way on beside the end
    makers = {
        "temperature": temperature,
        "top_k": lambda k: top_k(k, keep),
        "top_p": lambda p: top_p(p, keep),
        "min_p": lambda share: min_p(share, keep),
        "typical_p": lambda mass: typical_p(mass, keep),
        "epsilon_cutoff": lambda epsilon: epsilon_cutoff(epsilon, keep),
        "eta_cutoff": lambda epsilon: eta_cutoff(epsilon, keep),
    }
    values = {name: getattr(options, name) for name in makers}
    return [make(values[name]) for name, make in makers.items() if values[name] is not None] + last


def temperature(value: float) -> LogitsProcessor:
    return lambda tokens, scores: scores / value


def top_k(k: int, keep: int = 1) -> LogitsProcessor:
    """Keep the k likeliest tokens (and any that tie with the last of them)."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        least = scores.topk(min(max(k, keep), scores.shape[-1])).values[:, -1:]
        return scores.masked_fill(scores < least, FORBIDDEN)

    return apply


def top_p(p: float, keep: int = 1) -> LogitsProcessor:
    """Nucleus sampling: keep the likeliest tokens that together reach probability p."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        ordered, where = scores.sort(dim=-1, descending=True)
        probability = ordered.softmax(-1)
        dropped = probability.cumsum(-1) - probability >= p  # what lies above a token is enough already
        dropped[:, :keep] = False
        return scores.masked_fill(dropped.scatter(1, where, dropped), FORBIDDEN)

    return apply


def probability_floor(floor: Callable[[Tensor, Tensor], Tensor | float], keep: int = 1) -> LogitsProcessor:
    """Drop tokens less likely than a floor, which may depend on the probabilities and their logarithms."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        log_p = scores.log_softmax(-1)
        p = log_p.exp()
        safe = scores >= scores.topk(min(keep, scores.shape[-1])).values[:, -1:]
        return scores.masked_fill((p < floor(p, log_p)) & ~safe, FORBIDDEN)

    return apply


def min_p(share: float, keep: int = 1) -> LogitsProcessor:
    """Keep tokens at least `share` as likely as the likeliest."""
    return probability_floor(lambda p, log_p: share * p.amax(-1, keepdim=True), keep)


def epsilon_cutoff(epsilon: float, keep: int = 1) -> LogitsProcessor:
    return probability_floor(lambda p, log_p: epsilon, keep)


def eta_cutoff(epsilon: float, keep: int = 1) -> LogitsProcessor:
    """The floor falls where the model is unsure: min(ε, √ε · exp(-entropy))."""
    return probability_floor(lambda p, log_p: (epsilon**0.5 * (-_entropy(p, log_p)).exp()).clamp(max=epsilon), keep)


def typical_p(mass: float, keep: int = 1) -> LogitsProcessor:
    """Keep the tokens whose surprise is nearest to the expected surprise, up to a share of the probability."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        log_p = scores.log_softmax(-1)
        p = log_p.exp()
        oddness, where = (-log_p - _entropy(p, log_p)).abs().sort(dim=-1)
        last = (p.gather(1, where).cumsum(-1) < mass).sum(-1, keepdim=True).clamp(max=p.shape[-1] - 1)
        dropped = oddness > oddness.gather(1, last)
        dropped[:, :keep] = False
        return scores.masked_fill(dropped.scatter(1, where, dropped), FORBIDDEN)

    return apply


def _entropy(p: Tensor, log_p: Tensor) -> Tensor:
    return -(p * log_p).nansum(-1, keepdim=True)
