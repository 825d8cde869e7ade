"""Answers of a given form: a list of choices, a regular expression or a JSON schema decides which tokens may come next.

    grammar = Grammar.choices(["positive", "negative"])
    bound = grammar.bind(tokenizer, eos_ids)
    state = bound.start()
    bound.allowed(state)            # (vocab,) of bool: everything else gets the score -inf
    state = bound.advance(state, token)

The form is that of the new text, which may begin with one space more: after a prompt, that is how words begin. The
text is what the new tokens decode to, before any clean-up of the spaces around punctuation.
"""

from __future__ import annotations

import heapq
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.grammar.automaton import DEAD, Automaton, Either, Part, literal
from clearhead.generate.grammar.json_schema import parse_schema
from clearhead.generate.grammar.regex import parse_regex
from clearhead.generate.grammar.vocabulary import FIRST, OPEN, PLAIN, SPACE, Vocabulary, vocabulary_of
from clearhead.text import Tokenizer

if TYPE_CHECKING:
    from clearhead.generate.processors import Filter

log = logging.getLogger("clearhead")
_MOST_STEPS = 128  # states whose tokens are remembered
_MOST_SEARCHED = 300  # states looked at before an end is taken for granted
_ENDED = -2  # the place after an end token


class Grammar:
    """A set of texts. `a | b` has the texts of both. What was worked out is remembered: keep one to use it again."""

    def __init__(self, part: Part, said: str, listed: Sequence[str] = ()) -> None:
        """said: the grammar in words, for messages; listed: texts each of which must be possible to write."""
        if not part.possible:
            raise InputError(f"No text fits {said}.")
        self._part, self.said, self._listed = part, said, tuple(listed)
        self.automaton = Automaton(part)

    @classmethod
    def choices(cls, texts: Sequence[str]) -> Grammar:
        """One of these texts."""
        if isinstance(texts, str) or not all(isinstance(text, str) and text for text in texts) or not texts:
            raise InputError(f"choices takes a list of texts that are not empty, not {texts!r}.")
        try:
            parts = [literal(text) for text in dict.fromkeys(texts)]
        except UnicodeEncodeError as error:
            raise InputError(f"A choice holds half a character, which no text can: {error}.") from error
        return cls(Either(parts), f"the {len(parts)} choices", texts)

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """Texts that the whole of a regular expression matches. regex.py says what is read."""
        return cls(parse_regex(pattern), f"the regular expression {pattern!r}")

    @classmethod
    def json(cls, schema: Mapping[str, Any] | bool = True, max_depth: int = 16) -> Grammar:
        """JSON that is valid for a schema. json_schema.py says what is read, and how it is written.

        max_depth: how often recursion, or a value that may be anything, may nest.
        """
        return cls(parse_schema(schema, max_depth), "the JSON schema")

    def __or__(self, other: Grammar) -> Grammar:
        return Grammar(
            Either([self._part, other._part]), f"{self.said} or {other.said}", (*self._listed, *other._listed)
        )

    def matches(self, text: str) -> bool:
        """Whether a whole text fits."""
        state = self.automaton.after(self.automaton.start, text.encode("utf-8", "surrogatepass"))
        return state != DEAD and bool(self.automaton.accepts[state])

    def bind(
        self,
        tokenizer: Tokenizer,
        eos_ids: Sequence[int],
        *,
        vocab_size: int | None = None,
        leading_space: bool = True,
    ) -> BoundGrammar:
        """The same for the tokens of a tokenizer.

        vocab_size     how many scores the model gives, where that is not the number of tokens
        leading_space  whether the text may begin with one space more, where the tokenizer does not drop it anyway
        """
        ends = sorted(set(eos_ids))
        if not ends or ends[0] < 0 or (vocab_size is not None and ends[-1] >= vocab_size):
            raise InputError(
                f"A grammar needs a token of the model that ends the answer, not {ends or 'none'}: pass eos_token_id."
            )
        bound = BoundGrammar(self, vocabulary_of(tokenizer, vocab_size, ends), ends, leading_space)
        if not bound.vocabulary.complete:
            lost = [text for text in self._listed if not bound.can_write(text)]
            if lost:
                shown = ", ".join(repr(text) for text in lost[:3]) + (" …" if len(lost) > 3 else "")
                example = tokenizer.decode(tokenizer.encode(lost[0], add_special_tokens=False))
                raise InputError(
                    f"This tokenizer cannot write {shown}: of {lost[0]!r} it would make {example!r}. Word the choices "
                    "as it does (lower case, other spaces or punctuation), or take another model."
                )
            bound.check()
        return bound

    def __repr__(self) -> str:
        return f"<Grammar: {self.said}>"


class State(NamedTuple):
    """Where a text stands: the state of the automaton, and what the last token left behind."""

    place: int
    mode: int


