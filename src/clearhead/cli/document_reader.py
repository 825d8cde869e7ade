"""The documents of a corpus: text files, rows of JSONL and tables, public data sets, each read as in training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.passages import DOCUMENTS
from clearhead.cli.style import note
from clearhead.errors import InputError, NothingToRead, did_you_mean

if TYPE_CHECKING:
    from clearhead.retrieval import Document
    from clearhead.train.data import Source

_PANEL = "How the texts are read"


@dataclass(frozen=True)
class ReadingOptions:
    """What may be said about the files of a corpus."""

    documents: Annotated[
        str,
        typer.Option(help="Where a text file is cut into documents: file (not at all), lines, blank-lines, or the "
                     "words between two.", rich_help_panel=_PANEL),
    ] = "file"  # fmt: skip
    column: Annotated[
        str,
        typer.Option(help="The column of a table, JSONL file or data set with the text.", metavar="NAME",
                     rich_help_panel=_PANEL),
    ] = "text"  # fmt: skip
    id_column: Annotated[
        str | None,
        typer.Option(help="The column with the document's name; default: its file and line.", metavar="NAME",
                     rich_help_panel=_PANEL),
    ] = None  # fmt: skip
    split: Annotated[str, typer.Option(help="Of a data set (hf:NAME).", rich_help_panel=_PANEL)] = "train"
    encoding: Annotated[str, typer.Option(help="How the files are written.", rich_help_panel=_PANEL)] = "utf-8"


@dataclass(frozen=True)
class DocumentReader:
    """Sources with what a document is in each of them; opened, not yet read."""

    sources: list[tuple[str, Source]]
    options: ReadingOptions

    @classmethod
    def open(cls, names: list[str], options: ReadingOptions) -> DocumentReader:
        """names: files, folders, patterns, or hf:NAME for a public data set"""
        from clearhead.train.data import open_source
        from clearhead.train.data.file_paths import find_files

        sources: dict[str, Source] = {}
        for name in names:
            if name.startswith("hf:"):
                source = open_source({"path": name, "split": options.split})
                sources[source.name] = source
                continue
            for path in find_files(_documents_of(name) or name, Path()):
                plain = {"format": "text"} if path.suffix.lower() in DOCUMENTS else {}
                sources[str(path)] = open_source(
                    {"path": str(path)} | plain, documents=options.documents, encoding=options.encoding
                )
        return cls(list(sources.items()), options)

    @property
    def size(self) -> int | None:
        """Bytes, where all are files."""
        sizes = [source.size for _, source in self.sources]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def read(self, advance: Callable[[int], None]) -> Iterator[Document]:
        """Every document. One that is empty comes too, so that what it was before can go.

        advance   hears how many bytes were read since it was last called
        """
        from clearhead.retrieval import Document

        for name, source in self.sources:
            is_whole = getattr(source, "format", "") == "text" and self.options.documents == "file"
            try:
                for text, place in self._texts(source, advance):
                    yield Document(name if is_whole else place, text, name)
            except NothingToRead as error:
                note(f"Left out: {error}")
                yield Document(name, "", name)

    def _texts(self, source: Source, advance: Callable[[int], None]) -> Iterator[tuple[str, str]]:
        """(text, name or place) of every document, the pieces of a long one joined."""
        pieces: list[str] = []
        place = ""
        for record in source.records(advance):
            if not pieces:
                place = self._name(record)
            pieces.append(self._text(record))
            if not record.get("unfinished"):
                yield "".join(pieces), place
                pieces = []

    def _text(self, record: Any) -> str:
        # a text file has one column, whatever it is called elsewhere
        column = "text" if set(record) <= {"text", "where", "continued", "unfinished"} else self.options.column
        text = self._value(record, column, "--column")
        if text is not None and not isinstance(text, str):
            raise InputError(
                f"{record['where']}: {column} is a {type(text).__name__}, not a text. Name another: --column."
            )
        return text or ""

    def _name(self, record: Any) -> str:
        column = self.options.id_column
        return str(record["where"]) if column is None else str(self._value(record, column, "--id-column"))

    @staticmethod
    def _value(record: Any, column: str, option: str) -> Any:
        if column not in record:
            names = [name for name in record if name != "where"]
            raise InputError(
                f"{record['where']} has no column {column!r}.{did_you_mean(column, names)} It has: {', '.join(names)}. "
                f"Name one: {option}."
            )
        return record[column]


def _documents_of(name: str) -> list[Path]:
    """All that can be read in a folder: what training reads, and Markdown and the like beside it."""
    from clearhead.hub import user_path
    from clearhead.train.data.file_paths import ending_of
    from clearhead.train.data.formats import ENDINGS

    folder = user_path(name)
    if not folder.is_dir():
        return []
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return [path for path in paths if ending_of(path) in (*ENDINGS, *DOCUMENTS)]
