"""Examples on disk: columns of numbers, each row as long as it is, mapped into memory rather than read.

A folder holds
    manifest.json             what is there: version, fingerprint, columns, shards, a checksum of every other file
    <column>.<shard>.bin      the numbers of all rows, one after the other, in the smallest type that fits the shard
    <column>.lengths.bin      how many numbers each row has
    <column>.ends.bin         where each row ends, counted over all shards
Numbers are little-endian. A column of plain numbers has neither lengths nor ends. A folder appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from clearhead.errors import CheckpointError, ClearheadError, InputError
from clearhead.files import crc32, fsync, fsync_tree, temporary_path
from clearhead.train.data.types import Example

VERSION = 2
SHARD = 64 * 2**20  # a shard is closed when it holds so many numbers
BUFFER = 2**20  # so many are gathered before they are written
INTEGERS = [np.dtype(t) for t in ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<i8")]
FLOAT, OFFSET = np.dtype("<f4"), np.dtype("<i8")
MANIFEST = "manifest.json"


class Table:
    """Examples in a folder. `table[n]` is one of them, with arrays of its own."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            manifest = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
            if manifest["version"] != VERSION:
                raise CheckpointError(
                    f"{self.folder} was written by another version. Delete the folder to make it anew."
                )
            self.fingerprint: str = manifest["fingerprint"]
            self._rows: int = manifest["rows"]
            self.columns: dict[str, str] = manifest["columns"]  # name -> "rows" or "numbers"
            shards: list[dict[str, Any]] = manifest["shards"]
            self._first_rows = np.cumsum([0, *(shard["rows"] for shard in shards)]).tolist()
            # for each column, where its shards begin, and the numbers in them
            self._shard_starts: dict[str, list[int]] = {}
            self._values: dict[str, list[np.ndarray]] = {}
            for name in self.columns:
                parts = [shard["columns"][name] for shard in shards]
                self._shard_starts[name] = np.cumsum([0, *(part["count"] for part in parts)]).tolist()
                self._values[name] = [
                    self._mapped(f"{name}.{n:05}.bin", np.dtype(part["type"]), part["count"])
                    for n, part in enumerate(parts)
                ]
            ragged = [name for name, kind in self.columns.items() if kind == "rows"]
            self._lengths = {name: self._mapped(f"{name}.lengths.bin", OFFSET, self._rows) for name in ragged}
            self._ends = {name: self._mapped(f"{name}.ends.bin", OFFSET, self._rows) for name in ragged}
            self._checksums: dict[str, int] = manifest["sums"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, ClearheadError):
                raise
            raise CheckpointError(
                f"{self.folder} cannot be read ({error}). Delete the folder to make it anew."
            ) from error

    def __reduce__(self) -> tuple[type[Table], tuple[Path]]:
        return Table, (self.folder,)  # another process maps the files itself

    def check(self) -> Table:
        """Itself, if every file is what was written."""
        for name, checksum in self._checksums.items():
            if crc32(self.folder / name) != checksum:
                raise CheckpointError(f"{self.folder / name} is not what was written: it is damaged.")
        return self

    def _mapped(self, name: str, kind: np.dtype[Any], count: int) -> np.ndarray:
        path = self.folder / name
        size, expected = path.stat().st_size, count * kind.itemsize
        if size != expected:
            raise CheckpointError(
                f"{path} has {size} bytes, not {expected}: it is damaged. Delete the folder {self.folder}."
            )
        if not count:
            return np.zeros(0, kind)
        return np.asarray(np.memmap(path, kind, "r"))  # a plain array over the map: quicker to slice

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, n: int) -> Example:
        """An example as objectives take it: whole numbers in 64 bits, fractions in 32, free to be written to."""
        if not -self._rows <= n < self._rows:
            raise IndexError(f"There are {self._rows} examples, so none has the number {n}.")
        n %= self._rows
        example: Example = {}
        for name, kind in self.columns.items():
            if kind == "numbers":
                example[name] = self.view(name, n, n + 1)[0].item()
            else:
                stop = int(self._ends[name][n])
                values = self.view(name, stop - int(self._lengths[name][n]), stop)
                example[name] = values.astype(np.float32 if values.dtype == FLOAT else np.int64)
        return example

    def __iter__(self) -> Iterator[Example]:
        return (self[n] for n in range(len(self)))

    def view(self, column: str, start: int, stop: int) -> np.ndarray:
        """Numbers of a column, counted over all rows; a copy only where shards meet. Not to be written to."""
        starts, values = self._shard_starts[column], self._values[column]
        n = min(bisect_right(starts, start), len(values)) - 1  # the last shard that begins at `start` or before
        numbers = values[n][start - starts[n] : stop - starts[n]]
        while stop > starts[n + 1]:
            n += 1
            numbers = np.concatenate([numbers, values[n][: stop - starts[n]]])
        return numbers

    def lengths(self, column: str) -> np.ndarray:
        """How many numbers each row has, as a map of the file."""
        return self._lengths[column]

    def ends(self, column: str) -> np.ndarray:
        """Where each row ends, counted over all rows, as a map of the file."""
        return self._ends[column]

    def distinct(self, column: str) -> list[Any]:
        """The different numbers in a column, in order."""
        parts = [np.unique(values) for values in self._values[column]]
        return np.unique(np.concatenate(parts)).tolist() if parts else []

    def longest(self, column: str | None = None) -> np.ndarray:
        """For each example the length of this column, or of its longest: what batches of like lengths go by."""
        longest = np.ones(len(self), OFFSET)
        for lengths in self._lengths.values() if column is None else [self._lengths[column]]:
            np.maximum(longest, lengths, out=longest)
        return longest


