"""One verb over many texts: in chunks, with progress, stopped and gone on with; printed, or written to a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from clearhead.cli.predictions import Cells, PredictionFile
from clearhead.cli.progress import progress
from clearhead.cli.style import note, out, print_json
from clearhead.cli.texts import FileArguments, TextRows
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.pipeline import TextPipeline

Read = tuple[str, ...]  # what is read of one row: a text, or two; () where there is none
Show = Callable[[Read, Any, bool], None]  # what was read, its result, whether it is one of many
FIRST_CHUNK, LARGEST_CHUNK = 32, 2048  # texts
CHUNK_SECONDS = 3.0  # about as much as an interrupt may cost
INTERRUPTED = 130


@dataclass(frozen=True)
class BatchJob:
    """
    doing     what it does, in a word, for the bar
    predict   what is read of some rows, and their numbers from 0 -> a result for each
    plain     a result -> the same as plain data, which is what is printed as JSON and kept in files
    options   what the results depend on beside the model and the rows
    """

    verb: str
    doing: str
    model: str
    pipe: TextPipeline
    rows: TextRows
    predict: Callable[[list[Read], list[int]], list[Any]]
    plain: Callable[[Any], Any]
    options: dict[str, Any]
    first_chunk: int = FIRST_CHUNK

    def run(self, files: FileArguments, as_json: bool, cells: Cells, full: Cells, show: Show) -> None:
        """Into a file, printed as JSON, or shown in the terminal as it comes.

        cells, full   what a row of a file says of a result, and what JSON does
        """
        if files.out is not None:
            self.write(files, cells, as_json)
        elif as_json:
            results, stopped = self.collect()
            entries = [self._entry(read, result, full) for read, result in results]
            print_json({"model": self.model} | (entries[0] if self.rows.is_one and entries else {"results": entries}))
            if stopped:
                raise typer.Exit(INTERRUPTED)
        else:
            self._show(show)

    def _entry(self, read: Read, result: Any, full: Cells) -> dict[str, Any]:
        texts = dict(zip(self.rows.meanings, read or [""] * len(self.rows.meanings), strict=True))
        return texts if result is None else texts | full(self.plain(result))

    def chunks(self, done: int = 0, quiet: bool = False) -> Iterator[list[tuple[Read, Any]]]:
        """(what was read, its result) from row `done` on. A row without text has the result None.

        A chunk takes a few seconds: large enough that texts of one length share a batch, small enough to stop.
        """
        inputs, size = islice(self.rows.inputs(), done, None), min(self.first_chunk, LARGEST_CHUNK)
        with progress(quiet) as watch, _one_note_for_all(self.rows.count):
            while chunk := list(islice(inputs, size)):
                watch(self.doing, done, self.rows.count)
                began = time.monotonic()
                numbers = [done + n for n, read in enumerate(chunk) if read]
                results = iter(self._predicted([read for read in chunk if read], numbers) if numbers else [])
                yield [(read, next(results) if read else None) for read in chunk]
                done += len(chunk)
                watch(self.doing, done, self.rows.count)
                faster = CHUNK_SECONDS / max(time.monotonic() - began, 1e-3)
                size = max(1, min(LARGEST_CHUNK, round(size * max(0.25, min(2.0, faster)))))

    def _predicted(self, read: list[Read], numbers: list[int]) -> list[Any]:
        """An error says which rows it is about."""
        try:
            return self.predict(read, numbers)
        except InputError as error:
            if self.rows.count == 1:
                raise
            which = f"row {numbers[0] + 1}" if len(numbers) == 1 else f"rows {numbers[0] + 1} to {numbers[-1] + 1}"
            raise InputError(f"{error} (This is about {which} of {self.rows.name}.)") from error

    def collect(self) -> tuple[list[tuple[Read, Any]], bool]:
        """Everything, or what there was when it was interrupted; and whether it was."""
        results: list[tuple[Read, Any]] = []
        try:
            for chunk in self.chunks():
                results += chunk
        except KeyboardInterrupt:
            note(f"Stopped after {len(results):,} of {self.rows.count:,}.")
            return results, True
        return results, False

    def _show(self, show: Show) -> None:
        done, many = 0, self.rows.count > 1
        try:
            for chunk in self.chunks(quiet=out().is_terminal):
                for read, result in chunk:
                    if result is not None:
                        show(read, result, many)
                    done += 1
        except KeyboardInterrupt:
            note(f"Stopped after {done:,} of {self.rows.count:,}.")
            raise typer.Exit(INTERRUPTED) from None

    def write(self, files: FileArguments, cells: Cells, as_json: bool) -> None:
        """A row for each, into a file."""
        from clearhead.hub.fingerprint import fingerprint
        from clearhead.text import Tokenizer

        assert files.out is not None
        tokenizer = self.pipe.tokenizer if isinstance(self.pipe.codec, Tokenizer) else None
        weights = fingerprint(self.pipe.model, tokenizer, getattr(self.pipe, "sentence", None))
        job = {"verb": self.verb, "model": self.model, "weights": weights, "input": self.rows.digest,
               "options": self.options | {"columns": list(self.rows.chosen)}}  # fmt: skip
        count = self.rows.count
        with PredictionFile.open(files.out, job, files.overwrite) as file:
            if file.done:
                note(f"Going on after {file.done:,} of {count:,} rows.")
            try:
                for chunk in self.chunks(file.done):
                    file.append(None if result is None else self.plain(result) for _, result in chunk)
            except KeyboardInterrupt:
                note(f"Stopped after {file.done:,} of {count:,} rows. The same command goes on from there.")
                raise typer.Exit(INTERRUPTED) from None
            empty = sum(result is None for result in file.results())
            added = file.finish(self.rows, cells)
        if as_json:
            print_json({"model": self.model, "out": str(files.out), "rows": count, "empty": empty, "columns": added})
        else:
            rows = "One row" if count == 1 else f"{count:,} rows"
            note(f"{rows} in {files.out}{',' if count == 1 else ', each'} with {', '.join(added) or 'nothing'}.")
        if empty:
            note(f"{empty:,} without text, and so without a result.")


@contextmanager
def _one_note_for_all(count: int) -> Iterator[None]:
    """What is said of the texts of a chunk, that some were cut, is said once for all of them."""
    logger, counts = logging.getLogger("clearhead"), dict[str, list[Any]]()

    def gather(record: logging.LogRecord) -> bool:
        if not (isinstance(record.args, tuple) and str(record.msg).startswith("%s of %s texts")):
            return True
        some, _, *rest = record.args
        counts[record.msg] = [counts.get(record.msg, [0])[0] + some, count, *rest]
        return False

    logger.addFilter(gather)
    try:
        yield
    finally:
        logger.removeFilter(gather)
        for message, values in counts.items():
            logger.warning(message, *values)
