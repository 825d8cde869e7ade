"""The files that a recipe's paths stand for: folders, patterns and lists; their format and what is in them."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from clearhead import hub
from clearhead.errors import InputError, did_you_mean
from clearhead.text.text_files import UNPACK
from clearhead.train.data.formats import ENDINGS, READERS


def find_files(path_or_list: Any, folder: Path) -> list[Path]:
    """The files that a path, a folder, a pattern or a list of those stands for, in order."""
    if isinstance(path_or_list, list | tuple):
        paths = [path for item in path_or_list for path in find_files(item, folder)]
        if not paths:
            raise InputError("The list of files is empty. Name at least one.")
        return paths
    if not isinstance(path_or_list, str | os.PathLike):
        raise InputError(f"A path must be a text, but here is {path_or_list!r}.")
    path = folder / hub.user_path(path_or_list)
    if path.is_file():
        return [path]
    if path.is_dir():
        inside = sorted(
            p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".") and ending_of(p) in ENDINGS
        )
        if not inside:
            raise InputError(f"{path} holds no file that ends in {', '.join(ENDINGS)} (packed or not).")
        return inside
    pattern = next((n for n, part in enumerate(path.parts) if any(sign in part for sign in "*?[")), None)
    if pattern is not None:
        base = Path(*path.parts[:pattern])
        try:
            matching = sorted(p for p in base.glob(str(Path(*path.parts[pattern:]))) if p.is_file())
        except ValueError as error:
            raise InputError(f"{path} is no pattern of files: {error}. `*` stands for any part of a name.") from None
        if not matching:
            raise InputError(f"No file matches {path}.")
        return matching
    if path.exists():
        raise InputError(f"{path} is no plain file, and data are read more than once. Write them into one first.")
    beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    raise InputError(f"{path} does not exist.{did_you_mean(path.name, beside)} Paths begin at {folder.resolve()}.")


def ending_of(path: Path) -> str:
    """The ending that tells the format: `.jsonl` of `a.jsonl.gz`."""
    return (path.with_suffix("") if path.suffix.lower() in UNPACK else path).suffix.lower()


def format_of(files: list[Path]) -> str:
    formats = {ENDINGS.get(ending_of(path)): path for path in files}
    if None in formats:
        raise InputError(
            f"{formats[None]} does not say what it holds. Say so in the recipe: format: {', '.join(READERS)}."
        )
    if len(formats) > 1:
        raise InputError(
            f"The files are of several kinds: {', '.join(p.name for p in formats.values())}. Name those that are "
            "meant, or a pattern such as data/*.txt."
        )
    return str(next(iter(formats)))


def file_digest(path: Path) -> bytes:
    try:
        known = path.stat()
        return _digest(path.resolve(), known.st_size, known.st_mtime_ns)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error


@lru_cache(4096)
def _digest(path: Path, size: int, changed: int) -> bytes:
    """Once for each file, as long as it does not change: tokenizer, training and held-out data ask for the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def listed(files: list[Path]) -> str:
    return ", ".join(map(str, files[:3])) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
