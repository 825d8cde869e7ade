"""What a request holds: JSON, read strictly, every value checked by its field before anything else sees it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any

from clearhead.errors import InputError
from clearhead.messages import say
from clearhead.schema import Field, check_names
from clearhead.server.limits import Limits

if TYPE_CHECKING:
    from starlette.requests import Request


async def json_body(request: Request) -> dict[str, Any]:
    """The body, which must be a JSON object."""
    try:
        body = json.loads(await request.body(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InputError(say("server.not_json")) from None
    if not isinstance(body, dict):
        raise InputError(say("server.not_a_table"))
    return body


def _refuse_constant(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are not JSON


def check_body(body: dict[str, Any], fields: Iterable[Field]) -> dict[str, Any]:
    """A value for every field: its own, or the default."""
    known = {field.name: field for field in fields}
    check_names(body, known, say("server.unknown_key", known=list(known)))
    defaults = {name: None if field.default is MISSING else field.default for name, field in known.items()}
    return {name: field.check(body.get(name, defaults[name])) for name, field in known.items()}


def text_field(name: str, limits: Limits, **more: Any) -> Field:
    """A text of at most so many characters as the server takes. Without a default, there has to be one."""
    return Field(name=name, type=str, longest=limits.characters, **({"default": MISSING} | more))
