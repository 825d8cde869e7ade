"""From a trace to a finding: plain dataclasses of numbers and strings, which views draw."""

from clearhead.explain.walk import Walk, walk

__all__ = ["Walk", "walk"]
