"""The one loop: scores → rules and chances → choice → stop. It yields a token for every row at a time.

Everything that decodes goes through here or has the same shape: a `Session` asks the model, filters change the
scores, a choice takes one token of each row, and stops say which rows are finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.processors import Filter
from clearhead.generate.session import Session
from clearhead.generate.stops import Stop

# (scores (rows, vocab), how many tokens were written before) -> tokens (rows,)
Choice = Callable[[Tensor, int], Tensor]
NOTHING_LEFT = "The rules leave no token that may be written here. Ask for fewer of them, or less text."
LOOK_EVERY = 16  # on an accelerator, how many tokens are written between two looks at whether all rows are finished


@dataclass
class Step:
    """One token for every row."""

    tokens: Tensor  # (rows,); padding in rows that were finished before
    logits: Tensor  # (rows, vocab), as the model gave them
    scores: Tensor  # (rows, vocab), as the filters left them
    finished: Tensor  # (rows,) bool, this token included

    def log_probs(self) -> Tensor:
        """(rows,): what the model itself gave each token."""
        return self.logits.log_softmax(-1).gather(1, self.tokens[:, None])[:, 0]


def greedy(scores: Tensor, written: int) -> Tensor:
    return scores.argmax(-1)


def throw(rows: int, new_tokens: int, seeds: list[int] | None) -> Tensor:
    """(rows, new) numbers in [0, 1), thrown beforehand: all the chance that a text needs.

    A row's numbers depend on its own seed alone, are the same on every device, and nothing waits for them.
    """
    if seeds is None:
        thrown = torch.rand(rows, new_tokens)
    else:
        thrown = torch.stack([torch.rand(new_tokens, generator=torch.Generator().manual_seed(s)) for s in seeds])
    return thrown.clamp(max=1 - 2**-22)  # products with it stay below the other factor, in fp32 too


def sampling(thrown: Tensor) -> Choice:
    return lambda scores, written: draw_by(scores, thrown[:, written, None])


def draw_by(scores: Tensor, thrown: Tensor) -> Tensor:
    """The token where the cumulative probability passes `thrown` (rows, 1); one of probability 0 is never met."""
    share = scores.softmax(-1)
    reached = share.cumsum(-1)
    found = torch.searchsorted(reached, thrown * reached[:, -1:], right=True).clamp(max=scores.shape[-1] - 1)
    # Sums made in parallel can grow by a rounding error where nothing was added.
    return torch.where(share.gather(1, found) > 0, found, share.argmax(-1, keepdim=True))[:, 0]


def check_open(scores: Tensor, finished: Tensor) -> None:
    if bool(((scores.amax(-1) == -torch.inf) & ~finished).any()):
        raise InputError(NOTHING_LEFT)


def decode(
    session: Session,
    filters: list[Filter],
    choose: Choice,
    stops: list[Stop],
    pad: int,
    new_tokens: int,
    copies: int = 1,
) -> Iterator[Step]:
    """Up to `new_tokens` steps; it ends when all rows are finished. copies: how many texts begin with each prompt."""
    logits = session.start()
    session.copies(copies)
    logits = logits if copies == 1 else logits.repeat_interleave(copies, 0)
    finished = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
    patient = logits.device.type != "cpu"
    for written in range(new_tokens):
        scores = logits
        for apply in filters:
            scores = apply(session.tokens, scores)
        if filters:
            check_open(scores, finished)
        token = choose(scores, written).masked_fill(finished, pad)
        for stop in stops:
            finished = finished | stop(session.tokens, token)
        yield Step(token, logits, scores, finished)
        looks = not patient or written % LOOK_EVERY == LOOK_EVERY - 1
        if written + 1 == new_tokens or (stops and looks and bool(finished.all())):
            return
        logits = session.step(token)
