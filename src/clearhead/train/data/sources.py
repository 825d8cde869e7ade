"""From what a recipe says about data to records, one after the other: files of every usual kind, and public data sets.

A source can be read any number of times, never needs more memory than a few records, and knows a fingerprint of what
is in it. A record is a dict with the columns and `where`, the file and line it came from.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clearhead.errors import InputError, NothingToRead, did_you_mean
from clearhead.text.text_files import Advance, characters, lines
from clearhead.train.data.file_paths import file_digest, find_files, format_of, listed
from clearhead.train.data.formats import READERS, Lines, Row, pieces
from clearhead.train.data.source_options import FORMATS, SourceOptions, check_use, read_options
from clearhead.train.data.types import Record


def open_source(spec: Any, folder: str | os.PathLike[str] | None = None, **defaults: Any) -> Source:
    """The source that a recipe describes: a path, a list of paths, `hf:name`, or a table of `SourceOptions`.

    `folder` is where relative paths begin. `defaults` are options that hold where the description is silent.
    """
    options, own = read_options(spec, defaults)
    where = Path(folder) if folder is not None else Path()
    if options.dataset is not None:
        return PublicSource(options)
    if options.source is not None:
        return ParallelSource(options, find_files(options.source, where), find_files(options.target, where))
    if options.format == "pictures":
        from clearhead.train.data.pictures import PictureSource  # a source itself

        return PictureSource(options, where)
    files = find_files(options.path, where)
    if options.format == "parallel":
        if len(files) != 2:
            raise InputError(f"Parallel data is two files, the sources and the targets; here are {len(files)}.")
        return ParallelSource(options, files[:1], files[1:])
    source = FileSource(options, files)
    check_use(own, source.format)
    return source


class Source:
    """Records from somewhere; a subclass says from where."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    @property
    def name(self) -> str:
        """What to call it in a message."""
        raise NotImplementedError

    @property
    def size(self) -> int | None:
        """How many bytes there are to read, where that is known."""
        return None

    @property
    def may_have_header(self) -> bool:
        return False

    def rows(self, advance: Advance) -> Iterator[tuple[str, Row]]:
        """Everything there is, with its place."""
        raise NotImplementedError

    def contents(self, digest: Any) -> None:
        """Tell the digest what is in the source."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """A number for the contents and for how they are read. Names and places of files do not enter."""
        digest = hashlib.sha256()
        locations = ("path", "source", "target")
        digest.update(json.dumps({k: v for k, v in asdict(self.options).items() if k not in locations}).encode())
        self.contents(digest)
        return digest.hexdigest()

    def records(self, advance: Advance | None = None) -> Iterator[Record]:
        """Every record, from the first. `advance` hears how many bytes were read since it was last called.

        A long text comes in several records: `unfinished` where the next one goes on with it, `continued` where it
        goes on with the one before.
        """
        options, count, number, is_included = self.options, 0, -1, True
        for where, row in self.rows(advance or (lambda _: None)):
            continued = isinstance(row, dict) and row.get("continued")
            if not continued:
                if count == options.limit:
                    return
                number += 1
                is_included = self._is_in_part(number)
            if not is_included:
                continue
            record = self._named(row, where)
            if not continued:
                is_included = not (options.skip_empty and self._is_empty(record))
                count += is_included
            if is_included:
                yield record | {"where": where}
        if not count:
            raise NothingToRead(f"There is nothing to read in {self.name}{self._why_nothing(number + 1)}.")

    def _why_nothing(self, rows: int) -> str:
        if rows == 0:
            return ": it is empty, or has a header alone" if self.may_have_header else ": it is empty"
        if self.options.part is not None:
            return (
                f": none of its {rows} records fell into the part {self.options.part!r} "
                f"(validation_fraction: {self.options.validation_fraction}). Change "
                "data.validation_fraction, give more records, or name other data to measure on (data.valid)"
            )
        return f": all of its {rows} records are empty"

    def _is_in_part(self, number: int) -> bool:
        """Whether the record with this number is in the part that is asked for."""
        if self.options.part is None:
            return True
        return (_hash_fraction(number) < self.options.validation_fraction) == (self.options.part == "valid")

    def _named(self, row: Row, where: str) -> dict[str, Any]:
        """The row under our names; columns that the recipe does not name keep their own."""
        columns = self.options.columns
        if isinstance(row, list):
            if not columns:
                raise InputError(f"{where} has no column names. Say the positions: columns: {{text: 0, label: 1}}.")
            row = dict(enumerate(row))  # type: ignore[arg-type]
            return {ours: self._column(row, ours, theirs, where) for ours, theirs in columns.items()}
        if not columns:
            return row
        renamed = {ours: self._column(row, ours, theirs, where) for ours, theirs in columns.items()}
        return {name: value for name, value in row.items() if name not in columns.values()} | renamed

    @staticmethod
    def _column(row: dict[Any, Any], ours: str, theirs: str | int, where: str) -> Any:
        if theirs in row:
            return row[theirs]
        names = list(row)
        if isinstance(theirs, int) and -len(names) <= theirs < len(names):
            return row[names[theirs]]
        shown = ", ".join(map(str, names))
        if isinstance(theirs, int):
            raise InputError(f"{where} has {len(names)} columns ({shown}); columns.{ours} asks for number {theirs}.")
        raise InputError(
            f"{where} has no column {theirs!r}, which columns.{ours} asks for.{did_you_mean(theirs, map(str, names))} "
            f"It has: {shown}."
        )

    def _is_empty(self, record: dict[str, Any]) -> bool:
        return all(value is None or (isinstance(value, str) and not value.strip()) for value in record.values())


class FileSource(Source):
    """One file, or several of one kind."""

    def __init__(self, options: SourceOptions, files: list[Path]) -> None:
        super().__init__(options)
        self.files = files
        self.format = FORMATS[options.format] if options.format else format_of(files)
        self._tail: int | None = None

    @property
    def name(self) -> str:
        return listed(self.files)

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    @property
    def may_have_header(self) -> bool:
        return self.format in ("csv", "tsv")

    def contents(self, digest: Any) -> None:
        digest.update(self.format.encode())
        for path in self.files:
            digest.update(file_digest(path))

    def rows(self, advance: Advance) -> Iterator[tuple[str, Row]]:
        for path in self.files:
            rows = (
                self._part_of(path, advance) if self._is_one_text else READERS[self.format](path, self.options, advance)
            )
            for line, row in rows:
                yield f"{path}:{line}", row

    def _named(self, row: Row, where: str) -> dict[str, Any]:
        if self.format == "conll":  # its reader has to know the names
            assert isinstance(row, dict)
            return row
        return super()._named(row, where)

    # A single document has no records to choose from: its end is held out.

    @property
    def _is_one_text(self) -> bool:
        single_file = self.format == "text" and self.options.documents == "file" and len(self.files) == 1
        return single_file and self.options.part is not None

    def _is_in_part(self, number: int) -> bool:
        return self._is_one_text or super()._is_in_part(number)

    def _part_of(self, path: Path, advance: Advance) -> Lines:
        cut = self._tail_begins(path)
        position, line, tail = 0, 1, list[str]()

        def before() -> Iterator[str]:
            seen = 0
            for block in characters(path, self.options.encoding, advance):
                yield block[: cut - seen]
                seen += len(block)
                if seen >= cut:
                    return

        if self.options.part == "train":
            return pieces(before(), "file")
        blocks = characters(path, self.options.encoding, advance)
        for block in blocks:
            if position + len(block) > cut:
                line += block.count("\n", 0, cut - position)
                tail = [block[cut - position :]]
                break
            position += len(block)
            line += block.count("\n")
        return pieces((text for source in (tail, blocks) for text in source), "file", line)

    def _tail_begins(self, path: Path) -> int:
        """The character at which the held-out end begins: where a line does, if one does nearby."""
        if self._tail is None:
            total = sum(map(len, characters(path, self.options.encoding, lambda _: None)))
            cut = total - round(total * self.options.validation_fraction)
            seen, near = 0, ""
            for block in characters(path, self.options.encoding, lambda _: None):
                near += block[max(cut - seen, 0) : max(cut + 4096 - seen, 0)]
                seen += len(block)
                if seen >= cut + 4096:
                    break
            self._tail = min(cut + near.find("\n") + 1, total - 1)
        return self._tail


class ParallelSource(Source):
    """Two files, or two rows of files, whose lines belong together."""

    def __init__(self, options: SourceOptions, sources: list[Path], targets: list[Path]) -> None:
        super().__init__(options)
        if len(sources) != len(targets):
            raise InputError(f"There are {len(sources)} files of sources, but {len(targets)} of targets.")
        self.pairs = list(zip(sources, targets, strict=True))

    @property
    def name(self) -> str:
        return listed([path for pair in self.pairs for path in pair])

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for pair in self.pairs for path in pair)

    def contents(self, digest: Any) -> None:
        for pair in self.pairs:
            for path in pair:
                digest.update(file_digest(path))

    def rows(self, advance: Advance) -> Iterator[tuple[str, Row]]:
        for source, target in self.pairs:
            sources, targets = (lines(path, self.options.encoding, advance) for path in (source, target))
            end = (0, None)
            count = 0
            while True:
                (number, text), (_, other) = next(sources, end), next(targets, end)
                if text is None or other is None:
                    break
                count = number
                yield f"{source}:{number}", {"source": text, "target": other}
            if text is not None or other is not None:
                counts = [
                    count + (line is not None) + sum(1 for _ in rest)
                    for line, rest in ((text, sources), (other, targets))
                ]
                raise InputError(
                    f"{source} has {counts[0]} lines, but {target} has {counts[1]}. Line by line they must belong "
                    "together; find where they part."
                )

    def _is_empty(self, record: dict[str, Any]) -> bool:
        return any(isinstance(value, str) and not value.strip() for value in record.values())


class RecordSource(Source):
    """Records that are in memory already."""

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        super().__init__(SourceOptions())
        self.list = [dict(record) for record in records]

    @property
    def name(self) -> str:
        return "the list of records"

    def contents(self, digest: Any) -> None:
        digest.update(pickle.dumps(self.list))

    def rows(self, advance: Advance) -> Iterator[tuple[str, Row]]:
        return ((f"Record {number}", record) for number, record in enumerate(self.list))


class PublicSource(Source):
    """A data set from the hub, streamed by the `datasets` package."""

    @property
    def name(self) -> str:
        config = f"/{self.options.config}" if self.options.config else ""
        return f"hf:{self.options.dataset}{config}[{self.options.split}]"

    def rows(self, advance: Advance) -> Iterator[tuple[str, Row]]:
        for number, row in enumerate(self._open(), 1):
            answers = row.get("answers")
            if isinstance(answers, dict) and {"text", "answer_start"} <= answers.keys():  # as SQuAD's file has them
                both = zip(answers["text"], answers["answer_start"], strict=True)
                row = {**row, "answers": [{"text": text, "answer_start": start} for text, start in both]}
            yield f"{self.name}:{number}", dict(row)

    def contents(self, digest: Any) -> None:
        revision = self.options.revision or self._newest()
        digest.update(f"{self.name} {revision}".encode())

    def _open(self) -> Any:
        options = self.options
        try:
            datasets = importlib.import_module("datasets")
        except ImportError as error:
            raise InputError(
                f"{self.name} needs the datasets package, which is not installed: pip install datasets. "
                "Or download the data, and give the path of its files."
            ) from error
        try:
            return datasets.load_dataset(
                options.dataset, options.config, split=options.split, revision=options.revision, streaming=True
            )
        except Exception as error:  # the package raises errors of many kinds: no network, no such name, no such split
            raise InputError(f"{self.name} cannot be opened: {error}") from error

    def _newest(self) -> str:
        """The commit that the hub has now; without a network, what is there counts as unchanged."""
        from huggingface_hub import HfApi

        try:
            return str(HfApi().dataset_info(str(self.options.dataset)).sha)
        except Exception:  # offline, or not on the hub
            return "unknown"


def _hash_fraction(number: int) -> float:
    """A fraction from 0 to 1 that depends on the number alone, as good as random (splitmix64, Steele et al. 2014)."""
    word = (1 << 64) - 1
    z = (number + 1) * 0x9E3779B97F4A7C15 & word
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & word
    z = (z ^ z >> 27) * 0x94D049BB133111EB & word
    return (z ^ z >> 31) / 2**64
