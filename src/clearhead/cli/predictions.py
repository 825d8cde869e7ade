"""The file of predictions: a row for each row of the input, whole or not there, and gone on with after a stop.

Results are kept in FILE.part as they come: a line that says which job it is, then one for each row, each with its
checksum. When all are there, the rows of the input are written with them to FILE, and the part is removed. Run again
after a stop, a job goes on behind the last whole line, if it is the same: model, input and options.
"""

from __future__ import annotations

import csv
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from clearhead.cli.texts import FileArguments, TextRows
from clearhead.errors import InputError
from clearhead.files import atomic_paths, lock

JSON_LINES = (".jsonl", ".ndjson")
ENDINGS = (".csv", ".tsv", *JSON_LINES, ".txt")
Cells = Callable[[Any], dict[str, Any]]  # a row's result -> its columns
_CHANGED = {"verb": "another verb", "weights": "another model", "input": "other rows", "options": "other options"}


def check_out(files: FileArguments, rows: TextRows) -> None:
    """Whether the file can be written, before anything is computed."""
    if files.out is None:
        return
    out, target = files.out, files.out.expanduser()
    if target.suffix.lower() not in ENDINGS:
        raise InputError(f"Results are written to a file that ends in {', '.join(ENDINGS)}, not to {out.name!r}.")
    if not target.parent.is_dir():
        raise InputError(f"There is no folder {target.parent}. Make it first, or write elsewhere.")
    if rows.file is not None and target.exists() and target.samefile(rows.file.path):
        raise InputError(f"{out} is the file that is read. Write the results to another.")
    if target.is_dir():
        raise InputError(f"{out} is a folder. Give the name of a file in it.")
    if target.exists() and not files.overwrite:
        raise InputError(f"{out} is there already. Choose another name, or add --overwrite to replace it.")


class PredictionFile:
    """One job's file.

    job    what the results depend on: verb, weights, input, options
    done   how many rows have their results already
    """

    def __init__(self, target: Path, job: Mapping[str, Any], file: BinaryIO, done: int) -> None:
        self.target, self.job, self.done = target, job, done
        self._file = file

    @classmethod
    @contextmanager
    def open(cls, out: Path, job: Mapping[str, Any], overwrite: bool = False) -> Iterator[PredictionFile]:
        """Go on with what is there of this job, or begin."""
        target = out.expanduser()
        part = _part(target)
        try:
            file = part.open("a+b")
        except OSError as error:
            raise InputError(f"{part} cannot be written: {error.strerror or error}.") from None
        with file:
            _lock(file, part)
            done = _done(file, part, job, overwrite)
            if done is None:
                done = 0
                file.truncate(0)
                file.write(_line(job))
                file.flush()
            yield cls(target, job, file, done)

    def append(self, results: Iterable[Any]) -> None:
        """Results of the next rows. They are kept when this returns."""
        for result in results:
            self._file.write(_line(result))
            self.done += 1
        self._file.flush()

    def results(self) -> Iterator[Any]:
        with _part(self.target).open("rb") as file:
            next(file)
            yield from map(_data, file)

    def finish(self, rows: TextRows, cells: Cells) -> list[str]:
        """Every row with its result, in place of the part. The names of what was added, a plain text's one alone."""
        rows.check_unchanged()
        added = dict.fromkeys(name for result in self.results() if result is not None for name in cells(result))
        names = {name: f"predicted_{name}" if name in rows.columns else name for name in added}
        with atomic_paths(self.target) as [path], path.open("w", encoding="utf-8", newline="") as file:
            pairs = zip(rows.rows(), self.results(), strict=True)
            full = ((row, {} if result is None else cells(result)) for row, result in pairs)
            renamed = (
                (row, {names[name]: value for name, value in result_cells.items()}) for row, result_cells in full
            )
            _write(file, self.target.suffix.lower(), [*rows.columns, *names.values()], renamed)
        _part(self.target).unlink(missing_ok=True)
        return list(names.values())[: 1 if self.target.suffix.lower() == ".txt" else None]


def _write(
    file: TextIO, ending: str, columns: list[str], rows: Iterable[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    if ending in JSON_LINES:
        for row, result_cells in rows:
            file.write(json.dumps(row | result_cells, ensure_ascii=False) + "\n")
    elif ending == ".txt":  # the result alone, a line each
        for _, result_cells in rows:
            file.write(" ".join(_cell(next(iter(result_cells.values()), "")).split()) + "\n")
    else:
        write_row = csv.writer(file, lineterminator="\n").writerow if ending == ".csv" else _tab_separated(file)
        write_row(columns)
        for row, result_cells in rows:
            cells = row | result_cells
            write_row([_cell(cells.get(name)) for name in columns])


def _tab_separated(file: TextIO) -> Callable[[list[str]], Any]:
    """Quotes mean nothing in it, as in the tables that are read here; so a cell can hold no tab and no new line."""
    return lambda cells: file.write("\t".join(" ".join(re.split(r"[\t\r\n]+", cell)) for cell in cells) + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- the part


def _part(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _line(data: Any) -> bytes:
    """With its checksum in front."""
    text = json.dumps(data, ensure_ascii=False).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _data(line: bytes) -> Any:
    """What a line holds; ValueError where it is not whole."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        raise ValueError("damaged")
    return json.loads(text)


def _lock(file: BinaryIO, part: Path) -> None:
    """Two processes must not write to one file."""
    if not lock(file):
        raise InputError(f"Another process is writing to {part}. Wait for it, or choose another --out.")


def _done(file: BinaryIO, part: Path, job: Mapping[str, Any], overwrite: bool) -> int | None:
    """How many rows of this job are there, the file standing behind the last; None: there is nothing to go on with."""
    size = file.seek(0, os.SEEK_END)
    if not size:
        return None
    file.seek(0)
    try:
        header = _data(file.readline())
    except ValueError:
        header = None
    if not isinstance(header, dict) or "input" not in header:
        if overwrite:
            return None
        raise InputError(f"{part} is in the way, and not of a job that was stopped. Move it, or add --overwrite.")
    changed = [_CHANGED[key] for key in _CHANGED if header.get(key) != job[key]]
    if changed and overwrite:
        return None
    if changed:
        raise InputError(
            f"{part} was begun with {' and '.join(changed)}: going on would mix two jobs. Choose another --out, "
            "or add --overwrite to begin again."
        )
    end, done = file.tell(), 0
    while (line := file.readline()).endswith(b"\n"):
        try:
            _data(line)
        except ValueError:
            break  # what stands behind a damaged line cannot be told to be this job's
        end, done = file.tell(), done + 1
    file.seek(end)
    file.truncate()  # the half of a line, or what is damaged
    return done