class TableWriter:
    """Writes a table: `with TableWriter(folder, fingerprint) as writer: writer.add(example)`.

    The folder appears when the block is left without an error. If somebody else has made it meanwhile, theirs is kept.
    """

    def __init__(self, folder: str | os.PathLike[str], fingerprint: str = "", shard: int = SHARD) -> None:
        self.folder = Path(folder)
        self.fingerprint = fingerprint
        self.rows = 0
        self._shard_size = shard
        self._columns: dict[str, _Column] = {}
        self._shards: list[dict[str, Any]] = []
        self._rows_before = 0  # in the shards that are closed
        self._part = temporary_path(self.folder)

    def __enter__(self) -> TableWriter:
        try:
            self._part.mkdir(parents=True)
        except OSError as error:
            raise InputError(f"{self.folder.parent} cannot be written to: {error.strerror or error}.") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._finish()
        except OSError as failed:
            raise _unwritable(self.folder, failed) from failed
        finally:
            for column in self._columns.values():
                column.close()
            shutil.rmtree(self._part, ignore_errors=True)

    def add(self, example: Example, *, joined: bool = False) -> None:
        """One more row. `joined`: it goes on with the row before, rather than being one of its own."""
        try:
            self._add(example, joined)
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    def _add(self, example: Example, joined: bool) -> None:
        if not self._columns:
            self._columns = {name: _Column(self._part, name, np.ndim(value) > 0) for name, value in example.items()}
        if example.keys() != self._columns.keys():
            raise ValueError(f"An example has {sorted(example)}, those before it {sorted(self._columns)}.")
        if not joined or not self.rows:
            if sum(column.in_shard for column in self._columns.values()) >= self._shard_size:
                self._close_shard()
            self.rows += 1
            joined = False
        for name, value in example.items():
            self._columns[name].add(value, joined)

    def _close_shard(self) -> None:
        if self.rows == self._rows_before:
            return
        columns = {name: column.end_shard() for name, column in self._columns.items()}
        self._shards.append({"rows": self.rows - self._rows_before, "columns": columns})
        self._rows_before = self.rows

    def _finish(self) -> None:
        self._close_shard()
        for column in self._columns.values():
            column.finish()
        kinds = {name: "rows" if column.ragged else "numbers" for name, column in self._columns.items()}
        manifest = {
            "version": VERSION, "fingerprint": self.fingerprint, "rows": self.rows,
            "columns": kinds, "shards": self._shards, "sums": {p.name: crc32(p) for p in sorted(self._part.iterdir())},
        }  # fmt: skip
        (self._part / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        fsync_tree(self._part)
        publish(self._part, self.folder)


class _Column:
    """The files of one column while they are written."""

    def __init__(self, folder: Path, name: str, ragged: bool) -> None:
        if not name.isidentifier():
            raise ValueError(f"{name!r} cannot be the name of a column: it becomes the name of a file.")
        self.folder, self.name, self.ragged = folder, name, ragged
        self.in_shard = 0  # numbers
        self._buffered: list[np.ndarray] = []
        self._count = 0  # of the numbers that wait
        self._end = 0  # over all shards
        self._lengths: list[int] = []
        self._pending = 0  # the length of the last row, which may still grow
        self._has_row = False
        self._shard = 0
        self._type: np.dtype[Any] | None = None
        self._values: IO[bytes] | None = None
        self._index_files = (
            [(folder / f"{name}.{what}.bin").open("wb") for what in ("lengths", "ends")] if ragged else []
        )

    def add(self, value: Any, joined: bool) -> None:
        values = np.atleast_1d(np.asarray(value))
        if values.ndim != 1 or (np.ndim(value) > 0) != self.ragged:
            raise ValueError(f"The column {self.name!r} holds {'rows' if self.ragged else 'single numbers'} only.")
        if joined and not self.ragged:
            return  # a row that goes on keeps its number
        self._buffered.append(values)
        self._count += len(values)
        self.in_shard += len(values)
        if self.ragged:
            if self._has_row and not joined:
                self._lengths.append(self._pending)
            self._pending = len(values) + (self._pending if joined else 0)
            self._has_row = True
        if self._count >= BUFFER or len(self._lengths) >= BUFFER:
            self._write()

    def _write(self) -> None:
        """What waits goes to the files; the shard's type grows if it must."""
        filled = [part for part in self._buffered if len(part)]
        if filled:
            values = np.concatenate(filled)
            self._widen(_type_for(values, self._type))
            assert self._values is not None
            self._values.write(values.astype(self._type, copy=False).tobytes())
        if self._lengths:
            lengths = np.array(self._lengths, OFFSET)
            ends = self._end + np.cumsum(lengths)
            self._end = int(ends[-1])
            for file, numbers in zip(self._index_files, (lengths, ends), strict=True):
                file.write(numbers.tobytes())
        self._buffered, self._count, self._lengths = [], 0, []

    def _widen(self, kind: np.dtype[Any]) -> None:
        """Open the shard's file, or write it anew in a wider type, a piece at a time."""
        path = self._path()
        if self._values is None:
            self._values = path.open("wb")
        elif self._type is not None and kind != self._type:
            self._values.close()
            narrow = path.with_suffix(".narrow")
            path.rename(narrow)
            self._values = path.open("wb")
            with narrow.open("rb") as old:
                while data := old.read(BUFFER * self._type.itemsize):
                    self._values.write(np.frombuffer(data, self._type).astype(kind).tobytes())
            narrow.unlink()
        self._type = kind

    def end_shard(self) -> dict[str, Any]:
        self._write()
        if self._values is None:  # rows without a number in them
            self._widen(self._type or INTEGERS[0])
        assert self._values is not None and self._type is not None
        self._values.close()
        shard = {"type": self._type.str, "count": self.in_shard}
        self._values, self._shard, self.in_shard = None, self._shard + 1, 0
        return shard

    def finish(self) -> None:
        if self._has_row:
            self._lengths.append(self._pending)
        self._write()
        self.close()

    def close(self) -> None:
        for file in (*self._index_files, *([self._values] if self._values else [])):
            with suppress(OSError):  # a full disk was reported already
                file.close()

    def _path(self) -> Path:
        return self.folder / f"{self.name}.{self._shard:05}.bin"


def _type_for(values: np.ndarray, current: np.dtype[Any] | None) -> np.dtype[Any]:
    """The smallest type for these numbers and for all that the type before could hold."""
    if values.dtype.kind == "f" or current == FLOAT:
        return FLOAT
    if values.dtype.kind not in "iub":
        raise ValueError(f"A table holds numbers, not {values.dtype}.")
    low, high = int(values.min()), int(values.max())
    for kind in INTEGERS:
        bounds = np.iinfo(kind)
        if bounds.min <= low and high <= bounds.max and (current is None or np.can_cast(current, kind)):
            return kind
    raise ValueError(f"A number between {low} and {high} does not fit into 64 bits.")


def publish(part: Path, folder: Path) -> None:
    """Put a finished folder in its place in one move. One that is there and whole stays; a broken one goes."""
    try:
        part.rename(folder)
        fsync(folder.parent)
    except OSError:
        if not folder.exists():
            raise
        try:
            Table(folder).check()
        except CheckpointError:
            broken = part.with_suffix(".broken.part")
            folder.rename(broken)
            part.rename(folder)
            shutil.rmtree(broken, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{folder} cannot be written: {error.strerror or error}. Make room, or choose another place (data.cache=…)."
    )
