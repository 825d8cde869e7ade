"""What a verb reads: texts on the command line, the lines of standard input, or the rows of a file."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.style import note
from clearhead.errors import InputError, did_you_mean

STANDARD_INPUT = "-"
_KINDS = (
    "a table ends in .csv or .tsv, JSON lines in .jsonl, plain text in .txt (a text a line); each may be packed (.gz)"
)
_PANEL = "Files: a text a row, and a row of results for each"
TEXTS_HELP = "One text or several; '-' reads lines of standard input, each a text of its own."


@dataclass(frozen=True)
class FileArguments:
    """What a verb may be told about the file that it reads, and about the one that it writes."""

    file: Annotated[
        Path | None,
        typer.Option(help="Read the texts from a .csv, .tsv, .jsonl or .txt file.", metavar="FILE",
                     rich_help_panel=_PANEL),
    ] = None  # fmt: skip
    column: Annotated[
        str | None,
        typer.Option(help="The column with the text: a name; a number from 0, if the table has no header.",
                     metavar="NAME", rich_help_panel=_PANEL),
    ] = None  # fmt: skip
    encoding: Annotated[
        str | None, typer.Option(help="Of the file or of standard input; default: utf-8.", rich_help_panel=_PANEL)
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(help="Write the rows and their results to .csv, .tsv, .jsonl or .txt. Stopped, it goes on when "
                     "run again.", metavar="FILE", rich_help_panel=_PANEL),
    ] = None  # fmt: skip
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file that --out names.", rich_help_panel=_PANEL)
    ] = False


@dataclass(frozen=True)
class TextRows:
    """Rows that can be read again and again.

    name      what to call them in a message
    columns   the names that the rows have, in order
    digest    changes with anything that is in them
    chosen    the columns that the model reads, one or two
    meanings  what these are called in an answer
    is_one    one text was given, and not a list that happens to have one
    """

    name: str
    columns: list[str]
    count: int
    digest: str
    chosen: tuple[str, ...]
    meanings: tuple[str, ...] = ("text",)
    is_one: bool = False
    file: _File | None = None
    in_memory: tuple[dict[str, Any], ...] = ()  # where there is no file

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row as the input has it."""
        return iter(self.in_memory) if self.file is None else (row for _, row in self.file.rows())

    def check_unchanged(self) -> None:
        """The file is read more than once: it must be the same each time."""
        if self.file is not None and self.file.digest() != self.digest:
            raise InputError(f"{self.name} has changed while it was being read. Run the command again.")

    def inputs(self) -> Iterator[tuple[str, ...]]:
        """What the model reads of every row. Without any text in one of the columns there is nothing to read: ()."""
        for row in self.rows():
            texts = tuple(row.get(name) or "" for name in self.chosen)
            yield texts if all(text.strip() for text in texts) else ()


def read_texts(
    texts: Sequence[str] | None,
    files: FileArguments,
    verb: str,
    example: str = '"Your text here."',
    meanings: tuple[str, ...] = ("text",),
    second: tuple[str, str | None] | None = None,
) -> TextRows:
    """What was given in one of the three ways, looked over from beginning to end before anything is computed.

    meanings   what the columns that are read are called in an answer, and by default in a file
    second     where a row of a file may have two texts: the option that names the other column, and the name given
    """
    check_files(texts, files, second)
    if files.file is not None:
        return _from_file(files, meanings, second)
    if not texts:
        raise InputError(
            f"There is no text. Give one in quotes (clearhead {verb} {example}), - for lines of standard input, "
            "or --file."
        )
    if list(texts) == [STANDARD_INPUT]:
        return rows_of_list("standard input", standard_input_lines(files.encoding))
    return rows_of_list("the texts", [check_argument(text) for text in texts], len(texts) == 1)


def check_argument(text: str, name: str = "text") -> str:
    """A text on the command line, if it is one."""
    if text == STANDARD_INPUT:
        raise InputError(f"'-' stands for the lines of standard input, and cannot be the {name} here.")
    if not text.strip():
        raise InputError(f"The {name} is empty. Give at least one word.")
    return text


def standard_input_lines(encoding: str | None = None) -> list[str]:
    """The lines that hold something."""
    lines = standard_input(encoding).split("\n")
    kept = [line.removesuffix("\r") for line in lines if line.strip()]
    if not kept:
        raise InputError("Standard input is empty. Give it lines of text: clearhead … - < texts.txt")
    return kept


def standard_input(encoding: str | None = None) -> str:
    """All of it, decoded."""
    encoding = encoding or "utf-8"
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("There is no standard input to read. Give the text itself, or --file.")
    if sys.stdin.isatty():
        note("Reading standard input; Ctrl-D on a line of its own ends it.")
    data = sys.stdin.buffer.read()
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except LookupError:
        raise InputError(f"{encoding!r} is not an encoding. Usual ones are utf-8, utf-16, latin-1, gb18030.") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"Standard input is not {encoding}: byte {data[error.start]:#04x} in line {line}. Convert it (iconv -f "
            "latin1 -t utf-8), or say what it is: --encoding latin-1."
        ) from None


