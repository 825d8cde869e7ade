"""Turns ids that arrive one at a time into text, without ever showing half a character or losing one."""

import codecs
import re
from typing import Any, Protocol

import tokenizers

from clearhead.errors import InputError
from clearhead.text.backend import Joins
from clearhead.text.cleanup import clean_up, stable_length
from clearhead.text.readable import BYTE_OF, decoder_steps
from clearhead.text.tokenizer import Tokenizer

_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


class TextStream:
    """`push` ids as they come; each call returns the text that is now certain, and `flush` returns the rest.

    All pieces together are `tokenizer.decode(all_ids, skip_special_tokens=…)`. The cost grows with the number of
    ids and no faster.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._backend = tokenizer.backend
        added = self._backend.get_added_tokens_decoder()
        self._skipped = {index for index, token in added.items() if skip_special_tokens and token.special}
        source = tokenizer.source_files
        self._pieces = _Words(source) if isinstance(source, Joins) else _pieces(self._backend)
        self._cleans = tokenizer.cleans_up()
        self._pending = ""  # text whose spaces a removal may still reach
        self._seen = 0

    def push(self, token_id: int) -> str:
        """The text that this id completes; often a word, sometimes nothing yet."""
        try:
            token = self._backend.id_to_token(int(token_id))
        except (OverflowError, TypeError, ValueError) as error:
            raise InputError(f"{token_id!r} is not a token id. Push one whole number at a time.") from error
        if token is None or token_id in self._skipped:
            return ""
        return self._clean(self._pieces.push(int(token_id), token))

    def mark_shown(self) -> None:
        """Counts everything so far as shown: for a prompt, whose text the reader already has."""
        self._pieces.mark_shown()
        self._pending, self._seen = "", 0

    def flush(self) -> str:
        """Whatever is still held back. After this a new text can begin."""
        text = self._pending + self._pieces.flush()
        self._pending, self._seen = "", 0
        return clean_up(text) if self._cleans else text

    def _clean(self, text: str) -> str:
        if not self._cleans:
            return text
        self._pending += text
        place = stable_length(self._pending, self._seen)
        ready, self._pending = self._pending[:place], self._pending[place:]
        self._seen = len(self._pending)
        return clean_up(ready)


class _Pieces(Protocol):
    """One way to decode id by id."""

    def push(self, token_id: int, token: str) -> str: ...
    def mark_shown(self) -> None: ...
    def flush(self) -> str: ...


class _Bytes:
    """Byte-level tokens are bytes in disguise; only the end of a character can be missing."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int, token: str) -> str:
        try:
            data = bytes(BYTE_OF[char] for char in token)
        except KeyError:  # an added token that was never written in the disguise
            data = token.encode("utf-8")
        return self._utf8.decode(data)

    def mark_shown(self) -> None:
        """An unfinished character has not been shown, so it stays."""

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class _Window:
    """Other tokens decode on their own, but for the space before them: the token before decides that.

    Tokens that are single bytes are held until another token ends their run, because the library decides about
    the whole run whether it is text.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._context: list[int] = []
        self._shown = ""
        self._held: list[int] = []

    def push(self, token_id: int, token: str) -> str:
        self._held.append(token_id)
        return "" if _BYTE.fullmatch(token) else self._release()

    def mark_shown(self) -> None:
        self._context += self._held
        self._held = []
        self._shown = self._decode(self._context)

    def flush(self) -> str:
        text = self._release()
        self._context, self._shown = [], ""
        return text

    def _release(self) -> str:
        if not self._held:
            return ""
        text = self._decode(self._context + self._held)
        new = _beyond(self._shown, text)
        self._context, self._held = self._held[-1:], []
        self._shown = self._decode(self._context)
        return new

    def _decode(self, ids: list[int]) -> str:
        text: str = self._backend.decode(ids, skip_special_tokens=False)
        return text


class _Words:
    """Tokens that add their text one after the other, the space before it included."""

    def __init__(self, source: Joins) -> None:
        self._source, self._joiner = source, source.joiner()

    def push(self, token_id: int, token: str) -> str:
        return self._joiner.push(token)

    def mark_shown(self) -> None:
        """What a token stands for was shown when it came."""

    def flush(self) -> str:
        self._joiner = self._source.joiner()
        return ""


class _AtTheEnd:
    """For decoders whose text can change with any later token: nothing is certain before the end."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._ids: list[int] = []
        self._shown = ""

    def push(self, token_id: int, token: str) -> str:
        self._ids.append(token_id)
        return ""

    def mark_shown(self) -> None:
        self._shown = self._backend.decode(self._ids, skip_special_tokens=False)

    def flush(self) -> str:
        text: str = self._backend.decode(self._ids, skip_special_tokens=False)
        new = _beyond(self._shown, text)
        self._ids, self._shown = [], ""
        return new


def _pieces(backend: tokenizers.Tokenizer) -> _Pieces:
    """The way that is right for this decoder."""
    if backend.decoder is None:
        return _Window(backend)
    steps = decoder_steps(backend)
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return _Bytes()
    fused = False
    for step in steps:
        fused = fused or step["type"] == "Fuse"
        if not _is_local(step, fused, backend):
            return _AtTheEnd(backend)
    return _Window(backend)


def _is_local(step: dict[str, Any], fused: bool, backend: tokenizers.Tokenizer) -> bool:
    """Whether this step leaves what came before a token as it was."""
    kind = step["type"]
    if kind == "Replace":
        return not fused
    if kind == "Strip":
        return step["stop"] == 0 and step["start"] <= 1  # one character at the start is the first token's affair
    if kind == "BPEDecoder":
        suffix = step["suffix"]
        return all(suffix not in token.removesuffix(suffix) for token in backend.get_vocab())
    return kind in ("WordPiece", "Metaspace", "ByteFallback", "Fuse")


def _beyond(shown: str, text: str) -> str:
    """The text from the first character on that has not been shown."""
    pairs = zip(shown, text, strict=False)
    return text[next((n for n, (old, new) in enumerate(pairs) if old != new), min(len(shown), len(text))) :]
