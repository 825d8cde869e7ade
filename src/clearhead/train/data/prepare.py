"""Tokenise once: every record becomes examples in a table on disk, and the same question finds them there again."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from clearhead.errors import CheckpointError, InputError
from clearhead.train.data.sources import Source
from clearhead.train.data.table import VERSION, Table, TableWriter
from clearhead.train.data.types import Example, Preprocessor, Record, checked
from clearhead.train.data.workers import WORKER_DIED, worker_pool

log = logging.getLogger("clearhead")

PATIENCE = 2.0  # seconds of work before anything is shown
EVERY = 10.0  # seconds between two lines, where there is no terminal
TOGETHER = 2**20  # characters that are encoded at once
FORGOTTEN = 24 * 3600.0  # seconds after which an unfinished folder belongs to a process that was killed

_preprocessor: Preprocessor | None = None  # of a worker process


def prepare(
    source: Source,
    preprocessor: Preprocessor,
    cache_folder: str | os.PathLike[str],
    *,
    workers: int = 0,
    show_progress: bool | None = None,
) -> Table:
    """The examples of a source, made now or found in the cache.

    workers         processes that encode; 0: this one does
    show_progress   on standard error; None: if it takes more than two seconds
    """
    cache = Path(cache_folder)
    fingerprint = fingerprint_of(source, preprocessor)
    folder = cache / fingerprint[:32]
    if folder.exists():
        with suppress(CheckpointError):  # a damaged one is made anew, and replaced when that is done
            return Table(folder).check()
    _sweep(cache)
    with TableWriter(folder, fingerprint) as writer, _Progress(source, writer, show_progress) as progress:
        records = checked(source.records(progress.advance), preprocessor.columns)
        begun = False  # there is a row that the next piece of a long text belongs to
        read = unused = 0
        with closing(_encoded(records, preprocessor, workers)) as encoded:
            for record, examples in encoded:
                begun = begun and preprocessor.blocks and bool(record.get("continued"))
                before = writer.rows
                for example in examples:
                    writer.add(example, joined=begun)
                    begun = preprocessor.blocks
                    progress.look()
                read, unused = read + 1, unused + (writer.rows == before)
        if not writer.rows:
            raise InputError(
                f"{source.name} holds records, but the objective {preprocessor.name!r} made no example of any of them. "
                "Are the texts empty or too short, or all longer than batch.length?"
            )
    if unused and not preprocessor.blocks:
        log.warning("%s: %s of %s records were left out: empty, or longer than batch.length.",
                    source.name, f"{unused:,}", f"{read:,}")  # fmt: skip
    return Table(folder)


def fingerprint_of(source: Source, preprocessor: Preprocessor) -> str:
    """Changes with anything that the examples depend on: the data, the objective and its codec, the format on disk."""
    parts = [VERSION, source.fingerprint(), preprocessor.identity()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


# ---- encoding


def _encoded(
    records: Iterator[Record], preprocessor: Preprocessor, workers: int
) -> Generator[tuple[Record, Iterable[Example]], None, None]:
    """Each record with its examples, in order."""
    groups = _grouped(records)
    if not workers:
        for group in groups:
            yield from zip(group, preprocessor.encode_batch(group), strict=True)
        return
    waiting: deque[tuple[list[Record], Future[list[list[Example]]]]] = deque()
    with worker_pool(workers, _begin, preprocessor) as pool:
        try:
            for group in groups:
                waiting.append((group, pool.submit(_work, group)))
                if len(waiting) > 2 * workers:
                    group, done = waiting.popleft()
                    yield from zip(group, done.result(), strict=True)
            for group, done in waiting:
                yield from zip(group, done.result(), strict=True)
        except BrokenExecutor:
            raise InputError(WORKER_DIED) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _grouped(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Records in groups of about as many characters as are worth encoding together."""
    group, size = list[Record](), 0
    for record in records:
        group.append(record)
        size += 64 + sum(len(value) for value in record.values() if isinstance(value, str | list))
        if size > TOGETHER:
            yield group
            group, size = [], 0
    if group:
        yield group


def _begin(preprocessor: Preprocessor) -> None:
    global _preprocessor
    _preprocessor = preprocessor


def _work(group: list[Record]) -> list[list[Example]]:
    assert _preprocessor is not None
    return [list(examples) for examples in _preprocessor.encode_batch(group)]


# ---- what is shown, and what is swept up


class _Progress:
    """A bar over the bytes read, on a terminal; elsewhere a line now and then. Nothing, if it is done soon."""

    def __init__(self, source: Source, writer: TableWriter, show: bool | None) -> None:
        self.total, self.writer = source.size, writer
        self.shown = show is not False
        self.read = 0
        self._next = time.monotonic() + (0 if show else PATIENCE)
        self._terminal = sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int) -> None:
        self.read += count
        self.look()

    def look(self) -> None:
        if not self.shown or time.monotonic() < self._next:
            return
        if self._terminal:
            self._draw()
            self._next = time.monotonic() + 0.1
        else:
            fraction_read = f"{self.read / self.total:.0%} of {self.total / 1e6:,.0f} MB, " if self.total else ""
            print(f"Preparing data: {fraction_read}{self.writer.rows:,} examples", file=sys.stderr, flush=True)
            self._next = time.monotonic() + EVERY

    def _draw(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("Preparing data", total=self.total)
            self._bar.start()
        self._bar.update(self._task, completed=self.read, description=f"Preparing data: {self.writer.rows:,} examples")


def _sweep(cache: Path) -> None:
    """Folders that a killed process left unfinished."""
    for part in cache.glob(".*.part"):
        with suppress(OSError):
            newest = max(path.stat().st_mtime for path in (part, *part.iterdir()))
            if time.time() - newest > FORGOTTEN:
                shutil.rmtree(part, ignore_errors=True)
