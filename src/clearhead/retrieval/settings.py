"""What a store was made with, written down in it; and the refusal of whatever does not fit."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from clearhead import hub
from clearhead.errors import ClearheadError, InputError, StoreError
from clearhead.hub.fingerprint import tokenizer_fingerprint
from clearhead.messages import say
from clearhead.retrieval.encoder import Encoder
from clearhead.retrieval.metrics import METRICS, Metric
from clearhead.schema import Field, build
from clearhead.text import Tokenizer, load_tokenizer
from clearhead.zoo.folder import folder_of

CHUNK_SIZE = 64  # tokens, as in RETRO
VERSION = 1  # of how a store is laid out
_KEY = b"clearhead.store"


@dataclass(frozen=True)
class StoreSettings:
    """
    encoder      whose vectors are the keys: its name, and a fingerprint of its weights
    width        of a vector
    tokenizer    whose tokens chunks are counted in; by default the encoder's
    chunk_size   tokens of a chunk
    metric       how alike two vectors are (metrics.py)
    """

    encoder: str
    encoder_fingerprint: str
    width: int
    tokenizer: str
    tokenizer_fingerprint: str
    chunk_size: Annotated[int, Field(least=1, most=4096)] = CHUNK_SIZE
    metric: Metric = "cosine"
    version: int = VERSION

    def to_metadata(self) -> dict[bytes, bytes]:
        """As the metadata of a table's schema."""
        return {_KEY: json.dumps(asdict(self)).encode()}

    @classmethod
    def from_metadata(cls, metadata: dict[bytes, bytes] | None, where: str) -> StoreSettings:
        if not metadata or _KEY not in metadata:
            raise StoreError(say("retrieval.not_ours", where=where))
        try:
            raw: dict[str, Any] = json.loads(metadata[_KEY])
            if raw.get("version") != VERSION:
                raise StoreError(say("retrieval.version", where=where, version=raw.get("version"), ours=VERSION))
            return build(cls, raw)
        except (ValueError, AttributeError) as error:
            raise StoreError(say("retrieval.damaged", where=where, reason=str(error))) from None


@dataclass(frozen=True)
class AskedSettings:
    """What somebody asks of a store; None where they say nothing."""

    encoder: str | None = None
    tokenizer: str | None = None
    chunk_size: int | None = None
    metric: str | None = None

    def check(self, kept: StoreSettings, where: str) -> None:
        """A store keeps the chunks and the metric it was made with. (Its encoder is compared by its fingerprint.)"""
        for name, asked, has in (
            ("chunk_size", self.chunk_size, kept.chunk_size),
            ("metric", self.metric, kept.metric),
        ):
            if asked is not None and asked != has:
                raise StoreError(say("retrieval.made_otherwise", where=where, name=name, has=has, asked=asked))

    def settle(self, encoder: Encoder, tokenizer_name: str, tokenizer: Tokenizer) -> StoreSettings:
        """The settings of a new store."""
        size = CHUNK_SIZE if self.chunk_size is None else self.chunk_size
        raw = {
            "encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, "width": encoder.width,
            "tokenizer": tokenizer_name, "tokenizer_fingerprint": tokenizer_fingerprint(tokenizer),
            "chunk_size": size, "metric": self.metric or METRICS[0],
        }  # fmt: skip
        settings = build(StoreSettings, raw)
        longest = encoder.max_length - len(encoder.tokenizer("")["input_ids"])
        if size > longest:
            raise InputError(say("retrieval.chunk_too_long", size=size, encoder=encoder.name, limit=longest))
        return settings


def open_encoder(kept: StoreSettings, where: str, name: str | None = None, device: Any = None) -> Encoder:
    """The encoder that a store was made with; another is refused, because its vectors mean something else.

    name   where it is now, if not where it was
    """
    try:
        encoder = Encoder(name or kept.encoder, device)
    except ClearheadError as error:
        raise type(error)(say("retrieval.encoder_gone", where=where, encoder=kept.encoder, reason=str(error))) from None
    if encoder.fingerprint != kept.encoder_fingerprint:
        raise StoreError(
            say(
                "retrieval.other_encoder", where=where, kept=kept.encoder, kept_print=kept.encoder_fingerprint[:8],
                name=encoder.name, print=encoder.fingerprint[:8],
            )
        )  # fmt: skip
    return encoder


def open_tokenizer(kept: StoreSettings, encoder: Encoder, where: str, name: str | None = None) -> Tokenizer:
    """The tokenizer that a store's chunks are counted in; another is refused."""
    named = name or kept.tokenizer
    tokenizer = encoder.tokenizer if named in (kept.encoder, encoder.name) else load_named(named)
    if tokenizer_fingerprint(tokenizer) != kept.tokenizer_fingerprint:
        raise StoreError(say("retrieval.other_tokenizer", where=where, kept=kept.tokenizer, name=named))
    return tokenizer


def load_named(name: str) -> Tokenizer:
    """The tokenizer of a model, by the model's name."""
    return load_tokenizer(hub.transformer_folder(folder_of(name)))
