"""The one loop: scores → logits processors and warpers → a token → stopping criteria; a token for every row at a time.

Everything that decodes goes through here or has the same shape: a `DecodingSession` runs the model, processors change
the scores, a chooser takes one token of each row, and stopping criteria say which rows are finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.processors import LogitsProcessor
from clearhead.generate.stopping_criteria import StoppingCriterion
from clearhead.messages import say

# (scores (rows, vocab), how many tokens were written before) -> tokens (rows,)
TokenChooser = Callable[[Tensor, int], Tensor]
FINISHED_CHECK_INTERVAL = 16  # on an accelerator, how many tokens are written between two looks at who is finished


class Session(Protocol):
    """What the loop needs of a model that writes: plain (session.py), speculative, or replayed from CUDA graphs."""

    @property
    def tokens(self) -> Tensor:
        """All that the model was given so far, (rows, time)."""
        ...

    def prefill(self) -> Tensor:
        """Read the prompt; scores for the first new token, (rows, vocab)."""
        ...

    def repeat(self, count: int) -> None:
        """Every row `count` times, side by side."""
        ...

    def step(self, chosen: Tensor) -> Tensor:
        """Add a token to every row; scores for the one after it, (rows, vocab)."""
        ...


@dataclass
class DecodingStep:
    """One token for every row."""

    tokens: Tensor  # (rows,); padding in rows that were finished before
    logits: Tensor  # (rows, vocab), as the model gave them
    scores: Tensor  # (rows, vocab), as processors and warpers left them
    finished: Tensor  # (rows,) bool, this token included

    def log_probs(self) -> Tensor:
        """(rows,): what the model itself gave each token."""
        return self.logits.log_softmax(-1).gather(1, self.tokens[:, None])[:, 0]


def greedy(scores: Tensor, written: int) -> Tensor:
    return scores.argmax(-1)


def draw_uniforms(rows: int, max_new_tokens: int, seeds: list[int] | None) -> Tensor:
    """(rows, new) numbers in [0, 1), drawn beforehand: all the chance that a text needs.

    A row's numbers depend on its own seed alone, are the same on every device, and nothing waits for them.
    """
    if seeds is None:
        uniforms = torch.rand(rows, max_new_tokens)
    else:
        uniforms = torch.stack([torch.rand(max_new_tokens, generator=torch.Generator().manual_seed(s)) for s in seeds])
    return uniforms.clamp(max=1 - 2**-22)  # products with it stay below the other factor, in fp32 too


def sampling(uniforms: Tensor) -> TokenChooser:
    return lambda scores, written: sample(scores, uniforms[:, written, None])


def sample(scores: Tensor, uniform: Tensor) -> Tensor:
    """The token where the cumulative probability passes `uniform` (rows, 1); one of probability 0 is never met."""
    probabilities = scores.softmax(-1)
    cumulative = probabilities.cumsum(-1)
    token = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp(max=scores.shape[-1] - 1)
    # Sums made in parallel can grow by a rounding error where nothing was added.
    return torch.where(probabilities.gather(1, token) > 0, token, probabilities.argmax(-1, keepdim=True))[:, 0]


def check_some_token_left(scores: Tensor, finished: Tensor) -> None:
    if bool(((scores.amax(-1) == -torch.inf) & ~finished).any()):
        raise InputError(say("generation.no_token_left"))


def decode(
    session: Session,
    processors: list[LogitsProcessor],
    choose: TokenChooser,
    stopping: list[StoppingCriterion],
    pad: int,
    max_new_tokens: int,
    copies: int = 1,
) -> Iterator[DecodingStep]:
    """Up to `max_new_tokens` steps; fewer when all rows are finished. copies: how many texts each prompt gets."""
    logits = session.prefill()
    session.repeat(copies)
    logits = logits if copies == 1 else logits.repeat_interleave(copies, 0)
    finished = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
    interval = 1 if logits.device.type == "cpu" else FINISHED_CHECK_INTERVAL
    for written in range(max_new_tokens):
        scores = logits
        for process in processors:
            scores = process(session.tokens, scores)
        if processors:
            check_some_token_left(scores, finished)
        token = choose(scores, written).masked_fill(finished, pad)
        for criterion in stopping:
            finished = finished | criterion(session.tokens, token)
        yield DecodingStep(token, logits, scores, finished)
        if written + 1 == max_new_tokens or (stopping and (written + 1) % interval == 0 and bool(finished.all())):
            return
        logits = session.step(token)