def check_files(
    texts: Sequence[str] | None, files: FileArguments, second: tuple[str, str | None] | None = None
) -> None:
    """An option that would mean nothing is a mistake, not a wish."""
    if files.file is not None and texts:
        raise InputError("Give the texts or --file, not both.")
    if files.file is None:
        for option, value in [("--column", files.column), *([second] if second else [])]:
            if value is not None:
                raise InputError(f"{option} names a column of a file: it goes with --file.")
        if files.encoding is not None and list(texts or ()) != [STANDARD_INPUT]:
            raise InputError("--encoding says how a file or standard input is written: it goes with --file or -.")
    if files.overwrite and files.out is None:
        raise InputError("--overwrite replaces the file that --out names: it goes with --out.")


def rows_of_list(name: str, texts: Sequence[str], is_one: bool = False) -> TextRows:
    """Texts that are there, a row each."""
    rows = tuple({"text": text} for text in texts)
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    return TextRows(name, ["text"], len(rows), digest, ("text",), is_one=is_one, in_memory=rows)


# ---- files


def _from_file(files: FileArguments, meanings: tuple[str, ...], second: tuple[str, str | None] | None) -> TextRows:
    from clearhead.hub import user_path

    path = user_path(files.file or "")
    file = _File(path, _format(path), files.encoding or "utf-8", _is_position(files.column))
    column_options = [("--column", files.column), *([second] if second and (second[1] or len(meanings) > 1) else [])]
    names: dict[str, None] = {}
    chosen: tuple[str, ...] = ()
    count = 0
    for line, row in file.rows():
        names |= dict.fromkeys(row)
        _check_characters(row, f"{path}:{line}")
        if not count:
            default_names = [*meanings, "pair"]
            for n, column_option in enumerate(column_options):
                chosen = (*chosen, _column(row, *column_option, default_names[n], path, chosen))
        for name in chosen:
            _check_cell(row, name, f"{path}:{line}")
        count += 1
    if not count:
        raise InputError(f"There is nothing to read in {path}: it is empty, or has a header alone.")
    if len(set(chosen)) < len(chosen):
        raise InputError(
            f"--column and {column_options[1][0]} name the same column, {chosen[0]}. The two texts stand in two."
        )
    meanings = (*meanings, "pair")[: len(chosen)]
    return TextRows(str(path), list(names), count, file.digest(), chosen, meanings, file=file)


@dataclass(frozen=True)
class _File:
    path: Path
    format: str
    encoding: str
    has_no_header: bool

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every row with the line it begins at; the columns of a table without a header are column_0, column_1 …"""
        from clearhead.train.data import formats

        header = False if self.has_no_header else None
        options = formats.FileOptions(documents="lines", encoding=self.encoding, header=header)
        for line, row in formats.READERS[self.format](self.path, options, lambda _: None):
            yield line, row if isinstance(row, dict) else {f"column_{n}": value for n, value in enumerate(row)}

    def digest(self) -> str:
        from clearhead.train.data.file_paths import file_digest

        settings = json.dumps([self.format, self.encoding, self.has_no_header])
        return hashlib.sha256(file_digest(self.path) + settings.encode()).hexdigest()


_ALSO_CALLED = {"context": "passage"}  # SQuAD's word and that of the command line


def _format(path: Path) -> str:
    from clearhead.train.data.file_paths import ending_of
    from clearhead.train.data.formats import ENDINGS

    if not path.is_file():
        if path.exists():
            problem = (
                "is a folder; give one of its files" if path.is_dir() else "is no plain file; for a pipe, give '-'"
            )
            raise InputError(f"{path} {problem}.")
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(f"{path} does not exist.{did_you_mean(path.name, siblings)}")
    format = ENDINGS.get(ending_of(path))
    if format is None or format == "conll":
        raise InputError(f"{path.name} does not say by its ending what it holds: {_KINDS}.")
    return format


def _is_position(column: str | None) -> bool:
    return column is not None and column.isdecimal()


def _column(
    row: dict[str, Any], option: str, name: str | None, default: str, path: Path, taken: tuple[str, ...]
) -> str:
    """The name of a column, from what was said or from what there is beside those that are taken."""
    names = list(row)
    if name is None and len(names) == 1:
        return names[0]
    column = default if name is None else f"column_{name}" if _is_position(name) and "column_0" in row else name
    if name is None and column not in row:
        column = _ALSO_CALLED.get(default, default)
    if column in row:
        return column
    shown = ", ".join(names)
    if name is None:
        example = next((other for other in names if other not in taken), "NAME")
        raise InputError(
            f"{path} has no column {default!r}. Say which one is meant: {option} {example}. It has: {shown}."
        )
    raise InputError(f"{path} has no column {name!r}.{did_you_mean(name, names)} It has: {shown}.")


def _check_cell(row: dict[str, Any], name: str, location: str) -> None:
    if name not in row:
        raise InputError(f"{location} has no {name!r}, which the rows before it have. It has: {', '.join(row)}.")
    if row[name] is not None and not isinstance(row[name], str):
        raise InputError(f"{location}: {name} holds a {type(row[name]).__name__}, not a text.")


def _check_characters(row: dict[str, Any], location: str) -> None:
    """JSON can spell the half of a character, which no file can hold."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise InputError(f"{location} holds a lone surrogate ({half!r}), which is no character. Take it out.") from None
