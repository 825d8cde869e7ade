"""Logits processors: what may be written, and what counts against it. Each takes and returns scores (rows, vocab).

`logits_processors` puts together those that some options ask for, in the order that users of `transformers` know. The
warpers, which shape the distribution that is drawn from, come after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.options import Options

# (tokens so far (rows, time), scores (rows, vocab)) -> scores. Padding before a text is -1.
LogitsProcessor = Callable[[Tensor, Tensor], Tensor]
FORBIDDEN = -torch.inf


def logits_processors(
    options: Options, prompt_length: int, eos: list[int], max_new_tokens: int, encoder_ids: Tensor | None = None
) -> list[LogitsProcessor]:
    """The processors that these options ask for. encoder_ids: the text an encoder has read, (texts, time)."""
    processors: list[LogitsProcessor] = []
    if options.sequence_bias is not None:
        processors.append(sequence_bias(_biases(options.sequence_bias)))
    if options.encoder_repetition_penalty != 1.0:
        processors.append(
            repetition_penalty(1 / options.encoder_repetition_penalty, encoder_ids=_encoder_ids(encoder_ids))
        )
    if options.repetition_penalty != 1.0:
        processors.append(repetition_penalty(options.repetition_penalty))
    if options.presence_penalty or options.frequency_penalty:
        processors.append(
            presence_and_frequency_penalty(options.presence_penalty, options.frequency_penalty, prompt_length)
        )
    if options.no_repeat_ngram_size:
        processors.append(no_repeat_ngram(options.no_repeat_ngram_size))
    if options.encoder_no_repeat_ngram_size:
        processors.append(no_repeat_ngram(options.encoder_no_repeat_ngram_size, encoder_ids=_encoder_ids(encoder_ids)))
    bad_words = [list(word) for word in options.bad_words_ids or [] if list(word) not in [[end] for end in eos]]
    if bad_words:
        processors.append(sequence_bias((word, FORBIDDEN) for word in bad_words))
    min_length = max(options.min_length, prompt_length + options.min_new_tokens if options.min_new_tokens else 0)
    if min_length and eos:
        processors.append(suppress_tokens(eos, lambda length: length < min_length))
    if options.forced_bos_token_id is not None:
        processors.append(force_tokens_at(1, [options.forced_bos_token_id]))
    forced_eos = options.forced_eos_token_id
    if forced_eos is not None and forced_eos != []:
        processors.append(
            force_tokens_at(
                prompt_length + max_new_tokens - 1, [forced_eos] if isinstance(forced_eos, int) else list(forced_eos)
            )
        )
    if options.exponential_decay_length_penalty is not None and eos:
        start, factor = options.exponential_decay_length_penalty
        processors.append(exponential_decay_length_penalty(prompt_length + int(start), factor, eos))
    if options.suppress_tokens:
        processors.append(suppress_tokens(list(options.suppress_tokens)))
    if options.begin_suppress_tokens:
        begin = prompt_length + (prompt_length == 1 and options.forced_bos_token_id is not None)
        processors.append(suppress_tokens(list(options.begin_suppress_tokens), lambda length: length == begin))
    return processors


def repetition_penalty(penalty: float, encoder_ids: Tensor | None = None) -> LogitsProcessor:
    """CTRL's: a score of a token already seen is divided by the penalty if positive, multiplied if negative.

    encoder_ids  another text that counts instead, (texts, time): an encoder's. A row's copies share theirs.
    """

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        counted = tokens if encoder_ids is None else _for_rows(encoder_ids, len(scores))
        counted = torch.where(counted < 0, counted.amax(-1, keepdim=True), counted)  # padding counts for nothing
        seen = scores.gather(1, counted)
        return scores.scatter(1, counted, torch.where(seen < 0, seen * penalty, seen / penalty))

    return apply


def presence_and_frequency_penalty(presence: float, frequency: float, prompt_length: int) -> LogitsProcessor:
    """Subtract from the score of what was written: once for being there, and once for each time."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        new = tokens[:, prompt_length:]
        counts = torch.zeros_like(scores).scatter_add(1, new, torch.ones_like(new, dtype=scores.dtype))
        return scores - presence * (counts > 0) - frequency * counts

    return apply


