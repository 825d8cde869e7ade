"""Sentences that reach a person, each once, by key, in English and Chinese: `say("server.unknown_model", name="x")`.

A `Message` is its English sentence, a string like any other to whoever prints or searches it. It also knows its key
and its values, and so its Chinese, which the page shows to those who read Chinese. The sentences stand in the files
beside this one: the key `server.busy` is the entry `busy` of server.py. A sentence has named places in braces, as in
`str.format`; a value may be a message itself, and a list is written out with the commas of each language.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

Sentences = Mapping[str, tuple[str, str]]  # name → (English, Chinese)
_COMMAS = (", ", "、")


class Message(str):
    """A sentence in English that has its Chinese with it."""

    key: str
    values: Mapping[str, Any]

    def __new__(cls, key: str, values: Mapping[str, Any]) -> Message:
        message = super().__new__(cls, _filled(key, values, 0))
        message.key, message.values = key, dict(values)
        return message

    def __reduce__(self) -> tuple[type[Message], tuple[str, Mapping[str, Any]]]:  # for copies and pickles
        return Message, (self.key, self.values)

    @property
    def chinese(self) -> str:
        return _filled(self.key, self.values, 1)


class Bilingual(Message):
    """A sentence that came with its Chinese, as data do: the line about a shipped model."""

    def __new__(cls, english: str, chinese: str) -> Bilingual:
        message = str.__new__(cls, english)
        message.key, message.values = "", {"english": english, "chinese": chinese}
        return message

    def __reduce__(self) -> tuple[type[Bilingual], tuple[str, str]]:  # type: ignore[override]
        return Bilingual, (str(self), self.chinese)

    @property
    def chinese(self) -> str:
        return str(self.values["chinese"])


def say(key: str, /, **values: Any) -> Message:
    """The message of this key, with these values in its places."""
    return Message(key, values)


def in_chinese(text: str) -> str:
    """A text in Chinese; one without a key stays as it is, inside a sentence that says so."""
    return text.chinese if isinstance(text, Message) else say("errors.only_in_english", text=text).chinese


def chinese_of(content: Any) -> Any:
    """The Chinese of every message inside nested data, in tables with the same keys (places in lists are numbers).

    None where there are no messages. So data keeps its plain English, and the Chinese can be laid over it.
    """
    if isinstance(content, Message):
        return content.chinese
    if isinstance(content, Mapping):
        pairs = content.items()
    elif isinstance(content, list | tuple):
        pairs = enumerate(content)  # type: ignore[assignment]
    else:
        return None
    found = {str(key): chinese for key, value in pairs if (chinese := chinese_of(value)) is not None}
    return found or None


@cache
def _sentences(module: str) -> Sentences:
    sentences: Sentences = import_module(f"clearhead.messages.{module}").SENTENCES
    return sentences


def _filled(key: str, values: Mapping[str, Any], language: int) -> str:
    module, _, name = key.partition(".")
    return _sentences(module)[name][language].format_map({n: _written(v, language) for n, v in values.items()})


def _written(value: Any, language: int) -> Any:
    if isinstance(value, Message):
        return value.chinese if language else str(value)
    if isinstance(value, list | tuple):
        return _COMMAS[language].join(str(_written(item, language)) for item in value)
    return value
