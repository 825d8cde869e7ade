"""A grammar for the tokens of one vocabulary: which of them may come next, and what each leads to.

A token may hold several characters, or a part of one; the automaton of the grammar walks over bytes, and all tokens of
the vocabulary walk it at once (vocabulary.py).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.grammar.automaton import DEAD
from clearhead.generate.grammar.vocabulary import FIRST, OPEN, PLAIN, SPACE, GrammarVocabulary

if TYPE_CHECKING:
    from clearhead.generate.grammar.grammar import Grammar

_REMEMBERED_STATES = 128  # states whose tokens are remembered
_SEARCHED_STATES = 300  # states looked at before an end is taken for granted
_ENDED = -2  # the place after an end token


class GrammarState(NamedTuple):
    """Where a text stands: the state of the automaton, and what the last token left behind."""

    place: int
    mode: int


class _Transitions(NamedTuple):
    """What may follow a state: the place after each token (vocab,), and which are allowed, end tokens too (vocab,)."""

    places: np.ndarray
    allowed: Tensor
    farthest: int  # the most bytes that any of the places needs to its end


class GrammarConstraint:
    """A `TokenConstraint`. States are hashable and cost nothing to keep, so beams may share or copy them."""

    def __init__(
        self, grammar: Grammar, vocabulary: GrammarVocabulary, eos_ids: Sequence[int], leading_space: bool
    ) -> None:
        self.vocabulary, self.eos_ids = vocabulary, list(eos_ids)
        self.description = grammar.description
        self._grammar, self._automaton = grammar, grammar.automaton
        self._first = self._automaton.start
        if leading_space or vocabulary.eats_space:
            self._first = self._automaton.start_after_space(vocabulary.eats_space)
        self.vocab_size = vocabulary.size
        self.is_text = torch.zeros(self.vocab_size, dtype=torch.bool)
        self.is_text[list(vocabulary.texts)] = True
        self._transitions: OrderedDict[GrammarState, _Transitions] = OrderedDict()
        self._can_end: dict[GrammarState, bool] = {}

    def start(self) -> GrammarState:
        """Before the first new token."""
        return GrammarState(self._first, FIRST)

    def is_finished(self, state: GrammarState) -> bool:
        """Whether an end token has ended the text."""
        return state.place == _ENDED

    def is_complete(self, state: GrammarState) -> bool:
        """Whether the text may end here."""
        return state.mode != OPEN and (state.place == _ENDED or bool(self._automaton.accepts[state.place]))

    def allowed(self, state: GrammarState, remaining: int | None = None) -> Tensor:
        """Which tokens may come next, (vocab,) of bool: do not write to it. End tokens may where the text may end.

        remaining: how many tokens may still come, the end token among them. When it gets short, only what leads to an
        end in time is allowed, counting a token for each byte.
        """
        following = self._transitions_from(state)
        if remaining is None or following.farthest + 2 <= remaining:
            return following.allowed
        open_places = following.places != DEAD
        needed = np.where(open_places, self._automaton.shortest[following.places], 1 << 30)
        fits = needed + 2 <= remaining
        complete = self.is_complete(state) or state.place == _ENDED
        if not fits.any() and not complete:
            fits = needed == needed.min()  # too late to be sure: the shortest way
        return self._mask(fits, complete)

    def can_complete(self, state: GrammarState) -> bool:
        """Whether the text is complete, or can be with one more token."""
        places = self._transitions_from(state).places
        return (
            state.place == _ENDED
            or self.is_complete(state)
            or bool((self._automaton.shortest[places[places != DEAD]] == 0).any())
        )

    def advance(self, state: GrammarState, token: int) -> GrammarState | None:
        """The state after one more token; None if the token does not fit.

        Special tokens that something else forced are no text, so they change nothing. After an end token the text has
        ended, complete or not, and nothing changes any more.
        """
        if state.place == _ENDED:
            return state
        if token in self.eos_ids:
            return GrammarState(_ENDED, PLAIN if self.is_complete(state) else OPEN)
        text = self.vocabulary.texts.get(token)
        if text is None:
            return state
        if state.mode == FIRST and not self.vocabulary.starts[token]:
            return None
        place = self._automaton.after(state.place, b" " + text if state.mode == SPACE else text)
        return None if place == DEAD else GrammarState(place, int(self.vocabulary.leaves[token]))

    def can_write(self, text: str) -> bool:
        """Whether the tokens of this vocabulary can spell a text, and the grammar takes it."""
        if not self._grammar.matches(text):
            return False
        by_text, longest = self.vocabulary.by_text, self.vocabulary.longest
        goals = [text.encode("utf-8")]
        goals += [b" " + goals[0]] if self._first != self._automaton.start else []
        for goal in goals:
            todo, seen = [(0, self.start())], set()
            while todo:
                at, state = todo.pop()
                if (at, state) in seen:
                    continue
                seen.add((at, state))
                if at == len(goal) and self.is_complete(state):
                    return True
                at += state.mode == SPACE
                if state.mode == SPACE and goal[at - 1 : at] != b" ":
                    continue
                for stop in range(at + 1, min(at + longest, len(goal)) + 1):
                    after = [self.advance(state, token) for token in by_text.get(goal[at:stop], ())]
                    todo += [(stop, new) for new in after if new is not None]
        return False

    def check(self) -> None:
        """Refuses a vocabulary that cannot spell any text of the grammar."""
        if not self._ends(self.start()):
            raise InputError(
                f"The tokens of this tokenizer cannot spell any text that fits {self.description}: characters are "
                "missing from its vocabulary, or it puts spaces where none may be. Take another model, or loosen the "
                "grammar."
            )

    # ---- how the calls above work

    def _transitions_from(self, state: GrammarState) -> _Transitions:
        known = self._transitions.get(state)
        if known is None:
            known = self._find_transitions(state)
            self._transitions[state] = known
            if len(self._transitions) > _REMEMBERED_STATES:
                self._transitions.popitem(last=False)
        return known

    def _find_transitions(self, state: GrammarState) -> _Transitions:
        places = self._places(state)
        if not self.vocabulary.complete:
            ends = {key: self._ends(_unpacked(key)) for key in self._following(places)}
            lost = [key for key, can in ends.items() if not can]
            places = np.where(np.isin(self._packed(places), lost), DEAD, places) if lost else places
        open_places = places != DEAD
        complete = self.is_complete(state) or state.place == _ENDED
        if not complete and not open_places.any():
            raise InputError(
                f"No token of this tokenizer can go on from here within {self.description}: characters are missing "
                "from its vocabulary, or it puts spaces where none may be."
            )
        farthest = int(self._automaton.shortest[places[open_places]].max(initial=0))
        return _Transitions(places, self._mask(open_places, complete), farthest)

    def _mask(self, open_places: np.ndarray, complete: bool) -> Tensor:
        allowed = torch.from_numpy(open_places.copy())
        allowed[self.eos_ids] = complete
        return allowed

    def _places(self, state: GrammarState) -> np.ndarray:
        """The place after each token, (vocab,), before any look ahead."""
        place = state.place
        if place != _ENDED and state.mode == SPACE:
            place = self._automaton.after(place, b" ")
        if place in (_ENDED, DEAD):
            return np.full(self.vocab_size, DEAD, dtype=np.int32)
        places = self.vocabulary.walk(self._automaton, place)
        return np.where(self.vocabulary.starts, places, DEAD) if state.mode == FIRST else places

    def _packed(self, places: np.ndarray) -> np.ndarray:
        """A place and what the token leaves behind as one number."""
        return places.astype(np.int64) * 4 + self.vocabulary.leaves

    def _following(self, places: np.ndarray) -> list[int]:
        return np.unique(self._packed(places)[places != DEAD]).tolist()

    def _ends(self, state: GrammarState) -> bool:
        """Whether tokens lead from here to an end: looked for where the fewest bytes are missing first."""
        known, order = self._can_end, 0
        parents: dict[GrammarState, GrammarState | None] = {state: None}
        todo = [(0, 0, state)]
        while todo:
            _, _, nearest = heapq.heappop(todo)
            order += 1
            if known.get(nearest, order > _SEARCHED_STATES) or self.is_complete(nearest):
                before: GrammarState | None = nearest
                while before is not None:
                    known[before] = True
                    before = parents[before]
                return True
            if nearest in known:
                continue
            for key in self._following(self._places(nearest)):
                new = _unpacked(key)
                if new not in parents:
                    parents[new] = nearest
                    heapq.heappush(todo, (int(self._automaton.shortest[new.place]), len(parents), new))
        known.update(dict.fromkeys(parents, False))
        return False


def _unpacked(key: int) -> GrammarState:
    return GrammarState(key // 4, key % 4)
