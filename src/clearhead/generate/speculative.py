"""Looking ahead (speculative decoding): guess several tokens cheaply, let the model check all of them at once.

A guess never decides anything. `Ahead` answers each step with the model's own scores for the text so far; if the
token that was chosen is the one that had been guessed, those scores are there already, and the model is not asked.
So whatever is chosen, greedily or by chance, has exactly the model's own distribution, and the same seed gives the
same text with guesses as without: only rounding differs, because several tokens are read together.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.loop import Choice
from clearhead.generate.processors import Filter
from clearhead.generate.session import Session, shared_beginning
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.model import Model
from clearhead.nn.kv_cache import BLOCK


class Guesser(Protocol):
    def __call__(self, tokens: Tensor, written: int) -> Tensor:
        """Guess what follows these tokens (rows, time), of which `written` are new: (rows, 0 or more)."""
        ...


class Ahead:
    """A session that reads guesses ahead of what was chosen. It has the session's face, as far as the loop needs it."""

    def __init__(self, session: Session, guess: Guesser, room: int) -> None:
        """room: how many tokens will be written, so that nothing is guessed beyond."""
        _check_goes_back(session)
        self._session, self._guess, self._room = session, guess, room
        self.prompt = session.prompt
        self._guessed = session.tokens[:, :0]  # (rows, n): read already, not chosen yet
        self._scores = torch.empty(0)  # (rows, n + 1, vocab): after the last chosen token, and after each guess
        self.steps = 0

    @property
    def tokens(self) -> Tensor:
        tokens = self._session.tokens
        return tokens[:, : tokens.shape[1] - self._guessed.shape[1]]

    def start(self) -> Tensor:
        return self._session.start()

    def copies(self, count: int) -> None:
        self._session.copies(count)

    def step(self, chosen: Tensor) -> Tensor:
        if self._guessed.shape[1] and bool((self._guessed[:, 0] == chosen).all()):
            self._guessed, self._scores = self._guessed[:, 1:], self._scores[:, 1:]
            return self._scores[:, 0]
        self._session.forget(self._guessed.shape[1])
        text = torch.cat([self._session.tokens, chosen[:, None]], 1)
        written = text.shape[1] - self.prompt
        guessed = self._guess(text, written)[:, : max(self._room - written - 1, 0)]
        self._scores = self._session.read(torch.cat([chosen[:, None], guessed], 1))
        self._guessed = guessed
        self.steps += 1
        return self._scores[:, 0]


class Draft:
    """A smaller model guesses, by the same rules and with the same draws, so that it says what the large one would."""

    def __init__(self, session: Session, filters: list[Filter], choose: Choice, count: int, room: int) -> None:
        _check_goes_back(session)
        self._session, self._filters, self._choose = session, filters, choose
        self._count, self._room = min(count, BLOCK), room
        self._started = False

    def __call__(self, tokens: Tensor, written: int) -> Tensor:
        session = self._session
        count = min(self._count, self._room - written - 1)
        if session.limit is not None:  # the last guess is not read
            count = min(count, session.limit + 1 - tokens.shape[1])
        if count < 1:
            return tokens[:, :0]
        if not self._started:
            session.start()
            session.copies(len(tokens) // len(session.tokens))
            self._started = True
        shared = shared_beginning(session.tokens, tokens)
        session.forget(session.tokens.shape[1] - shared)
        scores = session.read(tokens[:, shared:])[:, -1]
        guesses = []
        for n in range(count):
            for apply in self._filters:
                scores = apply(session.tokens, scores)
            guesses.append(self._choose(scores, written + n))
            if n + 1 < count:
                scores = session.step(guesses[-1])
        return torch.stack(guesses, 1)


class Lookup:
    """What followed the same words before: the longest run of the last tokens that occurs earlier, and its sequel."""

    def __init__(self, count: int, longest: int = 3) -> None:
        self._count, self._longest = min(count, BLOCK), longest

    def __call__(self, tokens: Tensor, written: int) -> Tensor:
        if len(tokens) > 1:  # rows would rarely agree on how much to guess
            return tokens[:, :0]
        text = tokens[0]
        for size in range(min(self._longest, len(text) - 1), 0, -1):
            runs = text[:-1].unfold(0, size, 1)  # all but the run at the very end
            places = (runs == text[-size:]).all(-1).nonzero()
            if len(places):
                after = int(places[-1]) + size
                return text[None, after : after + self._count]
        return tokens[:, :0]


def check_draft(model: Model, draft: object) -> Model:
    """The draft's model (a loaded pipeline has one); an error if it cannot guess for this model."""
    draft = getattr(draft, "model", draft)
    if not isinstance(draft, Model):
        raise InputError(f"assistant_model must be a loaded model, not {type(draft).__name__}.")
    if draft.config.vocab_size != model.config.vocab_size:
        raise InputError(
            f"The assistant knows {draft.config.vocab_size} tokens and the model {model.config.vocab_size}: "
            "they must share a vocabulary, so that a guess means the same to both."
        )
    if isinstance(draft, EncoderDecoderModel) != isinstance(model, EncoderDecoderModel):
        raise InputError("One of model and assistant has an encoder and the other has none: they do not read alike.")
    return draft


def _check_goes_back(session: Session) -> None:
    if not session.cache.can_crop:
        raise InputError(
            f"{session.model.family.title} remembers states, which cannot be taken back when a guess was wrong. "
            "Write without assistant_model and prompt_lookup_num_tokens."
        )
