"""Tokens as configuration files write them down: the seven named special ones, further special ones, added ones."""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken

from clearhead.errors import TokenizerError

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
EXTRAS = ("extra_special_tokens", "additional_special_tokens")  # the newer name first
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def content_of(value: Any) -> str | None:
    """The token's text, whether it is written as a string, as an object or as an AddedToken."""
    if isinstance(value, Mapping):
        value = value.get("content")
    elif isinstance(value, AddedToken):
        value = value.content
    return value if isinstance(value, str) else None


def as_added(value: Any, source_name: str, special: bool | None = None) -> AddedToken:
    """The token as the library wants it; an explicit `special` overrides what the file says."""
    content = content_of(value)
    if not content:
        raise TokenizerError(
            f"{source_name} must be a token: a string, or an object with its content. It is {value!r}."
        )
    flags = {name: bool(value[name]) for name in _FLAGS if name in value} if isinstance(value, Mapping) else {}
    if special is not None:
        flags["special"] = special
    return AddedToken(content, **flags)


def as_object(token: AddedToken) -> dict[str, Any]:
    """The token as configuration files write it."""
    return {"content": token.content, **{name: getattr(token, name) for name in sorted(_FLAGS)}}


def extra_tokens(config: Mapping[str, Any], source_name: str) -> list[Any]:
    """Every special token without one of the seven names, in the order the file gives them."""
    own = [value for key, value in config.items() if _is_own_name(key, value)]
    for key in EXTRAS:
        value = config.get(key) or []
        if not isinstance(value, list | Mapping):
            raise TokenizerError(f"{key} in {source_name} must be a list of tokens, but it is {value!r}.")
        own += value.values() if isinstance(value, Mapping) else value
        if value and isinstance(value, list):
            break  # a list under the newer name replaces one under the older
    return own


def listed_extras(config: Mapping[str, Any]) -> list[str | None]:
    """The part of them that stands in a list, and so can be written back as one."""
    lists = (config[key] for key in EXTRAS if config.get(key) and isinstance(config[key], list))
    return [content_of(value) for value in next(lists, [])]


def _is_own_name(key: str, value: Any) -> bool:
    """Some models name tokens of their own, such as image_token."""
    return key.endswith("_token") and key not in NAMES and content_of(value) is not None
