"""Attention's first home: a decoder's state scores every state of the encoder, and reads their weighted sum.

Bahdanau et al. 2014 score with the state before the step (additive), Luong et al. 2015 with the state after it (dot,
general, concat), over the whole source or a window of it whose place is predicted (local-p). What is announced is
(batch, target, …): the `state` that looks, its `scores` before the mask, `weights` and `context`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.linear import Linear
from clearhead.nn.recurrent import Announce
from clearhead.nn.tracing import is_watched

Score = Literal["additive", "dot", "general", "concat"]


class AttendedStates(NamedTuple):
    """What the decoder looks at: an encoder's states, made ready once for a text."""

    memory: Tensor  # (texts, source, width)
    keys: Tensor | None  # (texts, source, what a query is compared with)
    real: Tensor | None  # (texts, source); None: no padding

    def places(self) -> tuple[Tensor, Tensor]:
        """Where each state stands among the words, (1 or texts, 1, source), and how many words there are, (…, 1, 1)."""
        real = torch.ones_like(self.memory[:1, :, 0], dtype=torch.bool) if self.real is None else self.real
        return (real.cumsum(1) - 1)[:, None], real.sum(1)[:, None, None]


class PredictedPlace(nn.Module):
    """vᵀ tanh(W s): before a sigmoid, where in the source to look."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = Linear(width, width, bias=False)
        self.vector = Linear(width, 1, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        place: Tensor = self.vector(self.inner(states).tanh())
        return place


class RecurrentAttention(nn.Module):
    """
    additive   vᵀ tanh(W s + U h)   of the state s before the step
    concat     the same of the state after it: vᵀ tanh(W_a [s; h]), the matrix cut in two
    dot        sᵀ h                 general   sᵀ W h
    window     local-p: only so many positions to either side of p = length · sigmoid(vᵀ tanh(W s)) are seen, and
               their weights fade from it as a Gaussian does, of half the window's width; a row then sums to less than 1
    """

    def __init__(
        self, width: int, source_width: int, score: Score, *, inner_width: int | None = None, window: int | None = None
    ) -> None:
        """inner_width: of v, in additive and concat."""
        super().__init__()
        self.score, self.window = score, window
        inner = inner_width or width
        two_sided = score in ("additive", "concat")
        if score == "dot" and width != source_width:
            raise ConfigError(
                f"A dot product needs states of one width: the decoder's have {width}, the encoder's {source_width}. "
                "Take general, which has a matrix between them."
            )
        self.query = Linear(width, inner, bias=False) if two_sided else None
        self.key = None if score == "dot" else Linear(source_width, inner if two_sided else width, bias=two_sided)
        self.vector = Linear(inner, 1, bias=False) if two_sided else None
        self.place = None if window is None else PredictedPlace(width)

    @property
    def taps(self) -> tuple[str, ...]:
        return ("state", "scores", *(("place",) if self.window is not None else ()), "weights", "context")

    def source(self, memory: Tensor, real: Tensor | None) -> AttendedStates:
        return AttendedStates(memory, memory if self.key is None else self.key(memory), real)

    def forward(self, states: Tensor, source: AttendedStates, tap: Announce) -> Tensor:
        """states (rows, time, width) -> context (rows, time, source width). Copies of a text share its source:
        rows = texts · copies."""
        rows, time = states.shape[:2]
        texts = len(source.memory)
        states = tap("state", states)
        states = states.reshape(texts, rows // texts * time, states.shape[-1])  # side by side with their text
        scores = self._scores(states, source)

        def told(name: str, value: Tensor) -> Tensor:
            return tap(name, value.reshape(rows, time, value.shape[-1])).reshape(value.shape)

        wide = torch.promote_types(states.dtype, torch.float32)
        scores = told("scores", scores).to(wide)
        seen = None if source.real is None else source.real[:, None]
        fading = None
        if self.place is not None and self.window is not None:
            at, length = source.places()
            away = at - told("place", length * self.place(states).to(wide).sigmoid())  # (texts, copies · time, source)
            near = away.abs() <= self.window
            seen = near if seen is None else near & seen
            fading = torch.exp(-2 * (away / self.window) ** 2) * seen
        if seen is not None:
            scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        if seen is not None:  # a row that may see nothing has weights of zero, as everywhere
            weights = weights * (seen if fading is None else fading)
        context = told("weights", weights.to(states.dtype)) @ source.memory
        return told("context", context).reshape(rows, time, -1)

    def _scores(self, states: Tensor, source: AttendedStates) -> Tensor:
        """(texts, copies · time, source)"""
        assert source.keys is not None
        if self.query is None:
            return states @ source.keys.transpose(1, 2)
        assert self.vector is not None
        both = self.query(states)[:, :, None] + source.keys[:, None]  # (texts, copies · time, source, inner)
        scores: Tensor = self.vector(both.tanh())[..., 0]
        return scores

    def is_seen(self) -> bool:
        return is_watched(self, *self.taps)
