"""Special tokens: the seven with a name (`tok.pad_token`, `tok.pad_token_id`), and any number without one."""

from collections.abc import Iterable, Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken

from clearhead.errors import InputError, TokenizerError, did_you_mean
from clearhead.text.added_tokens import EXTRAS, NAMES, content_of
from clearhead.text.vocabulary import Vocabulary


class _SpecialToken:
    """A named special token: `tok.pad_token`, settable."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, tokenizer: "SpecialTokens", owner: type | None = None) -> str | None:
        return tokenizer._named.get(self.name)

    def __set__(self, tokenizer: "SpecialTokens", value: str | AddedToken | None) -> None:
        tokenizer._set_named(self.name, value)


class _SpecialTokenId:
    """The id of a named special token: `tok.pad_token_id`, settable."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.removesuffix("_id")

    def __get__(self, tokenizer: "SpecialTokens", owner: type | None = None) -> int | None:
        token = tokenizer._named.get(self.name)
        return None if token is None else tokenizer.backend.token_to_id(token)

    def __set__(self, tokenizer: "SpecialTokens", value: int | None) -> None:
        tokenizer._set_named(self.name, None if value is None else tokenizer.convert_ids_to_tokens(value))


class SpecialTokens(Vocabulary):
    """A vocabulary that knows which of its tokens are special, and what for."""

    bos_token = _SpecialToken()
    eos_token = _SpecialToken()
    unk_token = _SpecialToken()
    sep_token = _SpecialToken()
    pad_token = _SpecialToken()
    cls_token = _SpecialToken()
    mask_token = _SpecialToken()
    bos_token_id = _SpecialTokenId()
    eos_token_id = _SpecialTokenId()
    unk_token_id = _SpecialTokenId()
    sep_token_id = _SpecialTokenId()
    pad_token_id = _SpecialTokenId()
    cls_token_id = _SpecialTokenId()
    mask_token_id = _SpecialTokenId()

    def __init__(
        self, backend: tokenizers.Tokenizer, named: Mapping[str, str | None] | None, extra: Iterable[str]
    ) -> None:
        super().__init__(backend)
        self._extra = list(dict.fromkeys(extra))
        self._named: dict[str, str] = {}
        for name, token in (named or {}).items():
            self._set_named(name, token)

    def add_special_tokens(
        self,
        special_tokens_dict: Mapping[str, Any],
        replace_extra_special_tokens: bool = True,
    ) -> int:
        """Names special tokens, adding those the vocabulary lacks; returns how many were added.

        Keys are bos_token, eos_token, …, and extra_special_tokens (or additional_special_tokens) for a list.
        """
        for key in special_tokens_dict:
            if key not in (*NAMES, *EXTRAS):
                raise InputError(
                    f"{key} is not a special token; the names are {', '.join((*NAMES, *EXTRAS))}."
                    + did_you_mean(key, (*NAMES, *EXTRAS))
                )
        count = 0
        for key, value in special_tokens_dict.items():
            tokens = list(value) if key in EXTRAS else [value]
            for token in tokens:
                if not content_of(token):
                    raise InputError(f"{key} must be a string that is not empty, but it is {token!r}.")
            count += self.add_tokens(tokens, special_tokens=True)
            if key in NAMES:
                self._set_named(key, value)
            else:
                kept = [] if replace_extra_special_tokens else self._extra
                self._extra = list(dict.fromkeys([*kept, *filter(None, map(content_of, tokens))]))
        return count

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The named special tokens that are set."""
        return {name: self._named[name] for name in NAMES if name in self._named}

    @property
    def extra_special_tokens(self) -> list[str]:
        """Special tokens without one of the seven names."""
        return list(self._extra)

    @property
    def additional_special_tokens(self) -> list[str]:
        """The older name of extra_special_tokens."""
        return list(self._extra)

    @property
    def all_special_tokens(self) -> list[str]:
        """Every special token, each once."""
        return list(dict.fromkeys([*self.special_tokens_map.values(), *self._extra]))

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of every special token."""
        ids = (self.backend.token_to_id(token) for token in self.all_special_tokens)
        return [index for index in ids if index is not None]

    def required_pad_id(self) -> int:
        """The id of the padding token, or an error that says how to get one."""
        pad_id = self.pad_token_id
        if pad_id is None:
            raise TokenizerError(
                "This tokenizer has no padding token, so texts cannot be padded. Choose one of its tokens "
                '(tok.pad_token = tok.eos_token), or add one (tok.add_special_tokens({"pad_token": "[PAD]"})).'
            )
        return pad_id

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """How many special tokens encoding puts around a text, or around a pair."""
        return self.backend.num_special_tokens_to_add(pair)

    def _set_named(self, name: str, value: str | AddedToken | None) -> None:
        if value is None:
            self._named.pop(name, None)
            return
        token = content_of(value)
        if token is None or self.backend.token_to_id(token) is None:
            close = did_you_mean(token, self.all_special_tokens) if token else ""
            raise TokenizerError(
                f"{name} cannot be {value!r}: the vocabulary does not have it.{close} "
                f'Add it with tok.add_special_tokens({{"{name}": …}}) and let the model\'s embedding grow by one.'
            )
        self._named[name] = token
