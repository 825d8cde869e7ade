"""What happens to the scores between the model and the choice: each filter takes and returns (rows, vocab).

`rules` and `chances` put together the filters that some options ask for, in the order that users of `transformers`
know: first the rules, then what shapes the chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.options import Options

# (tokens so far (rows, time), scores (rows, vocab)) -> scores. Padding before a text is -1.
Filter = Callable[[Tensor, Tensor], Tensor]
_NEVER = -torch.inf


# rules: what may be written, and what counts against it


def repetition_penalty(penalty: float, of: Tensor | None = None) -> Filter:
    """CTRL's: a score of a token already seen is divided by the penalty if positive, multiplied if negative.

    of   another text that counts, (texts, time): an encoder's. A row's copies share theirs.
    """

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        counted = tokens if of is None else _for_rows(of, len(scores))
        counted = torch.where(counted < 0, counted.amax(-1, keepdim=True), counted)  # padding counts for nothing
        seen = scores.gather(1, counted)
        return scores.scatter(1, counted, torch.where(seen < 0, seen * penalty, seen / penalty))

    return apply


def written_penalty(presence: float, frequency: float, prompt: int) -> Filter:
    """Subtract from the score of what was written: once for being there, and once for each time."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        new = tokens[:, prompt:]
        times = torch.zeros_like(scores).scatter_add(1, new, torch.ones_like(new, dtype=scores.dtype))
        return scores - presence * (times > 0) - frequency * times

    return apply


def no_repeat_ngram(size: int, of: Tensor | None = None) -> Filter:
    """Forbid any token that would complete a run of `size` tokens for the second time (of: a run of another text)."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        time = tokens.shape[1]
        earlier = tokens if of is None else _for_rows(of, len(scores))
        if time + 1 < size or earlier.shape[1] < size:
            return scores
        runs = earlier.unfold(1, size, 1)  # (rows, runs, size)
        recent = tokens[:, time - size + 1 :]  # the last size - 1 tokens
        last = runs[:, :, -1]
        again = (runs[:, :, :-1] == recent[:, None, :]).all(-1) & (last >= 0)  # (rows, runs)
        banned = torch.zeros_like(scores, dtype=torch.int8).scatter_reduce(
            1, last.clamp(min=0), again.to(torch.int8), reduce="amax"
        )
        return scores.masked_fill(banned.bool(), _NEVER)

    return apply


def _for_rows(texts: Tensor, rows: int) -> Tensor:
    return texts if len(texts) == rows else texts.repeat_interleave(rows // len(texts), 0)


def add_to_runs(runs: Iterable[tuple[list[int], float]]) -> Filter:
    """Add a number to the score of the last token of each run, wherever the tokens before it have just been written."""
    known = list(runs)

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        for (*before, last), number in known:
            if len(before) > tokens.shape[1]:
                continue
            prefix = torch.tensor(before, dtype=tokens.dtype, device=tokens.device)
            there = (tokens[:, tokens.shape[1] - len(before) :] == prefix).all(-1)  # (rows,)
            scores[:, _known(last, scores)] += torch.where(there, number, 0.0)
        return scores

    return apply


def forbid(ids: list[int], when: Callable[[int], bool] = lambda length: True) -> Filter:
    """Forbid these tokens while `when` says so of the number of tokens there are."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        if not when(tokens.shape[1]):
            return scores
        scores = scores.clone()
        scores[:, [_known(token, scores) for token in ids]] = _NEVER
        return scores

    return apply


def force_at(length: int, ids: list[int]) -> Filter:
    """Allow these tokens alone once exactly `length` tokens are there."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        if tokens.shape[1] != length:
            return scores
        forced = torch.full_like(scores, _NEVER)
        forced[:, [_known(token, scores) for token in ids]] = 0.0
        return forced

    return apply


def hasten_end(start: int, factor: float, eos: list[int]) -> Filter:
    """Past `start` tokens the end's score grows by its size times factor ** (tokens past the start) - 1."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        past = tokens.shape[1] - start
        if past <= 0:
            return scores
        scores = scores.clone()
        ends = scores[:, eos]
        scores[:, eos] = torch.where(ends.isfinite(), ends + ends.abs() * (factor**past - 1), ends)
        return scores

    return apply


def _known(token: int, scores: Tensor) -> int:
    if not 0 <= token < scores.shape[-1]:
        raise InputError(f"A forced or forbidden token is {token}, but this model writes 0 to {scores.shape[-1] - 1}.")
    return token


# what shapes the chance; `keep` tokens stay whatever happens


def temperature(value: float) -> Filter:
    return lambda tokens, scores: scores / value


def top_k(k: int, keep: int = 1) -> Filter:
    """Keep the k likeliest tokens (and any that tie with the last of them)."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        least = scores.topk(min(max(k, keep), scores.shape[-1])).values[:, -1:]
        return scores.masked_fill(scores < least, _NEVER)

    return apply


def top_p(p: float, keep: int = 1) -> Filter:
    """Keep the likeliest tokens that together reach probability p."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        ordered, where = scores.sort(dim=-1, descending=True)
        probability = ordered.softmax(-1)
        dropped = probability.cumsum(-1) - probability >= p  # what lies above a token is enough already
        dropped[:, :keep] = False
        return scores.masked_fill(dropped.scatter(1, where, dropped), _NEVER)

    return apply


