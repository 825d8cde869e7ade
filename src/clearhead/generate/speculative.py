"""Speculative decoding: propose several tokens cheaply, let the model verify all of them at once.

A proposal never decides anything. `SpeculativeSession` answers each step with the model's own scores for the text so
far; if the token that was chosen is the one that had been proposed, those scores are there already, and the model is
not run. So whatever is chosen, greedily or by chance, has exactly the model's own distribution, and the same seed gives
the same text with proposals as without: only rounding differs, because several tokens are read together.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.loop import TokenChooser
from clearhead.generate.processors import LogitsProcessor
from clearhead.generate.session import DecodingSession, shared_prefix
from clearhead.models.model import Model
from clearhead.nn.kv_cache import BLOCK


class Proposer(Protocol):
    def __call__(self, tokens: Tensor, written: int) -> Tensor:
        """Propose what follows these tokens (rows, time), of which `written` are new: (rows, 0 or more)."""
        ...


class SpeculativeSession:
    """A session that reads proposed tokens before they are chosen: a `Session` to the loop.

    model_calls   how often the model was run, the prompt included
    """

    def __init__(self, session: DecodingSession, propose: Proposer, max_new_tokens: int) -> None:
        """max_new_tokens: how many will be written, so that nothing is proposed beyond."""
        _check_can_roll_back(session)
        self._session, self._propose, self._max_new_tokens = session, propose, max_new_tokens
        self._proposed = session.tokens[:, :0]  # (rows, n): read already, not chosen yet
        self._scores = torch.empty(0)  # (rows, n + 1, vocab): after the last chosen token, and after each proposed one
        self.model_calls = 0

    @property
    def tokens(self) -> Tensor:
        tokens = self._session.tokens
        return tokens[:, : tokens.shape[1] - self._proposed.shape[1]]

    def prefill(self) -> Tensor:
        self.model_calls += 1
        return self._session.prefill()

    def repeat(self, count: int) -> None:
        self._session.repeat(count)

    def step(self, chosen: Tensor) -> Tensor:
        if self._proposed.shape[1] and bool((self._proposed[:, 0] == chosen).all()):
            self._proposed, self._scores = self._proposed[:, 1:], self._scores[:, 1:]
            return self._scores[:, 0]
        self._session.rollback(self._proposed.shape[1])
        text = torch.cat([self._session.tokens, chosen[:, None]], 1)
        written = text.shape[1] - self._session.prompt_length
        proposed = self._propose(text, written)[:, : max(self._max_new_tokens - written - 1, 0)]
        self._scores = self._session.append(torch.cat([chosen[:, None], proposed], 1))
        self._proposed = proposed
        self.model_calls += 1
        return self._scores[:, 0]


class DraftModel:
    """A smaller model proposes, with the same processors and draws, so that it says what the large one would."""

    def __init__(
        self,
        session: DecodingSession,
        processors: list[LogitsProcessor],
        choose: TokenChooser,
        count: int,
        max_new_tokens: int,
    ) -> None:
        """count: how many tokens are proposed at a time; max_new_tokens: how many will be written in all."""
        _check_can_roll_back(session)
        self._session, self._processors, self._choose = session, processors, choose
        self._count, self._max_new_tokens = min(count, BLOCK), max_new_tokens
        self._started = False

    def __call__(self, tokens: Tensor, written: int) -> Tensor:
        session = self._session
        count = min(self._count, self._max_new_tokens - written - 1)
        if session.max_length is not None:  # the last proposed token is not read
            count = min(count, session.max_length + 1 - tokens.shape[1])
        if count < 1:
            return tokens[:, :0]
        if not self._started:
            session.prefill()
            session.repeat(len(tokens) // len(session.tokens))
            self._started = True
        shared = shared_prefix(session.tokens, tokens)
        session.rollback(session.tokens.shape[1] - shared)
        scores = session.append(tokens[:, shared:])[:, -1]
        proposed = []
        for n in range(count):
            for process in self._processors:
                scores = process(session.tokens, scores)
            proposed.append(self._choose(scores, written + n))
            if n + 1 < count:
                scores = session.step(proposed[-1])
        return torch.stack(proposed, 1)


class PromptLookup:
    """What followed the same words before: the longest n-gram at the end that occurs earlier, and its sequel."""

    def __init__(self, count: int, longest: int = 3) -> None:
        self._count, self._longest = min(count, BLOCK), longest

    def __call__(self, tokens: Tensor, written: int) -> Tensor:
        if len(tokens) > 1:  # rows would rarely agree on how much to propose
            return tokens[:, :0]
        text = tokens[0]
        for size in range(min(self._longest, len(text) - 1), 0, -1):
            ngrams = text[:-1].unfold(0, size, 1)  # all but the one at the very end
            matches = (ngrams == text[-size:]).all(-1).nonzero()
            if len(matches):
                after = int(matches[-1]) + size
                return text[None, after : after + self._count]
        return tokens[:, :0]


def check_draft_model(model: Model, draft: object) -> Model:
    """The draft model (a loaded pipeline has one); an error if it cannot propose for this model."""
    draft = getattr(draft, "model", draft)
    if not isinstance(draft, Model):
        raise InputError(f"assistant_model must be a loaded model, not {type(draft).__name__}.")
    if draft.config.vocab_size != model.config.vocab_size:
        raise InputError(
            f"The assistant knows {draft.config.vocab_size} tokens and the model {model.config.vocab_size}: "
            "they must share a vocabulary, so that a token means the same to both."
        )
    if draft.is_encoder_decoder != model.is_encoder_decoder:
        raise InputError("One of model and assistant has an encoder and the other has none: they do not read alike.")
    return draft


def _check_can_roll_back(session: DecodingSession) -> None:
    if not session.state.can_crop:
        raise InputError(
            f"{session.model.family.title} carries a state that cannot go back when a proposed token was wrong. "
            "Write without assistant_model and prompt_lookup_num_tokens."
        )
