"""What happens to the scores between the model and the choice: each filter takes and returns (rows, vocab)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.options import Options

# (tokens so far (rows, time), scores (rows, vocab)) -> scores
Filter = Callable[[Tensor, Tensor], Tensor]


def repetition_penalty(penalty: float) -> Filter:
    """CTRL's: a score of a token already seen is divided by the penalty if positive, multiplied if negative."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        seen = scores.gather(1, tokens)
        return scores.scatter(1, tokens, torch.where(seen < 0, seen * penalty, seen / penalty))

    return apply


def no_repeat_ngram(size: int) -> Filter:
    """Forbid any token that would complete a run of `size` tokens for the second time."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        time = tokens.shape[1]
        if time < size:
            return scores
        runs = tokens.unfold(1, size, 1)  # (rows, runs, size)
        recent = tokens[:, time - size + 1 :]  # the last size - 1 tokens
        again = (runs[:, :, :-1] == recent[:, None, :]).all(-1)  # (rows, runs)
        banned = torch.zeros_like(scores, dtype=torch.int8).scatter_reduce(
            1, runs[:, :, -1], again.to(torch.int8), reduce="amax"
        )
        return scores.masked_fill(banned.bool(), -torch.inf)

    return apply


def forbid_until(length: int, ids: list[int]) -> Filter:
    """Forbid these tokens (the end) while fewer than `length` tokens are there."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        if tokens.shape[1] >= length:
            return scores
        scores = scores.clone()
        scores[:, ids] = -torch.inf
        return scores

    return apply


def never(runs: list[list[int]]) -> Filter:
    """Forbid the last token of each run wherever the tokens before it have just been written."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        for *before, last in runs:
            if len(before) > tokens.shape[1]:
                continue
            prefix = torch.tensor(before, dtype=tokens.dtype, device=tokens.device)
            there = (tokens[:, tokens.shape[1] - len(before) :] == prefix).all(-1)  # (rows,)
            scores[:, _known(last, scores)] += torch.where(there, -torch.inf, 0.0)
        return scores

    return apply


def force_at(length: int, ids: list[int]) -> Filter:
    """Allow these tokens alone once exactly `length` tokens are there."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        if tokens.shape[1] != length:
            return scores
        forced = torch.full_like(scores, -torch.inf)
        forced[:, [_known(token, scores) for token in ids]] = 0.0
        return forced

    return apply


def _known(token: int, scores: Tensor) -> int:
    if not 0 <= token < scores.shape[-1]:
        raise InputError(f"A forced or forbidden token is {token}, but this model writes 0 to {scores.shape[-1] - 1}.")
    return token


def temperature(value: float) -> Filter:
    return lambda tokens, scores: scores / value


def top_k(k: int) -> Filter:
    """Keep the k likeliest tokens (and any that tie with the last of them)."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        least = scores.topk(min(k, scores.shape[-1])).values[:, -1:]
        return scores.masked_fill(scores < least, -torch.inf)

    return apply


def top_p(p: float) -> Filter:
    """Keep the likeliest tokens that together reach probability p; at least one."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        ordered, where = scores.sort(dim=-1, descending=True)
        probability = ordered.softmax(-1)
        before = probability.cumsum(-1) - probability  # what lies above each token
        dropped = (before >= p).scatter(1, where, before >= p)
        return scores.masked_fill(dropped, -torch.inf)

    return apply


def pipeline(options: Options, prompt: int, eos: list[int], new_tokens: int) -> list[Filter]:
    """The filters that these options ask for, in order: rules first, then what shapes the chance."""
    filters: list[Filter] = []
    if options.repetition_penalty != 1.0:
        filters.append(repetition_penalty(options.repetition_penalty))
    if options.no_repeat_ngram_size:
        filters.append(no_repeat_ngram(options.no_repeat_ngram_size))
    runs = [list(run) for run in options.bad_words_ids or [] if list(run) not in [[end] for end in eos]]
    if runs:
        filters.append(never(runs))
    if options.min_new_tokens and eos:
        filters.append(forbid_until(prompt + options.min_new_tokens, eos))
    if options.forced_bos_token_id is not None:
        filters.append(force_at(1, [options.forced_bos_token_id]))
    last = options.forced_eos_token_id
    if last is not None and last != []:
        filters.append(force_at(prompt + new_tokens - 1, [last] if isinstance(last, int) else list(last)))
    if options.samples:
        if options.temperature is not None:
            filters.append(temperature(options.temperature))
        if options.top_k is not None:
            filters.append(top_k(options.top_k))
        if options.top_p is not None:
            filters.append(top_p(options.top_p))
    return filters
