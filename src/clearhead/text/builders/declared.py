"""What the small JSON files around a vocabulary declare: settings, special tokens, added tokens, the family."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from clearhead.errors import TokenizerError
from clearhead.text.added_tokens import EXTRAS, NAMES, as_added, as_object, content_of, extra_tokens
from clearhead.text.builders.families import TokenizerFamily, announced_family
from clearhead.text.files import read_object

log = logging.getLogger("clearhead")

NamedTokens = dict[str, AddedToken | None]


@dataclass
class Declared:
    """
    config       tokenizer_config.json
    tokens       special tokens that a file names, by name; a null unsets one
    extra        special tokens without a name
    added        added tokens with their ids, in their order
    family       what the files announce the tokenizer to be, where that is known here
    announced    the name they announce it by
    """

    config: dict[str, Any]
    tokens: dict[str, Any]
    extra: list[Any]
    added: list[tuple[int, AddedToken]]
    family: TokenizerFamily | None
    announced: str | None

    @classmethod
    def read(cls, folder: Path) -> "Declared":
        config = _optional(folder / "tokenizer_config.json")
        family, announced = announced_family(config, _optional(folder / "config.json"))
        merged = dict(config)
        decoder = config.get("added_tokens_decoder")
        if decoder is None:
            # once a configuration lists every added token, the two older files are out of date
            older = _optional(folder / "special_tokens_map.json")
            if any(config.get(key) for key in EXTRAS):
                older.pop("additional_special_tokens", None)
            merged |= older
        tokens = {key: merged[key] for key in NAMES if key in merged}
        extra = extra_tokens(merged, "tokenizer_config.json or special_tokens_map.json")
        if decoder is None:
            special = {content_of(value) for value in (*tokens.values(), *extra)}
            added = _from_added_tokens_json(folder / "added_tokens.json", special)
        else:
            added = _from_decoder(folder / "tokenizer_config.json", decoder)
        return cls(config, tokens, extra, added, family, announced)

    def apply_settings(self) -> None:
        """Fills in what tokenizer_config.json means where it is silent."""
        for key, value in (self.family.settings if self.family else {}).items():
            self.config.setdefault(key, value)

    def added_ids(self) -> dict[str, int]:
        """The ids of added tokens."""
        return {token.content: index for index, token in self.added}

    def named_tokens(self) -> NamedTokens:
        """The named special tokens: what files declare, and the family's names for the rest."""
        added = {token.content: token for _, token in self.added}
        mask_lstrip = self.family is not None and self.family.mask_lstrip
        named: NamedTokens = {}
        for name, value in {**(self.family.tokens if self.family else {}), **self.tokens}.items():
            content = content_of(value)
            if content in added:
                named[name] = added[content]
            elif value is None:
                named[name] = None
            elif name == "mask_token" and mask_lstrip and isinstance(value, str):
                named[name] = AddedToken(content, lstrip=True, normalized=False, special=True)
            else:
                named[name] = as_added(value, f"{name} in tokenizer_config.json", special=True)
        return named

    def register(self, backend: tokenizers.Tokenizer, named: NamedTokens, ids_from: Path | None = None) -> None:
        """Tells the wrapped tokenizer about added and special tokens. A family's names that it lacks are dropped.

        ids_from   the vocabulary file after which added tokens must get the ids that are declared
        """
        known = {token.content: as_object(token) for token in backend.get_added_tokens_decoder().values()}
        backend.add_tokens([token for _, token in self.added if known.get(token.content) != as_object(token)])
        for index, token in self.added if ids_from is not None else ():
            if backend.token_to_id(token.content) != index:
                raise TokenizerError(
                    f"The added token {token.content!r} should have id {index}, but after {ids_from} it gets "
                    f"{backend.token_to_id(token.content)}. The files do not belong together."
                )
        known |= {token.content: as_object(token) for _, token in self.added}
        for name, special in list(named.items()):
            if special is None or special.content in known:
                continue
            if name in self.tokens or backend.token_to_id(special.content) is not None:
                backend.add_special_tokens([special])
            else:
                named[name] = None
        extra = [as_added(token, " or ".join(EXTRAS), special=True) for token in self.extra]
        backend.add_special_tokens([token for token in extra if token.content not in known])


def contents(named: Mapping[str, AddedToken | None]) -> dict[str, str | None]:
    """Named tokens as plain strings."""
    return {name: content_of(token) for name, token in named.items()}


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def _from_decoder(path: Path, decoder: Any) -> list[tuple[int, AddedToken]]:
    """The tokens of added_tokens_decoder, by id."""
    if not isinstance(decoder, dict):
        raise TokenizerError(f"added_tokens_decoder in {path} must be an object, but it is {decoder!r}.")
    added = []
    for index, token in decoder.items():
        if not str(index).isdecimal():
            raise TokenizerError(f"added_tokens_decoder in {path} has {index!r} where an id must be.")
        added.append((int(index), as_added(token, f"token {index} of added_tokens_decoder in {path}")))
    return sorted(added, key=lambda item: item[0])


def _from_added_tokens_json(path: Path, special: set[str | None]) -> list[tuple[int, AddedToken]]:
    """The tokens of added_tokens.json, by id; whether one is special is said elsewhere."""
    added: dict[int, AddedToken] = {}
    for token, index in _optional(path).items():
        if not isinstance(index, int) or isinstance(index, bool):
            raise TokenizerError(f"{path} gives {token!r} the id {index!r}; an id is a whole number.")
        if index in added:
            log.warning("%s gives the id %s to two tokens; it is that of %r.", path, index, token)
        added[index] = as_added(token, f"a token in {path}", special=token in special)
    return sorted(added.items(), key=lambda item: item[0])
