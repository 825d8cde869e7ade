"""Products of a few rows, in C: compiled once on the user's machine, kept in the cache folder, loaded by ctypes.

One token after another means one row at a time (gemv), and torch reads a matrix slowly for one row. `cpu_kernels.c`
reads it as fast as memory gives it, and multiplies with int8 and int4 weights without unpacking them first.
`cpu_decode.py` hands it all layers at once.

Nothing happens at import. `load()` compiles and loads (a second or two the first time, milliseconds later) and is
called by what needs it: generating on the CPU, or loading a quantised model. Where that is not possible it gives None,
`why_not()` says why, and torch does the work. CLEARHEAD_NATIVE=0 switches it off.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from clearhead.files import cache_folder, crc32, fsync, temporary_path
from clearhead.nn.torch_internals import openmp_functions

log = logging.getLogger("clearhead")

F32, BF16, I8, I4 = range(4)  # how a matrix is stored; see cpu_kernels.c
GROUP = 32  # inputs that share a scale in int4
SMALL = 1 << 16  # multiplications for which a second thread is not worth waking
SOURCE = Path(__file__).with_name("cpu_kernels.c")
FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC", "-w")
MACHINE_FLAGS = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler understands

_POINTER, _LONG, _INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int


class Kernels:
    """The loaded library.

    linear(kind, x, w, scales, bias, y, rows, in, out, threads): addresses and sizes; y = x · wᵀ + bias.
    layers(layers, caches, count, x, y, rows, threads): whole layers for one new position of each row; the structs
        `Layer` and `Cache` of cpu_kernels.c, `count` of each, as bytes. Whether it was done.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.linear: Any = library.linear
        self.linear.argtypes = [_INT, *[_POINTER] * 5, *[_LONG] * 3, _INT]
        self.linear.restype = None
        self.layers: Any = library.layers
        self.layers.argtypes = [_POINTER, _POINTER, _LONG, _POINTER, _POINTER, _LONG, _LONG]
        self.layers.restype = _INT
        # whether `linear` is also the fastest for many rows of int8 and int4
        self.has_many: bool = bool(library.has_many())
        self.threaded = _give_threads(library)


loaded: Kernels | None = None  # what `Linear` looks at: it never compiles anything itself
_reason = "nothing has asked for them yet"
_tried = False
_lock = threading.Lock()


def load() -> Kernels | None:
    """The kernels, compiled and loaded if need be; None where that is not possible."""
    global loaded, _reason, _tried
    with _lock:
        if not _tried:
            _tried = True
            try:
                loaded, _reason = open_library(), ""
            except _UnavailableError as error:
                _reason = str(error)
                log.info("The native kernels are not used: %s.", _reason)
        return loaded


def why_not() -> str:
    """Why there are no native kernels; empty where there are."""
    return "" if loaded is not None else _reason


class _UnavailableError(Exception):
    """This machine cannot have the kernels, and why."""


def open_library(extra_flags: Sequence[str] = ()) -> Kernels:
    """Find the compiled library in the cache or compile it, load it, and see that it can multiply."""
    if os.environ.get("CLEARHEAD_NATIVE", "1").lower() in ("0", "off", "no", "false"):
        raise _UnavailableError("CLEARHEAD_NATIVE switches them off")
    if sys.platform not in ("linux", "darwin"):
        raise _UnavailableError(f"they are made for Linux and macOS, and this is {sys.platform}")
    compiler = next((path for name in _compilers() if (path := shutil.which(name))), None)
    flags = (*FLAGS, *extra_flags)
    marks = (SOURCE.read_bytes(), " ".join(flags), _cpu(), os.environ.get("CC", ""), sys.platform)
    name = f"kernels-{hashlib.sha256(repr(marks).encode()).hexdigest()[:20]}"
    folder = _cache_folder()
    kept = None if folder is None else _kept(folder, name)
    if kept is not None:
        with suppress(_UnavailableError):  # compiled against another system library, say: compile it again
            return _load(kept)
    if compiler is None:
        raise _UnavailableError("there is no C compiler (cc, gcc or clang; or name one in CC)")
    if folder is not None:
        return _load(_compile(compiler, flags, folder, name))
    with tempfile.TemporaryDirectory(prefix="clearhead-") as private:  # nowhere to keep it: for this process only
        return _load(_compile(compiler, flags, Path(private), name))


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


def _compile(compiler: str, flags: Sequence[str], folder: Path, name: str) -> Path:
    """Another process finds the complete library or none."""
    part = temporary_path(folder / name)
    try:
        complaint = ""
        for machine in MACHINE_FLAGS:
            command = [compiler, *machine, *flags, str(SOURCE), "-o", str(part)]
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
        raise _UnavailableError(f"{compiler} could not compile them: {str(error)[:300]}") from None
    finally:
        part.unlink(missing_ok=True)


def _load(path: Path) -> Kernels:
    try:
        kernels = Kernels(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as error:
        raise _UnavailableError(f"the compiled library cannot be loaded: {error}") from None
    x, w = torch.arange(70.0), torch.arange(5 * 70.0).view(5, 70).remainder(7)  # small whole numbers: no rounding
    y = torch.empty(5)
    kernels.linear(F32, x.data_ptr(), w.data_ptr(), None, None, y.data_ptr(), 1, 70, 5, 1)
    if not torch.equal(y, w @ x):
        raise _UnavailableError("the compiled library multiplies wrongly on this machine")
    return kernels


def _give_threads(library: ctypes.CDLL) -> bool:
    """Hand over torch's own OpenMP threads, so that there is one pool. Without them: one thread."""
    functions = openmp_functions()
    if functions is None:
        return False
    library.setup.argtypes = [_POINTER] * 4
    library.setup(*functions)
    return True
