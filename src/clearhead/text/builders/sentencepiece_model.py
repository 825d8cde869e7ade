"""Reads SentencePiece model files: a small reader of the protobuf wire format that trusts nothing it reads."""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from clearhead.errors import TokenizerError
from clearhead.text.files import read_bytes


class PieceType(IntEnum):
    """What a piece is for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary; its place in the file is its id."""

    text: str
    score: float
    type: PieceType


@dataclass
class SentencePieceModel:
    """What a model file says, as far as encoding and decoding need it. Defaults are those of the format."""

    pieces: list[Piece] = field(default_factory=list)
    algorithm: int = 1  # 1 is unigram, 2 is BPE
    byte_fallback: bool = False
    whitespace_is_suffix: bool = False
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True


_ALGORITHM, _SUFFIX, _BYTES, _UNK, _BOS, _EOS, _PAD = 3, 24, 35, 40, 41, 42, 43  # fields of the trainer
_CHARSMAP, _PREFIX, _EXTRA, _ESCAPE = 2, 3, 4, 5  # fields of the normalizer


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """What the file says, or an error that names the file and says why it cannot be read."""
    try:
        model = parse(read_bytes(path))
    except _Damaged as error:
        raise TokenizerError(
            f"{path} is not a SentencePiece model, or is damaged: {error}. Download the file again."
        ) from error
    return model


class _Damaged(Exception):
    """The bytes are not what the format allows; never leaves this file."""


def parse(data: bytes) -> SentencePieceModel:
    """The model in these bytes."""
    model = SentencePieceModel()
    for number, value in _fields(data):
        if number == 1:
            model.pieces.append(_piece(_bytes(value)))
        elif number == 2:
            _read_trainer(model, _bytes(value))
        elif number == 3:
            _read_normalizer(model, _bytes(value))
    _check(model)
    return model


def _read_trainer(model: SentencePieceModel, data: bytes) -> None:
    for number, value in _fields(data):
        if number == _ALGORITHM:
            model.algorithm = _int(value)
        elif number == _SUFFIX:
            model.whitespace_is_suffix = bool(_int(value))
        elif number == _BYTES:
            model.byte_fallback = bool(_int(value))
        elif number == _UNK:
            model.unk_id = _int(value)
        elif number == _BOS:
            model.bos_id = _int(value)
        elif number == _EOS:
            model.eos_id = _int(value)
        elif number == _PAD:
            model.pad_id = _int(value)


def _read_normalizer(model: SentencePieceModel, data: bytes) -> None:
    for number, value in _fields(data):
        if number == _CHARSMAP:
            model.charsmap = _bytes(value)
        elif number == _PREFIX:
            model.add_dummy_prefix = bool(_int(value))
        elif number == _EXTRA:
            model.remove_extra_whitespaces = bool(_int(value))
        elif number == _ESCAPE:
            model.escape_whitespaces = bool(_int(value))


def _piece(data: bytes) -> Piece:
    text, score, type_ = "", 0.0, PieceType.NORMAL
    for number, value in _fields(data):
        if number == 1:
            try:
                text = _bytes(value).decode("utf-8")
            except UnicodeDecodeError as error:
                raise _Damaged("a piece is not valid UTF-8") from error
        elif number == 2:
            score = _float(value)
        elif number == 3:
            try:
                type_ = PieceType(_int(value))
            except ValueError as error:
                raise _Damaged(f"a piece has the unknown type {value!r}") from error
    return Piece(text, score, type_)


def _check(model: SentencePieceModel) -> None:
    pieces = model.pieces
    if not pieces:
        raise _Damaged("it holds no pieces")
    if len({piece.text for piece in pieces}) != len(pieces):
        raise _Damaged("a piece appears twice")
    if not all(piece.text for piece in pieces):
        raise _Damaged("a piece is empty")
    if not all(math.isfinite(piece.score) for piece in pieces):
        raise _Damaged("a score is not a number")
    if not 0 <= model.unk_id < len(pieces) or pieces[model.unk_id].type is not PieceType.UNKNOWN:
        raise _Damaged("it has no unknown piece")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field's number with its value: an int, or the bytes of anything longer."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise _Damaged("a field has number 0")
        if wire == 0:
            value, place = _varint(data, place)
            yield number, value
            continue
        if wire == 1:
            size = 8
        elif wire == 2:
            size, place = _varint(data, place)
        elif wire == 5:
            size = 4
        else:
            raise _Damaged(f"a field has the unknown wire type {wire}")
        if size > len(data) - place:
            raise _Damaged("it ends in the middle of a field")
        yield number, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of up to ten bytes, seven bits each, and the place after it."""
    value = 0
    for count in range(10):
        if place + count >= len(data):
            raise _Damaged("it ends in the middle of a number")
        byte = data[place + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, place + count + 1
    raise _Damaged("a number does not end")


def _int(value: int | bytes) -> int:
    """A signed 32-bit number, as the format means it."""
    if not isinstance(value, int):
        raise _Damaged("a number was expected")
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise _Damaged("bytes were expected")
    return value


def _float(value: int | bytes) -> float:
    raw = _bytes(value)
    if len(raw) != 4:
        raise _Damaged("a score was expected")
    number: float = struct.unpack("<f", raw)[0]
    return number