class _Step(NamedTuple):
    """What may follow a state: the place after each token (vocab,), and which are allowed, end tokens too (vocab,)."""

    places: np.ndarray
    allowed: Tensor
    farthest: int  # the most bytes that any of the places needs to its end


class BoundGrammar:
    """A grammar for one vocabulary. States are hashable and cost nothing to keep, so beams may share or copy them."""

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary, eos_ids: Sequence[int], leading_space: bool) -> None:
        self.vocabulary, self.eos_ids = vocabulary, list(eos_ids)
        self._grammar, self._automaton = grammar, grammar.automaton
        self._first = self._automaton.start
        if leading_space or vocabulary.eats_space:
            self._first = self._automaton.start_after_space(vocabulary.eats_space)
        self.size = vocabulary.size
        self.is_text = torch.zeros(self.size, dtype=torch.bool)
        self.is_text[list(vocabulary.texts)] = True
        self._steps: OrderedDict[State, _Step] = OrderedDict()
        self._can_end: dict[State, bool] = {}

    def start(self) -> State:
        """Before the first new token."""
        return State(self._first, FIRST)

    def is_complete(self, state: State) -> bool:
        """Whether the text may end here."""
        return state.mode != OPEN and (state.place == _ENDED or bool(self._automaton.accepts[state.place]))

    def allowed(self, state: State, room: int | None = None) -> Tensor:
        """Which tokens may come next, (vocab,) of bool: do not write to it. End tokens may where the text may end.

        room: how many tokens may still come, the end token among them. When it gets short, only what leads to an
        end in time is allowed, counting a token for each byte.
        """
        step = self._step(state)
        if room is None or step.farthest + 2 <= room:
            return step.allowed
        open_places = step.places != DEAD
        needed = np.where(open_places, self._automaton.shortest[step.places], 1 << 30)
        fits = needed + 2 <= room
        complete = self.is_complete(state) or state.place == _ENDED
        if not fits.any() and not complete:
            fits = needed == needed.min()  # too late to be sure: the shortest way
        return self._mask(fits, complete)

    def fits_in_one(self, state: State) -> bool:
        """Whether the text is complete, or can be with one more token."""
        places = self._step(state).places
        return (
            state.place == _ENDED
            or self.is_complete(state)
            or bool((self._automaton.shortest[places[places != DEAD]] == 0).any())
        )

    def advance(self, state: State, token_id: int) -> State:
        """The state after one more token: an error if it does not fit.

        Special tokens that something else forced are no text, so they change nothing. After an end token the text has
        ended, complete or not, and nothing changes any more.
        """
        after = self.follow(state, int(token_id))
        if after is None:
            raise InputError(f"Token {token_id} cannot come here: it does not fit {self._grammar.said}.")
        return after

    def follow(self, state: State, token: int) -> State | None:
        """The same, with None for a token that does not fit."""
        if state.place == _ENDED:
            return state
        if token in self.eos_ids:
            return State(_ENDED, PLAIN if self.is_complete(state) else OPEN)
        text = self.vocabulary.texts.get(token)
        if text is None:
            return state
        if state.mode == FIRST and not self.vocabulary.starts[token]:
            return None
        place = self._automaton.after(state.place, b" " + text if state.mode == SPACE else text)
        return None if place == DEAD else State(place, int(self.vocabulary.leaves[token]))

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
                    after = [self.follow(state, token) for token in by_text.get(goal[at:stop], ())]
                    todo += [(stop, new) for new in after if new is not None]
        return False

    def check(self) -> None:
        """Refuses a vocabulary that cannot spell any text of the grammar."""
        if not self._ends(self.start()):
            raise InputError(
                f"The tokens of this tokenizer cannot spell any text that fits {self._grammar.said}: characters are "
                "missing from its vocabulary, or it puts spaces where none may be. Take another model, or loosen the "
                "grammar."
            )

    # ---- how the calls above work

    def _step(self, state: State) -> _Step:
        step = self._steps.get(state)
        if step is None:
            step = self._new_step(state)
            self._steps[state] = step
            if len(self._steps) > _MOST_STEPS:
                self._steps.popitem(last=False)
        return step

    def _new_step(self, state: State) -> _Step:
        places = self._places(state)
        if not self.vocabulary.complete:
            ends = {key: self._ends(_unpacked(key)) for key in self._following(places)}
            lost = [key for key, can in ends.items() if not can]
            places = np.where(np.isin(self._packed(places), lost), DEAD, places) if lost else places
        open_places = places != DEAD
        complete = self.is_complete(state) or state.place == _ENDED
        if not complete and not open_places.any():
            raise InputError(
                f"No token of this tokenizer can go on from here within {self._grammar.said}: characters are missing "
                "from its vocabulary, or it puts spaces where none may be."
            )
        farthest = int(self._automaton.shortest[places[open_places]].max(initial=0))
        return _Step(places, self._mask(open_places, complete), farthest)

    def _mask(self, open_places: np.ndarray, complete: bool) -> Tensor:
        allowed = torch.from_numpy(open_places.copy())
        allowed[self.eos_ids] = complete
        return allowed

    def _places(self, state: State) -> np.ndarray:
        """The place after each token, (vocab,), before any look ahead."""
        place = state.place
        if place != _ENDED and state.mode == SPACE:
            place = self._automaton.after(place, b" ")
        if place in (_ENDED, DEAD):
            return np.full(self.size, DEAD, dtype=np.int32)
        places = self.vocabulary.walk(self._automaton, place)
        return np.where(self.vocabulary.starts, places, DEAD) if state.mode == FIRST else places

    def _packed(self, places: np.ndarray) -> np.ndarray:
        """A place and what the token leaves behind as one number."""
        return places.astype(np.int64) * 4 + self.vocabulary.leaves

    def _following(self, places: np.ndarray) -> list[int]:
        return np.unique(self._packed(places)[places != DEAD]).tolist()

    def _ends(self, state: State) -> bool:
        """Whether tokens lead from here to an end: looked for where the fewest bytes are missing first."""
        known, order = self._can_end, 0
        parents: dict[State, State | None] = {state: None}
        todo = [(0, 0, state)]
        while todo:
            _, _, found = heapq.heappop(todo)
            order += 1
            if known.get(found, order > _MOST_SEARCHED) or self.is_complete(found):
                step: State | None = found
                while step is not None:
                    known[step] = True
                    step = parents[step]
                return True
            if found in known:
                continue
            for key in self._following(self._places(found)):
                new = _unpacked(key)
                if new not in parents:
                    parents[new] = found
                    heapq.heappush(todo, (int(self._automaton.shortest[new.place]), len(parents), new))
        known.update(dict.fromkeys(parents, False))
        return False


