"""The vocabulary of a tokenizer: tokens and their ids, added tokens, and how a token is shown."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Self, overload

import tokenizers
from tokenizers import AddedToken

from clearhead.errors import InputError
from clearhead.text.added_tokens import content_of
from clearhead.text.backend import Backend, SourceFiles, copy_of
from clearhead.text.ids import ids_of, not_an_id
from clearhead.text.readable import is_byte_level, readable
from clearhead.text.truncation import Truncation


class Vocabulary:
    """Tokens to ids and back. The wrapped tokenizer is replaced, never changed: other threads may be using it."""

    unk_token_id: int | None = None

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.source_files: SourceFiles | None = None  # where the wrapped library cannot write the backend down
        self._backend = Backend(copy_of(backend))
        self._changing = threading.Lock()

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The wrapped tokenizer. Read it, but do not change it: other threads may be using it."""
        return self._backend.plain

    def backend_for(self, truncation: Truncation | None) -> tokenizers.Tokenizer:
        """The wrapped tokenizer, or its copy that truncates this way."""
        return self._backend.plain if truncation is None else self._backend.truncating(truncation)

    def _change(self, change: Callable[[tokenizers.Tokenizer], int | None]) -> int:
        """Applies a change to a copy of the wrapped tokenizer, which then takes its place."""
        with self._changing:
            changed = copy_of(self._backend.plain)
            count = change(changed)
            self._backend = Backend(changed)
        return count or 0

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of every special token: none, until some are named (special_tokens.py)."""
        return []

    @property
    def vocab_size(self) -> int:
        """How many tokens the vocabulary has without added tokens. `len(tok)` counts those too."""
        return self.backend.get_vocab_size(with_added_tokens=False)

    def __len__(self) -> int:
        return self.backend.get_vocab_size(with_added_tokens=True)

    def __bool__(self) -> bool:
        return True  # `if tokenizer` asks whether there is one, not whether it has tokens

    def get_vocab(self) -> dict[str, int]:
        """Every token with its id, added tokens too."""
        return self.backend.get_vocab(with_added_tokens=True)

    @overload
    def convert_tokens_to_ids(self, tokens: str) -> int | None: ...
    @overload
    def convert_tokens_to_ids(self, tokens: list[str] | tuple[str, ...]) -> list[int | None]: ...
    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> int | list[int | None] | None:
        """The id of a token, or of each; that of the unknown token where it is not in the vocabulary."""
        if isinstance(tokens, str):
            index = self.backend.token_to_id(tokens)
            return self.unk_token_id if index is None else index
        return [self.convert_tokens_to_ids(token) for token in tokens]

    @overload
    def convert_ids_to_tokens(self, ids: int, skip_special_tokens: bool = False) -> str: ...
    @overload
    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> list[str]: ...
    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> str | list[str]:
        """The token of an id, or of each."""
        backend, single = self.backend, isinstance(ids, int)
        skipped = set(self.all_special_ids) if skip_special_tokens and not single else set()
        tokens = []
        for index in ids_of(ids):
            if index in skipped:
                continue
            try:
                token = backend.id_to_token(index)
            except (OverflowError, TypeError):
                token = None
            if token is None:
                raise not_an_id([index], len(self))
            tokens.append(token)
        return tokens[0] if single else tokens

    def readable(self, ids: Any) -> list[str]:
        """The tokens as a person reads them: `Ġrobot` is " robot", half a character its bytes.

        A model may score more ids than its tokenizer has words (T5 does); those show as `<no token N>`.
        """
        backend, byte_level, special = self.backend, is_byte_level(self.backend), set(self.all_special_ids)
        shown = []
        for n in ids_of(ids):
            token = backend.id_to_token(n) if n >= 0 else None
            missing = f"<no token {n}>"
            shown.append(missing if token is None else token if n in special else readable(token, byte_level))
        return shown

    def add_tokens(
        self, new_tokens: str | AddedToken | Sequence[str | AddedToken], special_tokens: bool = False
    ) -> int:
        """Adds tokens that are never split, and returns how many. A model's embedding must grow with them."""
        tokens = list(new_tokens) if isinstance(new_tokens, list | tuple) else [new_tokens]
        for token in tokens:
            if not isinstance(token, str | AddedToken) or not content_of(token):
                raise InputError(f"A new token must be a string that is not empty, but one is {token!r}.")
        return self._change(lambda b: b.add_special_tokens(tokens) if special_tokens else b.add_tokens(tokens))

    def __copy__(self) -> Self:
        """Shares the wrapped tokenizer, which nobody changes."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._changing = threading.Lock()
        return other

    def __getstate__(self) -> dict[str, Any]:
        """For pickling, as data loaders do: locks stay behind, and so does what the wrapped library cannot write."""
        state, backend = self.__dict__.copy(), self.backend
        del state["_changing"]
        rest = backend.get_added_tokens_decoder(), backend.post_processor, backend.encode_special_tokens
        state["_backend"] = backend if self.source_files is None else rest
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        backend = state["_backend"]
        if self.source_files is not None:
            backend = self.source_files.build()
            added, around, backend.encode_special_tokens = state["_backend"]
            backend.add_tokens([added[index] for index in sorted(added)])
            if around is not None:
                backend.post_processor = around
        self._backend = Backend(backend)
        self._changing = threading.Lock()
