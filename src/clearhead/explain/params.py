"""What can be said about a question. Values come from people and web pages and are not trusted: each is looked at."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from clearhead.errors import InputError, did_you_mean

LONGEST = 20_000  # characters of a value that is a text
MOST = 10_000  # numbers of a value that is a list
_YES, _NO = (True, "yes", "true", "on", "1"), (False, "no", "false", "off", "0")


@dataclass(frozen=True)
class Param:
    """One thing that can be said about a question.

    kind      "layers" is one number or several ("0-3, 7"; nothing: all), also of heads and positions. "model" is the
              name of a second model: whoever asks loads it, and hands the pipeline on in its place
    default   what an empty field means; None: the question finds it out from the model and the text
    only      "encoder-decoder": it means nothing to a model of one stack
    """

    name: str
    kind: Literal["int", "float", "bool", "text", "choice", "layers", "model"]
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    only: Literal["", "encoder-decoder"] = ""

    @property
    def bounds(self) -> str:
        """What a number can be, in words; empty where it can be anything."""
        if self.low is None and self.high is None:
            return ""
        if self.high is None:
            return f"{self.low:,} or more"
        return f"up to {self.high:,}" if self.low is None else f"from {self.low:,} to {self.high:,}"

    def checked(self, given: Any) -> Any:
        """The value that was given, in its own type; raises InputError where it is none."""
        if given is None or (isinstance(given, str) and not given.strip() and self.kind != "text") or given == "":
            return self.default
        return getattr(self, f"_{self.kind}")(given)

    def _int(self, given: Any) -> int:
        whole = isinstance(given, int) and not isinstance(given, bool) and abs(given) < 2**63
        whole = whole or (isinstance(given, float) and given.is_integer())
        if not whole and not (isinstance(given, str) and re.fullmatch(r"\s*[-+]?\d{1,18}\s*", given)):
            raise InputError(f"{self.name} is a whole number, not {shown(given)}.")
        return int(self._within(int(given)))

    def _float(self, given: Any) -> float:
        try:
            number = math.nan if isinstance(given, bool) else float(given)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise InputError(f"{self.name} is a number, not {shown(given)}.")
        return self._within(number)

    def _within(self, number: float) -> float:
        if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
            raise InputError(f"{self.name} is {number:,}; it can be {self.bounds}.")
        return number

    def _bool(self, given: Any) -> bool:
        said = given.strip().lower() if isinstance(given, str) else given
        if said in _YES or said in _NO:
            return said in _YES
        raise InputError(f"{self.name} is yes or no, not {shown(given)}.")

    def _text(self, given: Any) -> str:
        if not isinstance(given, str):
            raise InputError(f"{self.name} is a text, not {shown(given)}.")
        if len(given) > LONGEST:
            raise InputError(f"{self.name} has {len(given):,} characters; {LONGEST:,} are the most.")
        return given

    def _choice(self, given: Any) -> str:
        said = given.strip() if isinstance(given, str) else given
        if said not in self.choices:
            near = did_you_mean(said, self.choices) if isinstance(said, str) else ""
            raise InputError(f"{self.name} is one of {', '.join(self.choices)}, not {shown(given)}.{near}")
        return str(said)

    def _layers(self, given: Any) -> list[int] | None:
        if isinstance(given, str):
            if given.strip().lower() == "all":
                return None
            parts: Iterable[Any] = re.findall(r"[^,，、\s]+", re.sub(r"(?<=\d)\s+-\s+(?=\d)", "-", given))
        else:
            parts = given if isinstance(given, list | tuple | range) else [given]
        found: list[int] = []
        for part in parts:
            span = re.fullmatch(r"(\d{1,9})-(\d{1,9})", part) if isinstance(part, str) else None
            if span is not None:
                first, last = int(span[1]), int(span[2])
                if last < first:
                    raise InputError(f"{self.name}: {part} counts backwards; write {last}-{first}.")
                found += range(first, min(last, first + MOST) + 1)
            elif isinstance(part, int) and not isinstance(part, bool):
                found.append(part)
            elif isinstance(part, str) and re.fullmatch(r"[-+]?\d{1,9}", part):
                found.append(int(part))
            else:
                raise InputError(f"{self.name} are numbers such as 3, or 0-2,5, not {shown(given)}.")
            if len(found) > MOST:
                raise InputError(f"{self.name}: {MOST:,} numbers are the most.")
        return found or self.default

    def _model(self, given: Any) -> Any:
        if not isinstance(given, str) and not hasattr(given, "tokenizer"):
            raise InputError(f"{self.name} is the name of a model, not {shown(given)}.")
        return given


def shown(value: Any) -> str:
    """A value in an error message, not longer than a line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
