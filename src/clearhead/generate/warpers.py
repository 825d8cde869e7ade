"""Warpers: what shapes the distribution that the next token is drawn from. Temperature, top-k, nucleus sampling, …

A warper takes and returns scores (rows, vocab), as any logits processor; `warpers` puts together those that some
options ask for, in the order that users of `transformers` know. `min_tokens_to_keep` tokens stay whatever happens.
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
    min_tokens_to_keep = 1 if options.num_beams == 1 else 1 + max(len(eos), 1)  # a beam needs a way on beside the end
    makers = {
        "temperature": temperature,
        "top_k": lambda k: top_k(k, min_tokens_to_keep),
        "top_p": lambda p: top_p(p, min_tokens_to_keep),
        "min_p": lambda fraction: min_p(fraction, min_tokens_to_keep),
        "typical_p": lambda mass: typical_p(mass, min_tokens_to_keep),
        "epsilon_cutoff": lambda epsilon: epsilon_cutoff(epsilon, min_tokens_to_keep),
        "eta_cutoff": lambda epsilon: eta_cutoff(epsilon, min_tokens_to_keep),
    }
    values = {name: getattr(options, name) for name in makers}
    return [make(values[name]) for name, make in makers.items() if values[name] is not None] + last


def temperature(value: float) -> LogitsProcessor:
    return lambda tokens, scores: scores / value


def top_k(k: int, min_tokens_to_keep: int = 1) -> LogitsProcessor:
    """Keep the k likeliest tokens (and any that tie with the last of them)."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        threshold = scores.topk(min(max(k, min_tokens_to_keep), scores.shape[-1])).values[:, -1:]
        return scores.masked_fill(scores < threshold, FORBIDDEN)

    return apply


def top_p(p: float, min_tokens_to_keep: int = 1) -> LogitsProcessor:
    """Nucleus sampling: keep the likeliest tokens that together reach probability p."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        sorted_scores, order = scores.sort(dim=-1, descending=True)
        probability = sorted_scores.softmax(-1)
        dropped = probability.cumsum(-1) - probability >= p  # what lies above a token is enough already
        dropped[:, :min_tokens_to_keep] = False
        return scores.masked_fill(dropped.scatter(1, order, dropped), FORBIDDEN)

    return apply


def probability_floor(
    floor: Callable[[Tensor, Tensor], Tensor | float], min_tokens_to_keep: int = 1
) -> LogitsProcessor:
    """Drop tokens less likely than a floor, which may depend on the probabilities and their logarithms."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        log_p = scores.log_softmax(-1)
        p = log_p.exp()
        always_kept = scores >= scores.topk(min(min_tokens_to_keep, scores.shape[-1])).values[:, -1:]
        return scores.masked_fill((p < floor(p, log_p)) & ~always_kept, FORBIDDEN)

    return apply


def min_p(fraction: float, min_tokens_to_keep: int = 1) -> LogitsProcessor:
    """Keep tokens at least `fraction` as likely as the likeliest."""
    return probability_floor(lambda p, log_p: fraction * p.amax(-1, keepdim=True), min_tokens_to_keep)


def epsilon_cutoff(epsilon: float, min_tokens_to_keep: int = 1) -> LogitsProcessor:
    return probability_floor(lambda p, log_p: epsilon, min_tokens_to_keep)


def eta_cutoff(epsilon: float, min_tokens_to_keep: int = 1) -> LogitsProcessor:
    """The floor falls where the model is unsure: min(ε, √ε · exp(-entropy))."""
    return probability_floor(
        lambda p, log_p: (epsilon**0.5 * (-_entropy(p, log_p)).exp()).clamp(max=epsilon), min_tokens_to_keep
    )


def typical_p(mass: float, min_tokens_to_keep: int = 1) -> LogitsProcessor:
    """Keep the tokens whose surprise is nearest to the expected surprise, up to a share of the probability."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        log_p = scores.log_softmax(-1)
        p = log_p.exp()
        deviation, order = (-log_p - _entropy(p, log_p)).abs().sort(dim=-1)
        last = (p.gather(1, order).cumsum(-1) < mass).sum(-1, keepdim=True).clamp(max=p.shape[-1] - 1)
        dropped = deviation > deviation.gather(1, last)
        dropped[:, :min_tokens_to_keep] = False
        return scores.masked_fill(dropped.scatter(1, order, dropped), FORBIDDEN)

    return apply


def _entropy(p: Tensor, log_p: Tensor) -> Tensor:
    return -(p * log_p).nansum(-1, keepdim=True)
