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
_ENDED = -2  # the node after an end token


class GrammarState(NamedTuple):
    """Where a text stands: the node of the automaton (its state), and what the last token left behind."""

    node: int
    mode: int


class _Transitions(NamedTuple):
    """What may follow a state: the node after each token (vocab,), and which are allowed, end tokens too (vocab,)."""

    next_nodes: np.ndarray
    allowed: Tensor
    farthest: int  # the most bytes that any of these nodes needs to its end


class GrammarConstraint:
    """A `TokenConstraint`. States are hashable and cost nothing to keep, so beams may share or copy them."""

    def __init__(
        self, grammar: Grammar, vocabulary: GrammarVocabulary, eos_ids: Sequence[int], leading_space: bool
    ) -> None:
        self.vocabulary, self.eos_ids = vocabulary, list(eos_ids)
        self.description = grammar.description
        self._grammar, self._automaton = grammar, grammar.automaton
        self._first = self._automaton.start
        if leading_space or vocabulary.drops_space:
            self._first = self._automaton.start_after_space(vocabulary.drops_space)
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
        return state.node == _ENDED

    def is_complete(self, state: GrammarState) -> bool:
        """Whether the text may end here."""
        return state.mode != OPEN and (state.node == _ENDED or bool(self._automaton.accepts[state.node]))

    def allowed(self, state: GrammarState, remaining: int | None = None) -> Tensor:
        """Which tokens may come next, (vocab,) of bool: do not write to it. End tokens may where the text may end.

        remaining: how many tokens may still come, the end token among them. When it gets short, only what leads to an
        end in time is allowed, counting a token for each byte.
        """
        following = self._transitions_from(state)
        if remaining is None or following.farthest + 2 <= remaining:
            return following.allowed
        allowed_tokens = following.next_nodes != DEAD
        needed = np.where(allowed_tokens, self._automaton.shortest[following.next_nodes], 1 << 30)
        fits = needed + 2 <= remaining
        complete = self.is_complete(state) or state.node == _ENDED
        if not fits.any() and not complete:
            fits = needed == needed.min()  # too late to be sure: the shortest way
        return self._mask(fits, complete)

    def can_complete(self, state: GrammarState) -> bool:
        """Whether the text is complete, or can be with one more token."""
        next_nodes = self._transitions_from(state).next_nodes
        return (
            state.node == _ENDED
            or self.is_complete(state)
            or bool((self._automaton.shortest[next_nodes[next_nodes != DEAD]] == 0).any())
        )

    def advance(self, state: GrammarState, token: int) -> GrammarState | None:
        """The state after one more token; None if the token does not fit.

        Special tokens that something else forced are no text, so they change nothing. After an end token the text has
        ended, complete or not, and nothing changes any more.
        """
        if state.node == _ENDED:
            return state
        if token in self.eos_ids:
            return GrammarState(_ENDED, PLAIN if self.is_complete(state) else OPEN)
        text = self.vocabulary.texts.get(token)
        if text is None:
            return state
        if state.mode == FIRST and not self.vocabulary.starts[token]:
            return None
        node = self._automaton.after(state.node, b" " + text if state.mode == SPACE else text)
        return None if node == DEAD else GrammarState(node, int(self.vocabulary.leaves[token]))

    def can_write(self, text: str) -> bool:
        """Whether the tokens of this vocabulary can spell a text, and the grammar takes it."""
        if not self._grammar.matches(text):
            return False
        by_text, longest = self.vocabulary.by_text, self.vocabulary.longest
        spellings = [text.encode("utf-8")]
        spellings += [b" " + spellings[0]] if self._first != self._automaton.start else []
        for spelling in spellings:
            todo, seen = [(0, self.start())], set()
            while todo:
                position, state = todo.pop()
                if (position, state) in seen:
                    continue
                seen.add((position, state))
                if position == len(spelling) and self.is_complete(state):
                    return True
                position += state.mode == SPACE
                if state.mode == SPACE and spelling[position - 1 : position] != b" ":
                    continue
                for stop in range(position + 1, min(position + longest, len(spelling)) + 1):
                    following = [self.advance(state, token) for token in by_text.get(spelling[position:stop], ())]
                    todo += [(stop, new) for new in following if new is not None]
        return False

    def check(self) -> None:
        """Refuses a vocabulary that cannot spell any text of the grammar."""
        if not self._can_reach_end(self.start()):
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
        next_nodes = self._next_nodes(state)
        if not self.vocabulary.complete:
            ends = {key: self._can_reach_end(_unpacked(key)) for key in self._reachable(next_nodes)}
            lost = [key for key, can in ends.items() if not can]
            next_nodes = np.where(np.isin(self._packed(next_nodes), lost), DEAD, next_nodes) if lost else next_nodes
        allowed_tokens = next_nodes != DEAD
        complete = self.is_complete(state) or state.node == _ENDED
        if not complete and not allowed_tokens.any():
            raise InputError(
                f"No token of this tokenizer can go on from here within {self.description}: characters are missing "
                "from its vocabulary, or it puts spaces where none may be."
            )
        farthest = int(self._automaton.shortest[next_nodes[allowed_tokens]].max(initial=0))
        return _Transitions(next_nodes, self._mask(allowed_tokens, complete), farthest)

    def _mask(self, allowed_tokens: np.ndarray, complete: bool) -> Tensor:
        allowed = torch.from_numpy(allowed_tokens.copy())
        allowed[self.eos_ids] = complete
        return allowed

    def _next_nodes(self, state: GrammarState) -> np.ndarray:
        """The node after each token, (vocab,), before any look ahead."""
        node = state.node
        if node != _ENDED and state.mode == SPACE:
            node = self._automaton.after(node, b" ")
        if node in (_ENDED, DEAD):
            return np.full(self.vocab_size, DEAD, dtype=np.int32)
        next_nodes = self.vocabulary.walk(self._automaton, node)
        return np.where(self.vocabulary.starts, next_nodes, DEAD) if state.mode == FIRST else next_nodes

    def _packed(self, next_nodes: np.ndarray) -> np.ndarray:
        """A node and what the token leaves behind as one number."""
        return next_nodes.astype(np.int64) * 4 + self.vocabulary.leaves

    def _reachable(self, next_nodes: np.ndarray) -> list[int]:
        return np.unique(self._packed(next_nodes)[next_nodes != DEAD]).tolist()

    def _can_reach_end(self, state: GrammarState) -> bool:
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
            for key in self._reachable(self._next_nodes(nearest)):
                new = _unpacked(key)
                if new not in parents:
                    parents[new] = nearest
                    heapq.heappush(todo, (int(self._automaton.shortest[new.node]), len(parents), new))
        known.update(dict.fromkeys(parents, False))
        return False


def _unpacked(key: int) -> GrammarState:
    return GrammarState(key // 4, key % 4)
