"""The form of an answer, as a command line says it: choices, a regular expression, or a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearhead.errors import InputError

FORM_NAMES = ("choices", "regex", "json_schema")  # as pipeline.generate calls them
LONGEST_SCHEMA = 2**24  # characters; a longer file is no schema
_FLAGS = dict(zip(FORM_NAMES, ("--choice", "--regex", "--json-schema"), strict=True))


def grammar_of(form: Mapping[str, Any]) -> Any:
    """The grammar that the answer must fit; None without one."""
    names = [name for name in FORM_NAMES if form[name] is not None and form[name] != []]
    if not names:
        return None
    if len(names) > 1:
        raise InputError(f"Give one form for the answer: {_FLAGS[names[0]]} or {_FLAGS[names[1]]}, not both.")
    from clearhead.generate import Grammar

    value = form[names[0]]
    if names[0] == "choices":
        return Grammar.choices(value)
    return Grammar.regex(value) if names[0] == "regex" else Grammar.json(_schema(value))


def _schema(text_or_path: str) -> Any:
    """A schema from the words themselves, or from the file they name."""
    inline = text_or_path.lstrip()[:1] in ("{", "[", '"') or text_or_path.strip() in ("true", "false")
    text, subject = text_or_path, "The schema"
    if not inline:
        subject = text_or_path
        try:
            with Path(text_or_path).expanduser().open(encoding="utf-8") as file:
                text = file.read(LONGEST_SCHEMA)
        except FileNotFoundError:
            raise InputError(
                f'There is no file {text_or_path}. Give a path, or the schema itself: \'{{"type": "object"}}\'.'
            ) from None
        except OSError as error:
            raise InputError(f"{text_or_path} cannot be read: {error.strerror or error}.") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{text_or_path} is no text in UTF-8 (byte {error.start}). Save it as UTF-8.") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{subject} is not valid JSON: {error}.") from None
