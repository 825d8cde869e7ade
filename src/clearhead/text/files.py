"""Reads tokenizer files without trusting them, and writes JSON."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clearhead.errors import TokenizerError
from clearhead.files import atomic_write

SENTENCEPIECE_FILES = (
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "source.spm",
    "spm.model",
    "sentencepiece.model",
)
TOKENIZER_FILES = (  # every file that a published tokenizer may consist of
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    *SENTENCEPIECE_FILES,
    "target.spm",
    "target_vocab.json",
)
TARGET_FOLDER = "target_tokenizer"  # a folder beside the files, where the target has a tokenizer of its own
MAX_BYTES = 200 * 1024 * 1024  # the largest published tokenizer file is a tenth of this


def has_tokenizer(folder: str | os.PathLike[str]) -> bool:
    """Whether files of a tokenizer are there."""
    return any((Path(folder) / name).is_file() for name in TOKENIZER_FILES)


def read_bytes(path: Path) -> bytes:
    """The whole file, or an error that names it."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise TokenizerError(
                f"{path} is {size / 2**20:.0f} MB; tokenizer files above {MAX_BYTES // 2**20} MB are refused. "
                "Check that this is the file you meant."
            )
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror or error}.") from error


def read_text(path: Path) -> str:
    """The whole file as UTF-8, with every kind of line end turned into a plain newline."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TokenizerError(
            f"{path} is not UTF-8: byte {error.start} (line {line}) is {data[error.start]:#04x}. "
            "The file is damaged or was saved in another encoding; download it again."
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path) -> Any:
    """What a JSON file says."""
    try:
        return json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}. The file is damaged; download it again.") from error


def read_object(path: Path) -> dict[str, Any]:
    """What a JSON file says, where it has to be an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} holds a JSON {type(value).__name__}, but an object is needed.")
    return value


def write_json(path: Path, value: Any) -> None:
    """Writes JSON a person can read."""
    atomic_write(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8"), TokenizerError)


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Turns whatever the wrapped library raises over a file's contents into an error that names the file."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic in the library is not an Exception
        raise TokenizerError(f"{path} cannot be used: {error}. It is damaged, or of a kind not supported.") from error
