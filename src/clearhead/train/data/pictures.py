"""Pictures with captions: a folder with a text beside each picture, or a table with their paths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from clearhead import hub
from clearhead.errors import InputError
from clearhead.image import pictures_in
from clearhead.text.text_files import Advance
from clearhead.train.data.file_paths import file_digest, listed
from clearhead.train.data.formats import ENDINGS, Row
from clearhead.train.data.source_options import SourceOptions
from clearhead.train.data.sources import FileSource, Source
from clearhead.train.data.types import Record

TABLES = ("captions", "metadata")  # what a table inside a folder of pictures is called


class PictureSource(Source):
    """Records with `image`, a whole path, and `caption`. A changed picture is changed data: its content counts."""

    def __init__(self, options: SourceOptions, folder: Path) -> None:
        super().__init__(options)
        given = options.path if isinstance(options.path, list | tuple) else [options.path]
        self.places = [self._place(item, folder) for item in given]
        self._fingerprint: str | None = None

    @staticmethod
    def _place(item: Any, folder: Path) -> Path:
        """A folder of pictures, or a table."""
        if not isinstance(item, str | os.PathLike):
            raise InputError(f"A path must be a text, but here is {item!r}.")
        path = folder / hub.user_path(item)
        if not path.exists():
            raise InputError(f"{path} does not exist. Give a folder of pictures, or a table with their paths.")
        if path.is_dir():
            tables = [p for p in sorted(path.iterdir()) if p.stem in TABLES and _is_table(p)]
            if tables:
                return tables[0]
            if not pictures_in(path):
                raise InputError(f"There are no pictures in {path}.")
        elif not _is_table(path):
            raise InputError(
                f"{path} is neither a folder of pictures nor a table (.csv, .tsv, .jsonl) with their paths."
            )
        return path

    @property
    def name(self) -> str:
        return listed(self.places)

    def contents(self, digest: Any) -> None:
        for place in self.places:
            digest.update(file_digest(place) if place.is_file() else b"folder")
        for _, row in self.rows(lambda _: None):
            record: Any = self._named(row, "")
            digest.update(str(record.get("caption")).encode())
            image = record.get("image")
            if isinstance(image, str) and Path(image).is_file():
                digest.update(file_digest(Path(image)))

    def fingerprint(self) -> str:
        if self._fingerprint is None:  # every picture is read for it
            self._fingerprint = super().fingerprint()
        return self._fingerprint

    def rows(self, advance: Advance) -> Iterator[tuple[str, Row]]:
        for place in self.places:
            yield from _folder(place) if place.is_dir() else self._table(place, advance)

    def _table(self, path: Path, advance: Advance) -> Iterator[tuple[str, Row]]:
        source = FileSource(replace(self.options, path=str(path), format=None), [path])
        column = self.options.columns.get("image", "image")
        for where, row in source.rows(advance):
            if isinstance(row, dict) and isinstance(value := row.get(str(column)), str):
                row = row | {str(column): _beside(path, value)}
            elif isinstance(row, list) and isinstance(column, int) and 0 <= column < len(row):
                row = [_beside(path, cell) if n == column else cell for n, cell in enumerate(row)]
            yield where, row

    def records(self, advance: Advance | None = None) -> Iterator[Record]:
        for record in super().records(advance):
            image = record.get("image")
            if isinstance(image, str) and not Path(image).is_file():
                raise InputError(f"{record['where']} names the picture {image}, which is not there.")
            yield record


def _is_table(path: Path) -> bool:
    return ENDINGS.get(path.suffix.lower()) in ("csv", "tsv", "jsonl") and path.is_file()


def _beside(table: Path, image: str) -> str:
    """A path in a table begins where the table lies."""
    return str(table.parent / Path(image).expanduser())


def _folder(folder: Path) -> Iterator[tuple[str, Row]]:
    missing = []
    for picture in pictures_in(folder):
        text = picture.with_suffix(".txt")
        if not text.is_file():
            missing.append(picture)
            continue
        caption = text.read_text(encoding="utf-8-sig", errors="replace").strip()
        yield str(picture), {"image": str(picture), "caption": " ".join(caption.split())}
    if missing:
        raise InputError(
            f"{len(missing)} pictures in {folder} have no caption beside them: {listed(missing)}. Write a text file "
            f"of the same name, such as {missing[0].with_suffix('.txt').name}."
        )
