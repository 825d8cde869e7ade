"""Small C files, compiled once on the user's machine, kept in the cache folder, loaded by ctypes.

Nothing happens at import. Where a library cannot be had (no compiler, another system, CLEARHEAD_NATIVE=0) there is an
`UnavailableError` that says why, and whoever asked does the work without it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from clearhead.files import cache_folder, crc32, fsync, temporary_path

FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC", "-w")
MACHINE_FLAGS = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler understands

Loaded = TypeVar("Loaded")


class UnavailableError(Exception):
    """This machine cannot have the library, and why."""


def open_library(
    source: Path, wrap: Callable[[ctypes.CDLL], Loaded], extra_flags: Sequence[str] = (), name: str = "kernels"
) -> Loaded:
    """Find the compiled library in the cache or compile it, and load it.

    wrap   what the caller makes of it; it may try it out, and raise UnavailableError
    name   what the file in the cache begins with
    """
    if os.environ.get("CLEARHEAD_NATIVE", "1").lower() in ("0", "off", "no", "false"):
        raise UnavailableError("CLEARHEAD_NATIVE switches them off")
    if sys.platform not in ("linux", "darwin"):
        raise UnavailableError(f"they are made for Linux and macOS, and this is {sys.platform}")
    compiler = next((path for compiler in _compilers() if (path := shutil.which(compiler))), None)
    flags = (*FLAGS, *extra_flags)
    marks = (source.read_bytes(), " ".join(flags), _cpu(), os.environ.get("CC", ""), sys.platform)
    name = f"{name}-{hashlib.sha256(repr(marks).encode()).hexdigest()[:20]}"
    folder = _cache_folder()
    kept = None if folder is None else _kept(folder, name)
    if kept is not None:
        with suppress(UnavailableError):  # compiled against another system library, say: compile it again
            return _load(kept, wrap)
    if compiler is None:
        raise UnavailableError("there is no C compiler (cc, gcc or clang; or name one in CC)")
    if folder is not None:
        return _load(_compile(source, compiler, flags, folder, name), wrap)
    with tempfile.TemporaryDirectory(prefix="clearhead-") as private:  # nowhere to keep it: for this process only
        return _load(_compile(source, compiler, flags, Path(private), name), wrap)


def _compilers() -> list[str]:
    named = os.environ.get("CC")
    return [named] if named else ["cc", "gcc", "clang"]


def _cpu() -> str:
    """What the code is compiled for: the processor and what it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
        kept = [line for line in lines if line.split("\t")[0].split(":")[0] in ("model name", "flags", "Features")]
    except OSError:
        kept = [platform.processor()]
    return platform.machine() + "|".join(kept)


def _cache_folder() -> Path | None:
    """A folder that only this user can write to; None where there is none."""
    try:
        folder = cache_folder("native")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder if _is_ours(folder) and os.access(folder, os.W_OK) else None
    except (OSError, RuntimeError):
        return None


def _is_ours(path: Path) -> bool:
    """There, owned by this user, and writable by nobody else: what is loaded runs with our rights."""
    try:
        facts = path.stat()
    except OSError:
        return False
    return facts.st_uid == os.getuid() and not facts.st_mode & 0o022


def _kept(folder: Path, name: str) -> Path | None:
    """The library that was compiled before. Its name ends with its checksum: a damaged file is never loaded."""
    for path in folder.glob(f"{name}-*.so"):
        if _is_ours(path):
            if path.stem.endswith(f"-{crc32(path):08x}"):
                return path
            path.unlink(missing_ok=True)
    return None


def _compile(source: Path, compiler: str, flags: Sequence[str], folder: Path, name: str) -> Path:
    """Another process finds the complete library or none."""
    part = temporary_path(folder / name)
    try:
        complaint = ""
        for machine in MACHINE_FLAGS:
            command = [compiler, *machine, *flags, str(source), "-o", str(part)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            if done.returncode == 0:
                break
            complaint = complaint or done.stderr.strip().split("\n")[0]
        else:
            raise OSError(complaint)
        part.chmod(0o700)
        fsync(part)
        return part.replace(folder / f"{name}-{crc32(part):08x}.so")
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"{compiler} could not compile them: {str(error)[:300]}") from None
    finally:
        part.unlink(missing_ok=True)


def _load(path: Path, wrap: Callable[[ctypes.CDLL], Loaded]) -> Loaded:
    try:
        return wrap(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"the compiled library cannot be loaded: {error}") from None
