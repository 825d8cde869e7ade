"""The errors a user can cause. Each message says what happened, why, and what to do next.

All of them are `ClearheadError`, so the command line can print them without a stack trace; each is also the
built-in error a Python programmer would expect to catch. A message that was made with `say` has its Chinese with it.
"""

import difflib
from collections.abc import Iterable

from clearhead.messages import say


class ClearheadError(Exception):
    """Anything that went wrong because of what was asked, not because of a bug."""

    @property
    def message(self) -> str:
        """What happened, as it was said: a `Message` where it was made with `say`."""
        return self.args[0] if self.args and isinstance(self.args[0], str) else str(self)

    def __str__(self) -> str:  # KeyError would print the message in quotes
        return str(self.args[0]) if self.args else ""


class InputError(ClearheadError, ValueError):
    """The text, ids, masks or options given to a model do not fit it."""


class NothingToRead(InputError):
    """A file or data set without a single record."""


class UnknownWordError(InputError, KeyError):
    """A word that a table of vectors does not have."""


class UnknownQuery(InputError):
    """The encoder of a store knows no word of what is looked for."""


class PromptTooLong(InputError):
    """The prompt takes all the positions that the model has: there is none left to write in."""


class ConfigError(ClearheadError, ValueError):
    """A model configuration is incomplete, impossible, or asks for something Clearhead does not do."""


class CheckpointError(ClearheadError, OSError):
    """A checkpoint is missing, broken, unsafe, or does not fit its configuration."""


class StoreError(ClearheadError, OSError):
    """A store of chunks is missing, damaged, in use, or made otherwise than is asked."""


class TrainingStopped(ClearheadError, RuntimeError):
    """Training cannot go on as it is. The message says what to change; the last good checkpoint is kept."""


class TokenizerError(ClearheadError, ValueError):
    """A tokenizer cannot be loaded, trained or used as asked."""


class TraceError(ClearheadError, KeyError):
    """A trace was asked for a tensor that the model does not announce."""


def near(word: str, known: Iterable[str], count: int = 3, cutoff: float = 0.4) -> list[str]:
    """The known words closest to a misspelt one, best first."""
    return difflib.get_close_matches(word, list(known), n=count, cutoff=cutoff)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence to end an error message with; empty where nothing is close."""
    close = near(word, known, cutoff=0.6)
    if not close:
        return ""
    names = close[0]
    for name in close[1:]:
        names = say("errors.or", first=names, second=name)
    return say("errors.did_you_mean", names=names)
