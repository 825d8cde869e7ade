"""Standard input, output and error as the verbs may rely on them: they are there, and no character stops them.

A console may have an encoding of a few hundred characters (cp1252, cp437), a stream may be closed, a disk may be full.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

from clearhead.errors import InputError

NARROWEST, WIDEST = 20, 10_000  # columns that a terminal may claim
# One character for one, so that columns stay in line.
_PLAINER = {
    **dict.fromkeys("–—−‐‑─━", "-"), **dict.fromkeys("│┃┆▏", "|"), **dict.fromkeys("█▉▊▋▌▍▎▇▆▅▄▃▂▁", "#"),
    **dict.fromkeys("“”„", '"'), **dict.fromkeys("‘’", "'"), "…": ".", "·": ".", "•": "*", "›": ">", "→": ">",
    "←": "<", "×": "x", "␣": "_", "\u00a0": " ",
}  # fmt: skip


class _Replace:
    """An error handler of codecs: what an encoding lacks becomes something plain, or a question mark.

    lossy   whether there was a question mark
    """

    lossy = False

    def __call__(self, error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        plain = "".join(_PLAINER.get(character, "?") for character in error.object[error.start : error.end])
        self.lossy = self.lossy or "?" in plain
        return plain, error.end


class _Closed(io.TextIOBase):
    """What stands for a closed standard output: writing to it is an error, as it is for any program."""

    def write(self, text: str, /) -> NoReturn:
        raise OSError(errno.EBADF, "it is closed")


_replace = _Replace()


def prepare() -> None:
    """Call it once, before anything is read or written."""
    codecs.register_error("clearhead.replace", _replace)
    codecs.register_error("clearhead.refuse", _refuse)
    closed = [stream is None for stream in (sys.stdin, sys.stdout, sys.stderr)]
    for number in range(3):
        _occupy(number)
    if closed[0]:
        sys.stdin = os.fdopen(0, encoding="utf-8")  # nothing to read
    if closed[1]:
        sys.stdout = _Closed()
    if closed[2]:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8")
    for stream, handler in ((sys.stdin, "refuse"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=f"clearhead.{handler}")
    for name, least in (("COLUMNS", NARROWEST), ("LINES", 1)):  # few would print nothing, or nothing to be read
        size = os.environ.get(name, "")
        if size and not (size.isdecimal() and least <= int(size[:9]) <= WIDEST):
            del os.environ[name]


def finish() -> None:
    """Everything is written now, or an OSError says why not; a note where characters were lost."""
    sys.stdout.flush()
    if _replace.lossy:
        from clearhead.cli.style import note

        note(
            f"Some characters do not exist in this output's encoding ({sys.stdout.encoding}) and became question "
            "marks. With PYTHONIOENCODING=utf-8 they are kept."
        )


def abandon() -> None:
    """Nothing more can be written: the interpreter's last attempt at it goes nowhere."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def can_write(text: str) -> bool:
    """Whether standard output has all these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _occupy(number: int) -> None:
    """Nowhere under the number of a closed stream, so that no file of ours gets it."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)


def _refuse(error: UnicodeError) -> Any:
    """An error handler of codecs: what is no text in the encoding is an error of the user's."""
    assert isinstance(error, UnicodeDecodeError)
    byte = error.object[error.start]
    raise InputError(
        f"Standard input is no text in {error.encoding.upper()}: it holds the byte 0x{byte:02x} where none can be. "
        "Convert it first: iconv -f latin1 -t utf-8."
    )
