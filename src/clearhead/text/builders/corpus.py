"""Reads training text piece by piece, so that a corpus never has to fit into memory."""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from clearhead.errors import InputError, TokenizerError
from clearhead.text.text_files import Advance, characters

_MAX_LINE = 16 * 1024 * 1024  # a line without a single space is cut here
_FILE_NAME = re.compile(r"\S{1,255}\.\w{1,8}")


class Corpus:
    """Texts from files or from an iterable; can be read more than once."""

    def __init__(self, source: Any) -> None:
        self._files = _files(source)
        self._texts: Iterable[Any] = () if self._files is not None else source
        self._copy: IO[str] | None = None

    @property
    def size(self) -> int | None:
        """How many bytes there are to read, where that is known."""
        return None if self._files is None else sum(path.stat().st_size for path in self._files)

    def read(self, advance: Callable[[int], None], keep: bool = False) -> Iterator[str]:
        """Every text. `advance` hears how many bytes were read; `keep` makes a second reading possible."""
        has_text = False
        for text in self._all(advance, keep):
            has_text = has_text or not (text == "" or text.isspace())
            yield text
        if not has_text:
            raise TokenizerError("There is no text to train on: the corpus is empty, or holds only spaces.")

    def _all(self, advance: Callable[[int], None], keep: bool) -> Iterator[str]:
        if self._files is not None:
            for path in self._files:
                yield from _blocks(path, advance)
        elif self._copy is not None:
            self._copy.seek(0)
            for line in self._copy:
                yield json.loads(line)
        else:
            if keep:  # an iterable may be gone after one reading, so it is written down
                self._copy = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the corpus
            for number, text in enumerate(self._texts):
                if not isinstance(text, str):
                    raise InputError(
                        f"Text {number} of the corpus must be a string, but it is of type {type(text).__name__}."
                    )
                if self._copy is not None:
                    self._copy.write(json.dumps(text) + "\n")
                yield text


@contextmanager
def progress(show: bool, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error over the bytes read, where their number is known."""
    if not show or not total:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("Reading text", total=total)
        yield lambda count: bar.advance(task, count)


def _files(source: Any) -> list[Path] | None:
    """The files, where the source is files; None where it is texts."""
    if isinstance(source, str | os.PathLike):
        source = [source]
    elif isinstance(source, bytes) or not isinstance(source, Iterable):
        raise InputError(
            f"Train on files, or on an iterable of texts, not on something of type {type(source).__name__}."
        )
    elif not isinstance(source, list | tuple) or not all(_names_a_file(item) for item in source):
        return None
    if not source:
        raise InputError("There are no files to train on: the list is empty.")
    files = [Path(item) for item in source]
    for path in files:
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            hint = " Strings that are texts and no names: pass iter([...])." if isinstance(source[0], str) else ""
            raise TokenizerError(f"{path} {what}. Check the name.{hint}")
    return files


def _names_a_file(item: Any) -> bool:
    """Paths do; so do strings that look like one. Texts have spaces in them."""
    return isinstance(item, os.PathLike) or (isinstance(item, str) and bool(_FILE_NAME.fullmatch(item)))


def _blocks(path: Path, advance: Advance) -> Iterator[str]:
    """The file's text in blocks that end where a line ends, or at least a word."""
    rest = ""
    try:
        for text in characters(path, "utf-8", advance, keep_line_ends=True):
            rest += text
            cut = _cut(rest)
            if cut:
                yield rest[:cut]
                rest = rest[cut:]
    except InputError as error:
        raise TokenizerError(str(error)) from error
    if rest:
        yield rest


def _cut(text: str) -> int:
    """Where the block ends; 0 to read on."""
    after_line = text.rfind("\n") + 1
    if after_line:
        return after_line
    before_space = text.rfind(" ")
    if before_space > 0 or len(text) < _MAX_LINE:
        return max(before_space, 0)
    return len(text)