def no_repeat_ngram(size: int, encoder_ids: Tensor | None = None) -> LogitsProcessor:
    """Forbid any token that would complete an n-gram of this size a second time (encoder_ids: one of the source)."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        time = tokens.shape[1]
        earlier = tokens if encoder_ids is None else _for_rows(encoder_ids, len(scores))
        if time + 1 < size or earlier.shape[1] < size:
            return scores
        ngrams = earlier.unfold(1, size, 1)  # (rows, ngrams, size)
        recent = tokens[:, time - size + 1 :]  # the last size - 1 tokens
        last = ngrams[:, :, -1]
        repeats = (ngrams[:, :, :-1] == recent[:, None, :]).all(-1) & (last >= 0)  # (rows, ngrams)
        banned = torch.zeros_like(scores, dtype=torch.int8).scatter_reduce(
            1, last.clamp(min=0), repeats.to(torch.int8), reduce="amax"
        )
        return scores.masked_fill(banned.bool(), FORBIDDEN)

    return apply


def _for_rows(texts: Tensor, rows: int) -> Tensor:
    return texts if len(texts) == rows else texts.repeat_interleave(rows // len(texts), 0)


def sequence_bias(sequences: Iterable[tuple[list[int], float]]) -> LogitsProcessor:
    """Add a bias to the score of the last token of each run, wherever the tokens before it have just been written."""
    biases = list(sequences)

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        for (*before, last), bias in biases:
            if len(before) > tokens.shape[1]:
                continue
            prefix = torch.tensor(before, dtype=tokens.dtype, device=tokens.device)
            matches = (tokens[:, tokens.shape[1] - len(before) :] == prefix).all(-1)  # (rows,)
            scores[:, _in_vocabulary(last, scores)] += torch.where(matches, bias, 0.0)
        return scores

    return apply


def suppress_tokens(ids: list[int], when: Callable[[int], bool] = lambda length: True) -> LogitsProcessor:
    """Forbid these tokens while `when` says so of the number of tokens there are."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        if not when(tokens.shape[1]):
            return scores
        scores = scores.clone()
        scores[:, [_in_vocabulary(token, scores) for token in ids]] = FORBIDDEN
        return scores

    return apply


def force_tokens_at(length: int, ids: list[int]) -> LogitsProcessor:
    """Allow these tokens alone once exactly `length` tokens are there."""

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        if tokens.shape[1] != length:
            return scores
        forced = torch.full_like(scores, FORBIDDEN)
        forced[:, [_in_vocabulary(token, scores) for token in ids]] = 0.0
        return forced

    return apply


def exponential_decay_length_penalty(start: int, factor: float, eos: list[int]) -> LogitsProcessor:
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


def _in_vocabulary(token: int, scores: Tensor) -> int:
    if not 0 <= token < scores.shape[-1]:
        raise InputError(f"A forced or forbidden token is {token}, but this model writes 0 to {scores.shape[-1] - 1}.")
    return token


def _encoder_ids(encoder_ids: Tensor | None) -> Tensor:
    if encoder_ids is None:
        raise InputError("encoder_… options compare with what an encoder has read; this model has none.")
    return encoder_ids


def _biases(biases: object) -> list[tuple[list[int], float]]:
    """{(ids): bias}, or as JSON must write it, [[[ids], bias], …]."""
    pairs = biases.items() if isinstance(biases, dict) else biases
    try:
        read = [([int(token) for token in sequence], float(bias)) for sequence, bias in pairs]  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        read = [([], 0.0)]
    if not all(sequence and bias < torch.inf for sequence, bias in read):  # nan is not below it either
        raise InputError(f"sequence_bias is {biases!r}; it must be {{(token ids): number}}.")
    return read
