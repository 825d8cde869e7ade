"""Marian and M2M-100: a SentencePiece model cuts texts into pieces, and vocab.json holds the ids of the pieces.

The two need not fit. A piece that vocab.json lacks takes part in the cutting all the same, and then is unknown; and
vocab.json holds the pieces of the other language too. So texts are cut here, and the pieces looked up as published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, NormalizedString, PreTokenizedString, models, pre_tokenizers

from clearhead.errors import TokenizerError
from clearhead.text.builders.bpe import read_ids
from clearhead.text.builders.sentencepiece import SPACE, SentencePieceFiles, pipeline
from clearhead.text.builders.sentencepiece_model import PieceType, SentencePieceModel, read_sentencepiece
from clearhead.text.builders.templates import Config, Tokens
from clearhead.text.builders.vocabulary_files import Built, Ids
from clearhead.text.files import library_errors, read_bytes


@dataclass(frozen=True)
class PieceLookupFiles(SentencePieceFiles):
    """A SentencePiece model beside a vocab.json."""

    def build(self, path: Path, tokens: Tokens, config: Config, added: Ids) -> Built:
        own = path.with_name("target_vocab.json")  # of two vocabularies, the target's
        vocab = own if path.name == "target.spm" and own.is_file() else path.with_name("vocab.json")
        if not vocab.is_file():
            raise TokenizerError(f"{path.parent} has {path.name} but no vocab.json, where its family keeps the ids.")
        unknown = str(tokens.get("unk_token"))
        ids = read_ids(vocab, unknown, added)
        if max(ids.values()) >= len(ids):
            raise TokenizerError(f"{vocab} skips an id. The file is damaged; download it again.")
        published = {file.name: read_bytes(file) for file in (path, vocab)}
        source = PieceLookup(read_sentencepiece(path), ids, unknown, published)
        with library_errors(path):
            backend = source.build()
        if self.add_tokens is not None:
            self.add_tokens(backend, tokens, config)
        return Built(backend, source_files=source)


@dataclass(frozen=True)
class PieceLookup:
    """The tokenizer, and the files it was published as."""

    model: SentencePieceModel
    ids: dict[str, int]
    unknown: str
    published: dict[str, bytes]

    def build(self) -> tokenizers.Tokenizer:
        if self.model.byte_fallback:
            raise ValueError("it spells unknown characters as bytes, which vocab.json does not go with")
        # what stands for no text must not be found in one; the ids of the model file count for nothing here
        pieces = [p for p in self.model.pieces if p.type not in (PieceType.CONTROL, PieceType.UNUSED)]
        cutting = pipeline(replace(self.model, pieces=pieces, unk_id=[p.type for p in pieces].index(PieceType.UNKNOWN)))
        backend = tokenizers.Tokenizer(models.WordLevel(self.ids, unk_token=self.unknown))
        if cutting.normalizer is not None:
            backend.normalizer = cutting.normalizer
        backend.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(
            Pieces(cutting.model, by_word=cutting.pre_tokenizer is not None)
        )
        if cutting.decoder is not None:
            backend.decoder = cutting.decoder
        symbols = [p.text for p in pieces if p.type is PieceType.USER_DEFINED and p.text in self.ids]
        backend.add_tokens([AddedToken(text, normalized=False) for text in symbols])
        backend.add_special_tokens([self.unknown])
        return backend

    def files(self) -> dict[str, bytes]:
        return self.published


class Pieces:
    """Cuts a text as a SentencePiece model does; every piece knows the characters it came from.

    by_word   no piece reaches across a space, so words can be cut one by one
    """

    _WORD = re.compile(f"{SPACE}[^{SPACE}]*|[^{SPACE}]+")
    _MAX_WORDS = 50_000

    def __init__(self, model: models.Model, by_word: bool) -> None:
        self.model = model
        self.by_word = by_word
        self._cache: dict[str, list[int]] = {}

    def pre_tokenize(self, text: PreTokenizedString) -> None:
        text.split(self._split)

    def _split(self, _: int, text: NormalizedString) -> list[NormalizedString]:
        pieces = (text[start:stop] for start, stop in self.pieces(text.normalized))
        return [piece for piece in pieces if piece is not None]

    def pieces(self, text: str) -> Iterator[tuple[int, int]]:
        """Where each piece starts and stops."""
        start = 0
        for word in self._WORD.findall(text) if self.by_word else [text]:
            lengths = self._cache.get(word)
            if lengths is None:
                lengths = self._cut(word)
                if len(self._cache) < self._MAX_WORDS:
                    self._cache[word] = lengths
            for length in lengths:
                yield start, start + length
                start += length

    def _cut(self, word: str) -> list[int]:
        """The lengths of a word's pieces, in characters."""
        data = word.encode("utf-8")
        spans = [token.offsets for token in self.model.tokenize(word)]  # in bytes
        return [len(data[start:stop].decode("utf-8")) for start, stop in spans]
