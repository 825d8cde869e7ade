"""Keeps the wrapped tokenizer free of state: it is copied and replaced, never changed.

The wrapped library stores truncation on the object itself. Two threads that ask for different lengths would
disturb each other. A copy shares the vocabulary, costs well under a millisecond and has one fixed setting.
"""

import threading
from collections import OrderedDict
from typing import Protocol, runtime_checkable

import tokenizers

from clearhead.text.truncation import Truncation

MAX_COPIES = 16


class SourceFiles(Protocol):
    """What a tokenizer is rebuilt from that the wrapped library cannot write down: a part of it is ours (CTRL's)."""

    def build(self) -> tokenizers.Tokenizer: ...
    def files(self) -> dict[str, bytes]: ...


class Joiner(Protocol):
    """Turns tokens into text one by one, where the wrapped library's decoders cannot (fastai's words)."""

    def push(self, token: str) -> str:
        """The text that this token adds."""
        ...


@runtime_checkable
class Joins(Protocol):
    """Source files whose tokenizer has such a way to decode."""

    def joiner(self) -> Joiner: ...


def copy_of(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """An equal tokenizer that shares the vocabulary and has neither padding nor truncation."""
    copy = tokenizers.Tokenizer(backend.model)
    # the library refuses None here, so only parts that exist are handed over
    if backend.normalizer is not None:
        copy.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        copy.pre_tokenizer = backend.pre_tokenizer
    if backend.post_processor is not None:
        copy.post_processor = backend.post_processor
    if backend.decoder is not None:
        copy.decoder = backend.decoder
    copy.encode_special_tokens = backend.encode_special_tokens
    added = backend.get_added_tokens_decoder()
    copy.add_tokens([added[index] for index in sorted(added)])
    return copy


class Backend:
    """One tokenizer and its truncating copies. Nothing in here changes once another thread can see it."""

    def __init__(self, plain: tokenizers.Tokenizer) -> None:
        self.plain = plain
        self._copies: OrderedDict[Truncation, tokenizers.Tokenizer] = OrderedDict()
        self._lock = threading.Lock()

    def truncating(self, truncation: Truncation) -> tokenizers.Tokenizer:
        """The copy that truncates this way; the ones used last are kept."""
        with self._lock:
            copy = self._copies.get(truncation)
            if copy is None:
                length, stride, strategy, side = truncation
                copy = copy_of(self.plain)
                copy.enable_truncation(length, stride=stride, strategy=strategy, direction=side)
                self._copies[truncation] = copy
                if len(self._copies) > MAX_COPIES:
                    self._copies.popitem(last=False)
            else:
                self._copies.move_to_end(truncation)
            return copy