def grammar_filter(
    grammar: Grammar, tokenizer: Tokenizer, eos_ids: Sequence[int], prompt: int, new_tokens: int | None = None
) -> Filter:
    """Forbid every token with which the text after the first `prompt` positions would no longer fit.

    new_tokens   how many may come in all: the text is then brought to its end in time

    Where a text stands is found again by its tokens, so that beams may change places. Special tokens that another rule
    forces (a language code, an end) are no text, so they pass.
    """
    bound = grammar.bind(tokenizer, eos_ids)
    states: dict[tuple[int, ...], State | None] = {(): bound.start()}

    def state_of(row: tuple[int, ...]) -> State | None:
        """None for a row that does not fit: a beam that was taken for want of a better one."""
        if row not in states:
            before = state_of(row[:-1])
            states[row] = None if before is None else bound.follow(before, row[-1])
        return states[row]

    def apply(tokens: Tensor, scores: Tensor) -> Tensor:
        nonlocal bound
        if bound.size != scores.shape[-1]:  # the model has more scores than the tokenizer has tokens, or fewer
            bound = grammar.bind(tokenizer, eos_ids, vocab_size=scores.shape[-1])
        rows = [tuple(row) for row in tokens[:, prompt:].tolist()]
        found = {row: state_of(row) for row in rows}
        states.clear()  # the next call goes on from these
        states.update({(): bound.start(), **found})
        room = None if new_tokens is None else new_tokens - (tokens.shape[1] - prompt)
        anything = torch.ones(bound.size, dtype=torch.bool)
        lists = [anything if (state := found[row]) is None else bound.allowed(state, room) for row in rows]
        if room == 1 and not any(state is None or bound.fits_in_one(state) for state in found.values()):
            log.warning(
                "The answer was cut after %s tokens, before it could fit %s: give more room (max_new_tokens).",
                new_tokens,
                grammar.said,
            )
        kept = scores.masked_fill(~torch.stack(lists).to(scores.device), -torch.inf)
        over = torch.tensor([(state := found[row]) is not None and state.place == _ENDED for row in rows])
        stuck = (kept == -torch.inf).all(-1) & ~over.to(scores.device)
        if not bool(stuck.any()):
            return kept
        forced = scores.masked_fill(bound.is_text.to(scores.device), -torch.inf)
        forces = (scores == forced).all(-1) & (forced > -torch.inf).any(-1)  # special tokens, and them alone
        if bool((stuck & ~forces).any()):
            raise InputError(
                f"The grammar ({grammar.said}) and the other options (a least length, forbidden words or repetitions, "
                "forced words) leave no token to write. Leave those options out."
            )
        return torch.where(stuck[:, None], forced, kept)

    return apply


def _unpacked(key: int) -> State:
    return State(key // 4, key % 4)
