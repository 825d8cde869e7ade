"""The files of a tokenizer: their names, and errors that name them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clearhead import files
from clearhead.errors import ClearheadError, TokenizerError

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


def has_tokenizer(folder: str | os.PathLike[str]) -> bool:
    """Whether files of a tokenizer are there."""
    return any((Path(folder) / name).is_file() for name in TOKENIZER_FILES)


def read_bytes(path: Path) -> bytes:
    """A whole file of a tokenizer."""
    return files.read_bytes(path, TokenizerError)


def read_text(path: Path) -> str:
    """The same as text."""
    return files.read_text(path, TokenizerError)


def read_object(path: Path) -> dict[str, Any]:
    """What a JSON file says, where it has to be an object."""
    value = files.read_json(path, TokenizerError)
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} holds a JSON {type(value).__name__}, but an object is needed.")
    return value


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Turns whatever the wrapped library raises over a file's contents into an error that names the file."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, ClearheadError):
        raise
    except BaseException as error:  # a panic in the library is not an Exception
        raise TokenizerError(f"{path} cannot be used: {error}. It is damaged, or of a kind not supported.") from error
