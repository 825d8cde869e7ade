"""Reading files without trusting them; atomic writes; checksums.

A file or a folder appears complete or not at all, whatever stops the process: all is written under a name beside the
target (`.NAME.….part`), flushed to the disk with fsync, and renamed. A process that is killed may leave such a part
behind; the old content stays as it was.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from clearhead.errors import ClearheadError

MAX_BYTES = 200 * 1024 * 1024  # of a file that is read whole; the largest published tokenizer file is a tenth of this

# ---- reading; `error` is what a file that cannot be read or understood becomes


def read_bytes(path: Path, error: type[ClearheadError]) -> bytes:
    """The whole file, or an error that names it."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise error(
                f"{path} is {size / 2**20:.0f} MB; files of its kind above {MAX_BYTES // 2**20} MB are refused. "
                "Check that this is the file you meant."
            )
        return path.read_bytes()
    except OSError as cause:
        if isinstance(cause, error):
            raise
        raise error(f"{path} cannot be read: {cause.strerror or cause}.") from cause


def read_text(path: Path, error: type[ClearheadError]) -> str:
    """The whole file as UTF-8, with every kind of line end turned into a plain newline."""
    data = read_bytes(path, error)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        line = data.count(b"\n", 0, cause.start) + 1
        raise error(
            f"{path} is not UTF-8: byte {cause.start} (line {line}) is {data[cause.start]:#04x}. "
            "The file is damaged or was saved in another encoding; download it again."
        ) from cause
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path, error: type[ClearheadError]) -> Any:
    """What a JSON file holds."""
    text = read_text(path, error)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as cause:  # a number of thousands of digits is a ValueError
        raise error(f"{path} is not valid JSON: {cause}. The file is damaged; download it again.") from cause


# ---- writing


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


def write_json(path: Path, value: Any, error: type[ClearheadError], sort_keys: bool = False) -> None:
    """JSON that a person can read."""
    text = json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False) + "\n"
    # half of a surrogate pair is no UTF-8; with the backslash it is the JSON escape it came from
    atomic_write(path, text.encode("utf-8", errors="backslashreplace"), error)


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


def lock(file: IO[Any]) -> bool:
    """Whether an open file is this process's alone, until it is closed or the process ends, however it does."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows has no such locks
        pass
    except OSError:
        return False
    return True


def remove_parts(target: Path) -> None:
    """Remove what processes that were killed have left beside a target. For whoever is alone in writing it."""
    for part in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink(missing_ok=True)


def cache_folder(name: str) -> Path:
    """Where the user's caches of this kind are kept. RuntimeError where there is no home folder.

    A relative XDG_CACHE_HOME is passed over, as its specification asks: it would be whatever folder one works in.
    """
    xdg_home = Path(os.environ.get("XDG_CACHE_HOME") or ".")
    root = (
        xdg_home
        if xdg_home.is_absolute()
        else Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    )
    return root / "clearhead" / name


def crc32(path: Path) -> int:
    """The checksum of a file, read in blocks."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            crc = zlib.crc32(block, crc)
    return crc