def at_least(floor: Callable[[Tensor, Tensor], Tensor | float], keep: int = 1) -> Filter:
    """Drop tokens less likely than a floor, which may depend on the probabilities and their logarithms."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        log_p = scores.log_softmax(-1)
        p = log_p.exp()
        safe = scores >= scores.topk(min(keep, scores.shape[-1])).values[:, -1:]
        return scores.masked_fill((p < floor(p, log_p)) & ~safe, _NEVER)

    return apply


def min_p(share: float, keep: int = 1) -> Filter:
    """Keep tokens at least `share` as likely as the likeliest."""
    return at_least(lambda p, log_p: share * p.amax(-1, keepdim=True), keep)


def epsilon_cutoff(epsilon: float, keep: int = 1) -> Filter:
    return at_least(lambda p, log_p: epsilon, keep)


def eta_cutoff(epsilon: float, keep: int = 1) -> Filter:
    """The floor falls where the model is unsure: min(ε, √ε · exp(-entropy))."""
    return at_least(lambda p, log_p: (epsilon**0.5 * (-_entropy(p, log_p)).exp()).clamp(max=epsilon), keep)


def typical_p(mass: float, keep: int = 1) -> Filter:
    """Keep the tokens whose surprise is nearest to the expected surprise, up to a share of the probability."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        log_p = scores.log_softmax(-1)
        p = log_p.exp()
        oddness, where = (-log_p - _entropy(p, log_p)).abs().sort(dim=-1)
        last = (p.gather(1, where).cumsum(-1) < mass).sum(-1, keepdim=True).clamp(max=p.shape[-1] - 1)
        dropped = oddness > oddness.gather(1, last)
        dropped[:, :keep] = False
        return scores.masked_fill(dropped.scatter(1, where, dropped), _NEVER)

    return apply


def _entropy(p: Tensor, log_p: Tensor) -> Tensor:
    return -(p * log_p).nansum(-1, keepdim=True)


def rules(options: Options, prompt: int, eos: list[int], new_tokens: int, source: Tensor | None = None) -> list[Filter]:
    """The rules that these options ask for. source: the text an encoder has read, (texts, time)."""
    filters: list[Filter] = []
    if options.sequence_bias is not None:
        filters.append(add_to_runs(_biases(options.sequence_bias)))
    if options.encoder_repetition_penalty != 1.0:
        filters.append(repetition_penalty(1 / options.encoder_repetition_penalty, of=_read(source)))
    if options.repetition_penalty != 1.0:
        filters.append(repetition_penalty(options.repetition_penalty))
    if options.presence_penalty or options.frequency_penalty:
        filters.append(written_penalty(options.presence_penalty, options.frequency_penalty, prompt))
    if options.no_repeat_ngram_size:
        filters.append(no_repeat_ngram(options.no_repeat_ngram_size))
    if options.encoder_no_repeat_ngram_size:
        filters.append(no_repeat_ngram(options.encoder_no_repeat_ngram_size, of=_read(source)))
    runs = [list(run) for run in options.bad_words_ids or [] if list(run) not in [[end] for end in eos]]
    if runs:
        filters.append(add_to_runs((run, _NEVER) for run in runs))
    least = max(options.min_length, prompt + options.min_new_tokens if options.min_new_tokens else 0)
    if least and eos:
        filters.append(forbid(eos, lambda length: length < least))
    if options.forced_bos_token_id is not None:
        filters.append(force_at(1, [options.forced_bos_token_id]))
    last = options.forced_eos_token_id
    if last is not None and last != []:
        filters.append(force_at(prompt + new_tokens - 1, [last] if isinstance(last, int) else list(last)))
    if options.exponential_decay_length_penalty is not None and eos:
        start, factor = options.exponential_decay_length_penalty
        filters.append(hasten_end(prompt + int(start), factor, eos))
    if options.suppress_tokens:
        filters.append(forbid(list(options.suppress_tokens)))
    if options.begin_suppress_tokens:
        first = prompt + (prompt == 1 and options.forced_bos_token_id is not None)
        filters.append(forbid(list(options.begin_suppress_tokens), lambda length: length == first))
    return filters


def chances(options: Options, eos: list[int]) -> list[Filter]:
    """What shapes the distribution that is drawn from, and makes it one again if asked to."""
    last: list[Filter] = [lambda tokens, scores: scores.log_softmax(-1)] if options.renormalize_logits else []
    if not options.samples:
        return last
    keep = 1 if options.num_beams == 1 else 1 + max(len(eos), 1)  # a beam needs a way on beside the end
    shaped = {
        "temperature": temperature,
        "top_k": lambda k: top_k(k, keep),
        "top_p": lambda p: top_p(p, keep),
        "min_p": lambda share: min_p(share, keep),
        "typical_p": lambda mass: typical_p(mass, keep),
        "epsilon_cutoff": lambda epsilon: epsilon_cutoff(epsilon, keep),
        "eta_cutoff": lambda epsilon: eta_cutoff(epsilon, keep),
    }
    asked = [make(getattr(options, name)) for name, make in shaped.items() if getattr(options, name) is not None]
    return asked + last


def _read(source: Tensor | None) -> Tensor:
    if source is None:
        raise InputError("encoder_… options compare with what an encoder has read; this model has none.")
    return source


def _biases(given: object) -> list[tuple[list[int], float]]:
    """{(ids): bias}, or as JSON must write it, [[[ids], bias], …]."""
    pairs = given.items() if isinstance(given, dict) else given
    try:
        found = [([int(token) for token in run], float(bias)) for run, bias in pairs]  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        found = [([], 0.0)]
    if not all(run and bias < torch.inf for run, bias in found):  # nan is not below it either
        raise InputError(f"sequence_bias is {given!r}; it must be {{(token ids): number}}.")
    return found
