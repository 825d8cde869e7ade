"""Between decoding and a grammar: a protocol for "which tokens may come next", and the processor that obeys it.

Decoding knows the protocol and nothing behind it. Our own grammars (grammar/) keep it; so could an adapter of another
library, given in place of a Grammar: `generate(…, grammar=constraint)`.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.grammar import Grammar
from clearhead.generate.processors import FORBIDDEN, LogitsProcessor

log = logging.getLogger("clearhead")


@runtime_checkable
class TokenConstraint(Protocol):
    """Texts of a given form, token by token. It remembers no text: a state, which is hashable, says where one stands.

    description   the form in words, for messages: "the JSON schema"
    vocab_size    how many tokens there are: as many as the model gives scores
    is_text       (vocab,) bool: tokens that write something. Others, such as the code of a language, say nothing about
                  the form, and pass where another processor forces them
    """

    description: str
    vocab_size: int
    is_text: Tensor

    def start(self) -> Hashable:
        """The state before the first new token."""
        ...

    def allowed(self, state: Any, remaining: int | None = None) -> Tensor:
        """Which tokens may come next, (vocab,) of bool; end tokens among them where the text may end.

        remaining   how many tokens may still come, the end token among them: lead to an end in time
        """
        ...

    def advance(self, state: Any, token: int) -> Hashable | None:
        """The state after one more token; None if the token does not fit. An end token finishes the text."""
        ...

    def is_finished(self, state: Any) -> bool:
        """Whether an end token has finished the text."""
        ...

    def can_complete(self, state: Any) -> bool:
        """Whether the text fits as it stands, or can with one more token."""
        ...


def token_constraint(
    form: object, tokenizer: Any, eos_ids: Sequence[int], vocab_size: int, leading_space: bool = True
) -> TokenConstraint:
    """The constraint of a grammar for this vocabulary; what is a constraint already is taken as it is.

    leading_space   whether the text may begin with one space more: where it goes on from a prompt
    """
    if isinstance(form, Grammar):
        return form.bind(tokenizer, eos_ids, vocab_size=vocab_size, leading_space=leading_space)
    if not isinstance(form, TokenConstraint):
        raise InputError("grammar must be a clearhead.generate.Grammar: Grammar.choices([...]), .regex or .json.")
    if form.vocab_size != vocab_size:
        raise InputError(
            f"The constraint ({form.description}) knows {form.vocab_size} tokens, and the model writes {vocab_size}."
        )
    return form


def constrain(constraint: TokenConstraint, prompt_length: int, max_new_tokens: int | None = None) -> LogitsProcessor:
    """Forbid every token with which the text after the prompt would no longer fit.

    max_new_tokens  how many may come in all: the text is then brought to its end in time

    Where a text stands is found again by its tokens, so that beams may change places. Special tokens that another
    processor forces (a language code, an end) are no text, so they pass.
    """
    states: dict[tuple[int, ...], Hashable | None] = {(): constraint.start()}

    def state_of(row: tuple[int, ...]) -> Hashable | None:
        """None for a row that does not fit: a beam that was taken for want of a better one."""
        if row not in states:
            before = state_of(row[:-1])
            states[row] = None if before is None else constraint.advance(before, row[-1])
        return states[row]

    def process(tokens: Tensor, scores: Tensor) -> Tensor:
        rows = [tuple(row) for row in tokens[:, prompt_length:].tolist()]
        current = {row: state_of(row) for row in rows}
        states.clear()  # the next call goes on from these
        states.update({(): constraint.start(), **current})
        remaining = None if max_new_tokens is None else max_new_tokens - (tokens.shape[1] - prompt_length)
        anything = torch.ones(constraint.vocab_size, dtype=torch.bool)
        masks = [anything if (s := current[row]) is None else constraint.allowed(s, remaining) for row in rows]
        if remaining == 1 and not any(state is None or constraint.can_complete(state) for state in current.values()):
            log.warning(
                "The answer was cut after %s tokens, before it could fit %s: give more room (max_new_tokens).",
                max_new_tokens,
                constraint.description,
            )
        masked = scores.masked_fill(~torch.stack(masks).to(scores.device), FORBIDDEN)
        finished = torch.tensor([(s := current[row]) is not None and constraint.is_finished(s) for row in rows])
        stuck = (masked == FORBIDDEN).all(-1) & ~finished.to(scores.device)
        return _let_forced_pass(constraint, scores, masked, stuck) if bool(stuck.any()) else masked

    return process


def _let_forced_pass(constraint: TokenConstraint, scores: Tensor, masked: Tensor, stuck: Tensor) -> Tensor:
    """Rows with no token left take the special tokens that another processor forces; an error where it forces none."""
    special = scores.masked_fill(constraint.is_text.to(scores.device), FORBIDDEN)
    forces = (scores == special).all(-1) & (special > FORBIDDEN).any(-1)  # special tokens, and them alone
    if bool((stuck & ~forces).any()):
        raise InputError(
            f"The grammar ({constraint.description}) and the other options (a least length, forbidden words or "
            "repetitions, forced words) leave no token to write. Leave those options out."
        )
    return torch.where(stuck[:, None], special, masked)
