"""Answers of a given form: a list of choices, a regular expression or a JSON schema decides which tokens may come next.

    grammar = Grammar.choices(["positive", "negative"])
    constraint = grammar.bind(tokenizer, eos_ids)         # a generate.constraint.TokenConstraint
    state = constraint.start()
    constraint.allowed(state)                             # (vocab,) of bool: everything else gets the score -inf
    state = constraint.advance(state, token)

The form is that of the new text: what the new tokens decode to, before any clean-up of the spaces around punctuation.
After a prompt it may begin with one space more, for that is how words begin; `GeneratedText.new_text` is without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clearhead.errors import InputError
from clearhead.generate.grammar.automaton import DEAD, Alternation, Automaton, Expression, literal
from clearhead.generate.grammar.constraint import GrammarConstraint
from clearhead.generate.grammar.json_schema import parse_schema
from clearhead.generate.grammar.regex import parse_regex
from clearhead.generate.grammar.vocabulary import vocabulary_of
from clearhead.text import Tokenizer


class Grammar:
    """A set of texts. `a | b` has the texts of both. What was worked out is remembered: keep one to use it again."""

    def __init__(self, part: Expression, description: str, texts: Sequence[str] = ()) -> None:
        """description: the grammar in words, for messages; texts: each of which must be possible to write."""
        if not part.possible:
            raise InputError(f"No text fits {description}.")
        self._part, self.description, self._texts = part, description, tuple(texts)
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
        return cls(Alternation(parts), f"the {len(parts)} choices", texts)

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
            Alternation([self._part, other._part]),
            f"{self.description} or {other.description}",
            (*self._texts, *other._texts),
        )

    def matches(self, text: str) -> bool:
        """Whether a whole text fits."""
        state = self.automaton.after(self.automaton.start, text.encode("utf-8", "surrogatepass"))
        return state != DEAD and bool(self.automaton.accepts[state])

    def without_free_space(self, text: str) -> str:
        """A text that was written, without the space more that it may begin with; one of its own it keeps."""
        if not text.startswith(" "):
            return text
        is_own = self.automaton.after(self.automaton.start, b" ") != DEAD  # some text of the grammar begins so
        return text if is_own and (self.matches(text) or not self.matches(text[1:])) else text[1:]

    def bind(
        self,
        tokenizer: Tokenizer,
        eos_ids: Sequence[int],
        *,
        vocab_size: int | None = None,
        leading_space: bool = True,
    ) -> GrammarConstraint:
        """The same for the tokens of a tokenizer.

        vocab_size     how many scores the model gives, where that is not the number of tokens
        leading_space  whether the text may begin with one space more, where the tokenizer does not drop it anyway
        """
        ends = sorted(set(eos_ids))
        if not ends or ends[0] < 0 or (vocab_size is not None and ends[-1] >= vocab_size):
            raise InputError(
                f"A grammar needs a token of the model that ends the answer, not {ends or 'none'}: pass eos_token_id."
            )
        constraint = GrammarConstraint(self, vocabulary_of(tokenizer, vocab_size, ends), ends, leading_space)
        if not constraint.vocabulary.complete:
            lost = [text for text in self._texts if not constraint.can_write(text)]
            if lost:
                shown = ", ".join(repr(text) for text in lost[:3]) + (" …" if len(lost) > 3 else "")
                example = tokenizer.decode(tokenizer.encode(lost[0], add_special_tokens=False))
                raise InputError(
                    f"This tokenizer cannot write {shown}: of {lost[0]!r} it would make {example!r}. Word the choices "
                    "as it does (lower case, other spaces or punctuation), or take another model."
                )
            constraint.check()
        return constraint

    def __repr__(self) -> str:
        return f"<Grammar: {self.description}>"
