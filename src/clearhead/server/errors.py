"""What a server says of an error: a mistake of the user's as it is, one of ours by its name; never a stack trace."""

from __future__ import annotations

import logging
from typing import Any

from clearhead.errors import ClearheadError, InputError
from clearhead.messages import Message, in_chinese, say

log = logging.getLogger("clearhead.server")


class BusyError(ClearheadError):
    """Too many jobs at once."""


class UnknownModelError(InputError):
    """A name that is not in the model store."""


def error_body(message: str) -> dict[str, Any]:
    """The JSON of an error: the message in English and in Chinese, and its key where it has one."""
    key = message.key if isinstance(message, Message) else None
    return {"error": {"message": str(message), "key": key, "zh": in_chinese(message)}}


def message_of(error: BaseException) -> str:
    """What may be told to whoever asked. What went wrong inside is written to the log, and named."""
    if isinstance(error, ClearheadError):
        return error.message
    if isinstance(error, MemoryError) or "not enough memory" in str(error):
        return say("server.memory")
    log.error("A job failed.", exc_info=error)
    return say("server.own_mistake", error=type(error).__name__)
