"""Answers of a given form: a list of choices, a regular expression or a JSON schema, as a mask over the vocabulary."""

from clearhead.generate.grammar.grammar import Grammar

__all__ = ["Grammar"]
