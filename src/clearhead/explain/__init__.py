"""From a trace to a finding: plain dataclasses of numbers and strings, which views draw."""

from clearhead.explain.next_token import NextTokens, next_token
from clearhead.explain.walk import Walk, walk

__all__ = ["NextTokens", "Walk", "next_token", "walk"]
