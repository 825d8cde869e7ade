"""Documents, and the chunks of so many tokens that they are cut into."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from clearhead.errors import InputError
from clearhead.messages import say
from clearhead.text import Tokenizer


@dataclass(frozen=True)
class Document:
    """A text with a name of its own.

    name     by which it is replaced and deleted
    source   where it was read: a file, a data set. All that a source no longer holds is removed when it is read again
    """

    name: str
    text: str
    source: str = ""
    digest: str = field(init=False)  # of the text alone, without the white space around it

    def __post_init__(self) -> None:
        for value, what in ((self.name, "name"), (self.text, "text")):
            if not isinstance(value, str):
                raise InputError(say("retrieval.document_is_text", what=what, got=type(value).__name__))
        if not self.name:
            raise InputError(say("retrieval.document_needs_a_name"))
        # half of a surrogate pair is no UTF-8, and the store's files are
        object.__setattr__(self, "text", self.text.strip().encode("utf-8", "replace").decode())
        digest = hashlib.blake2b(self.text.encode(), digest_size=16).hexdigest()
        object.__setattr__(self, "digest", digest)


@dataclass(frozen=True)
class Chunk:
    """Some tokens of a document in a row, and the text that they stand for."""

    tokens: list[int]
    text: str


def cut(text: str, tokenizer: Tokenizer, size: int) -> Iterator[Chunk]:
    """Chunks of `size` tokens, the last one shorter. Joined, their texts are the text again.

    What the tokenizer left out (white space, control characters) is with the chunk behind it.
    """
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = encoding["input_ids"], encoding["offset_mapping"]
    start = 0
    for first in range(0, len(ids), size):
        last = min(first + size, len(ids)) - 1
        end = len(text) if last == len(ids) - 1 else max(start, offsets[last][1])
        yield Chunk(ids[first : last + 1], text[start:end])
        start = end
