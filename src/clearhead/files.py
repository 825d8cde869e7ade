"""Atomic writes: a file or a folder appears complete or not at all, whatever stops the process; and checksums.

All is written under a name beside the target (`.NAME.….part`), flushed to the disk with fsync, and renamed. A process
that is killed may leave such a part behind; the old content stays as it was.
"""

from __future__ import annotations

import os
import shutil
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clearhead.errors import ClearheadError


def temporary_path(target: Path) -> Path:
    """A new name in the same folder, and so on the same disk: what is written there can be renamed to the target."""
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")


def fsync(path: Path) -> None:
    """Wait until a file, or the list of a folder's files, is on the disk and not only in the system's memory."""
    if os.name == "nt" and path.is_dir():
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_tree(folder: Path) -> None:
    """The same for a folder and everything in it."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            fsync(path)
    fsync(folder)


@contextmanager
def atomic_paths(*targets: Path) -> Iterator[list[Path]]:
    """Paths to write instead of the targets. When the block ends well, and all of them are on the disk, they are
    renamed in order; when it does not, the targets stay as they were."""
    parts = [temporary_path(target) for target in targets]
    try:
        yield parts
        for part in parts:
            fsync(part)
        for part, target in zip(parts, targets, strict=True):
            part.replace(target)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


def atomic_write(path: Path, data: bytes, error: type[ClearheadError]) -> None:
    """The bytes of one file. `error` is what a full disk or a missing folder becomes."""
    try:
        with atomic_paths(path) as [part]:
            part.write_bytes(data)
    except OSError as cause:
        raise error(f"{path} cannot be written: {cause.strerror or cause}.") from cause


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A new folder to write instead of the target, which it replaces when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = temporary_path(target)
    part.mkdir()
    try:
        yield part
        commit_folder(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def commit_folder(part: Path, target: Path) -> None:
    """Flush a finished folder and rename it to the target: a reader finds the old folder or the new, no mixture."""
    fsync_tree(part)
    old = temporary_path(target) if target.exists() else None
    if old is not None:
        target.rename(old)
    try:
        part.rename(target)
    except OSError:
        if old is not None:
            old.rename(target)
        raise
    with suppress(OSError):  # some network disks cannot flush a list of files
        fsync(target.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def remove_parts(target: Path) -> None:
    """Remove what processes that were killed have left beside a target. For whoever is alone in writing it."""
    for part in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink(missing_ok=True)


def crc32(path: Path) -> int:
    """The checksum of a file, read in blocks."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            crc = zlib.crc32(block, crc)
    return crc
