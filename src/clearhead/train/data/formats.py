"""One reader for each kind of file: from its characters (text/text_files.py) to rows with the line they begin at.

Every reader takes a piece at a time, so a file may be larger than memory. Only a `.json` file is read whole.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearhead.errors import InputError, did_you_mean
from clearhead.text.text_files import Advance, characters, lines

Row = dict[str, Any] | list[Any]  # by name, or by position where the file has no names
Lines = Iterator[tuple[int, Row]]  # rows with the line that they begin at

PIECE = 16 * 1024  # characters; a longer document is handed on in pieces of about this many. Longer ones are slower
LONGEST_FIELD = 100 * 1024 * 1024  # of a CSV file; beyond it, a quote was opened and never closed
_SPACE = re.compile(r"(?<=\S)\s")
_EMPTY_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")


@dataclass(frozen=True)
class FileOptions:
    """How a file is to be read: what a recipe may say about it.

    documents   where a text is cut: "file" (not at all), "lines", "blank-lines", or the words between two documents
    columns     our names -> theirs, or positions from 0 (from the end: -1); a list names the columns in their order
    separator   between the columns of a table or of CoNLL lines; where it is a space, the last column that is asked
                for takes the rest of the line
    header      the first line of a table names its columns; left out, it does unless `columns` are positions
    quoted      fields of a table may stand in quotes; left out, those of CSV may, those of TSV may not
    strip       a regular expression, taken out of CoNLL tokens
    key         the name of the list in a JSON file that holds several
    """

    documents: str = "file"
    columns: dict[str, str | int] = field(default_factory=dict)
    separator: str | None = None
    header: bool | None = None
    quoted: bool | None = None
    encoding: str = "utf-8"
    strip: str | None = None
    key: str | None = None


# ---- documents


def text_rows(path: Path, options: FileOptions, advance: Advance) -> Lines:
    """{"text"}, a document each. A long one comes in pieces: all but its last have `unfinished`, all but its first
    `continued`, and joined they are the document."""
    if options.documents == "lines":
        return ((number, {"text": line}) for number, line in lines(path, options.encoding, advance))
    return pieces(characters(path, options.encoding, advance), options.documents)


def pieces(blocks: Iterator[str], documents: str, line: int = 1) -> Lines:
    """Text in blocks -> documents, in pieces where they are long."""
    between, keep = None, 0  # what parts documents; so many letters at the end of a block may be the half of it
    if documents == "blank-lines":
        between = re.compile(r"\n[^\S\n]*\n")
    elif documents != "file":
        between, keep = re.compile(re.escape(documents)), len(documents)
    waiting, continued = "", False

    def row(text: str, unfinished: bool) -> tuple[int, Row]:
        """A piece with the line it begins at; the empty lines around a document are not part of it."""
        bare = text if between is None or continued else _EMPTY_LINES.sub("", text)
        begins = line + text.count("\n") - bare.count("\n")
        if between is not None and not unfinished:
            bare = bare.rstrip()
        record: dict[str, Any] = {"text": bare}
        if continued:
            record["continued"] = True
        if unfinished:
            record["unfinished"] = True
        return begins, record

    for block in blocks:
        waiting += block
        used = 0
        if between is not None:
            for match in between.finditer(waiting):
                yield row(waiting[used : match.start()], False)
                line += waiting.count("\n", used, match.end())
                used, continued = match.end(), False
            waiting = waiting[used:]
        while len(waiting) > PIECE and (cut := _cut(waiting, keep)):
            yield row(waiting[:cut], True)
            line += waiting.count("\n", 0, cut)
            waiting, continued = waiting[cut:], True
    if waiting or continued:
        yield row(waiting, False)


def _cut(text: str, keep: int) -> int:
    """Where a long text may be cut so that tokenizers read the halves as they would the whole; 0 to read on.

    Words take the space before them, never the one after, so a run of white space stays with what follows. And
    something must follow, other than the last `keep` letters.
    """
    stop = len(text[: len(text) - keep].rstrip())
    for space in ("\n", " "):
        space_at = text.rfind(space, PIECE // 2, min(stop, PIECE))
        if space_at > 0 and (cut := len(text[:space_at].rstrip())):
            return cut
    if later := _SPACE.search(text, PIECE // 2, stop):
        return later.start()
    return stop - 1 if stop > 64 * PIECE else 0  # no white space anywhere


# ---- one JSON value a line, or a file


def jsonl_rows(path: Path, options: FileOptions, advance: Advance) -> Lines:
    for number, line in lines(path, options.encoding, advance):
        if line and not line.isspace():
            yield number, _row_of(_parsed(line, path, number), f"{path}:{number}")


def json_rows(path: Path, options: FileOptions, advance: Advance) -> Lines:
    """A list of rows; a file in the form of SQuAD; an object with lists (`key` says which); or JSONL after all."""
    text = "".join(characters(path, options.encoding, advance))
    first, _, rest = text.lstrip().partition("\n")
    if first.startswith("{") and rest.strip() and _is_json(first):
        yield from jsonl_rows(path, options, lambda _: None)
        return
    content = _parsed(text, path, None)
    if options.key is None and isinstance(content, dict) and isinstance(content.get("data"), list):
        content = content["data"]
    elif isinstance(content, dict):
        lists = [name for name, value in content.items() if isinstance(value, list)]
        if options.key not in lists:
            hint = did_you_mean(options.key, lists) if options.key else ""
            raise InputError(
                f"{path} holds an object, not a list of rows.{hint} "
                f"Its lists are: {', '.join(lists) or 'none'}. Choose one in the recipe: key: …"
            )
        content = content[options.key]
    if not isinstance(content, list):
        raise InputError(f"{path} holds a JSON {type(content).__name__}; a list of rows is expected.")
    for number, row in enumerate(content, 1):
        if isinstance(row, dict) and isinstance(row.get("paragraphs"), list):
            yield from ((number, question) for question in _questions(row, f"{path}: article {number}"))
        else:
            yield number, _row_of(row, f"{path}: row {number}")


def _questions(article: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """SQuAD's nested form (Rajpurkar et al. 2016), one question a row."""
    for paragraph in article["paragraphs"]:
        try:
            for item in paragraph["qas"]:
                row = {
                    "question": item["question"],
                    "context": paragraph["context"],
                    "answers": item.get("answers", []),
                }
                yield row | {name: item[name] for name in ("id", "is_impossible") if name in item}
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{where} is not in SQuAD's form ({error} is missing): a paragraph needs a context and qas, "
                "each of which needs a question."
            ) from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return False
    return True


def _parsed(text: str, path: Path, line: int | None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}:{line or error.lineno}"
        expected = (
            'Every line must be one object, such as {"text": "…"}.' if line else "The file must be one JSON value."
        )
        raise InputError(f"{where} is not JSON: {error.msg} at character {error.colno}. {expected}") from error
    except RecursionError as error:
        raise InputError(f"{path}:{line or 1} is nested too deeply to be read as JSON.") from error


def _row_of(value: Any, where: str) -> Row:
    if not isinstance(value, dict | list):
        raise InputError(f'{where} holds a {type(value).__name__}; an object such as {{"text": "…"}} is expected.')
    return value


# ---- tables


def csv_rows(path: Path, options: FileOptions, advance: Advance) -> Lines:
    separator = options.separator or ","
    quoted = separator != " " if options.quoted is None else options.quoted  # words between spaces have no quotes
    return _table_rows(path, options, advance, separator, quoted)


def tsv_rows(path: Path, options: FileOptions, advance: Advance) -> Lines:
    return _table_rows(path, options, advance, options.separator or "\t", options.quoted is True)


def _table_rows(path: Path, options: FileOptions, advance: Advance, separator: str, quoted: bool) -> Lines:
    positions = bool(options.columns) and all(isinstance(theirs, int) for theirs in options.columns.values())
    if quoted:
        rows = _quoted_rows(path, options.encoding, advance, separator)
    else:
        last = max(map(int, options.columns.values())) if positions and separator == " " else -1
        rows = _plain_rows(path, options.encoding, advance, separator, last)
    named = not positions if options.header is None else options.header
    names: list[str] | None = None
    for number, row in rows:
        if named and names is None:
            names = row
            if len(set(names)) < len(names):
                raise InputError(
                    f"{path}:{number} names a column twice: {', '.join(names)}. Every name must be unique."
                )
        elif names is None:
            yield number, row
        elif len(row) != len(names):
            raise InputError(
                f"{path}:{number} has {len(row)} columns; {len(names)} are expected ({', '.join(names)}). Has the file "
                "no header? Then say the positions: columns: {text: 0, label: 1}, or --column 0 in a command. Is the "
                "separator another? Say that."
            )
        else:
            yield number, dict(zip(names, row, strict=True))


def _plain_rows(
    path: Path, encoding: str, advance: Advance, separator: str, max_splits: int
) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines(path, encoding, advance):
        if line and not line.isspace():
            yield number, line.split(separator, max_splits)


def _quoted_rows(path: Path, encoding: str, advance: Advance, separator: str) -> Iterator[tuple[int, list[str]]]:
    if len(separator) != 1:
        raise InputError(f"The separator of a table with quotes must be one character, not {separator!r}.")
    csv.field_size_limit(LONGEST_FIELD)
    text = (line + "\n" for _, line in lines(path, encoding, advance))
    reader, begins = csv.reader(text, delimiter=separator, strict=True), 1
    try:
        for row in reader:
            if row:
                yield begins, row
            begins = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}:{begins} is not a row of a table: {error}. A field with a quote in it must stand in quotes, the "
            "quote doubled. If quotes mean nothing in this file: in a recipe quoted: false; where tabs part columns, "
            "name it .tsv."
        ) from error


# ---- a token a line


def conll_rows(path: Path, options: FileOptions, advance: Advance) -> Lines:
    """{"tokens", "tags"}: a token and its tags a line, an empty line between sentences (Tjong Kim Sang 2003)."""
    columns = options.columns or {"tokens": 0, "tags": -1}
    for ours, theirs in columns.items():
        if not isinstance(theirs, int):
            raise InputError(f"CoNLL columns have no names: columns.{ours} must be a position such as 0 or -1.")
    positions = {ours: int(theirs) for ours, theirs in columns.items()}
    min_columns = max(n + 1 if n >= 0 else -n for n in positions.values())
    min_columns = max(min_columns, len(set(positions.values())))
    try:
        strip = re.compile(options.strip) if options.strip else None
    except re.error as error:
        raise InputError(f"strip is {options.strip!r}, which is not a regular expression: {error}.") from error
    sentence: dict[str, list[str]] = {}
    begins, width = 1, 0  # the file's columns, once a line has shown them
    for number, line in lines(path, options.encoding, advance):
        if not line or line.isspace():
            if sentence:
                yield begins, sentence
            sentence = {}
            continue
        parts = line.split(options.separator or ("\t" if "\t" in line else None))
        comment = line.startswith("# ") and "\t" not in line and len(parts) != width
        if comment or line.startswith("-DOCSTART-"):
            continue
        if len(parts) < min_columns or len(parts) != (width or len(parts)):
            raise InputError(
                f"{path}:{number} has {len(parts)} columns; {width or f'at least {min_columns}'} are expected: a token "
                "and its tag, with a tab between them, and an empty line between sentences."
            )
        width = len(parts)
        if not sentence:
            sentence, begins = {ours: [] for ours in positions}, number
        for ours, position in positions.items():
            sentence[ours].append(parts[position])
        if strip and "tokens" in sentence:
            sentence["tokens"][-1] = strip.sub("", sentence["tokens"][-1])
    if sentence:
        yield begins, sentence


READERS: dict[str, Callable[[Path, FileOptions, Advance], Lines]] = {
    "text": text_rows,
    "jsonl": jsonl_rows,
    "json": json_rows,
    "csv": csv_rows,
    "tsv": tsv_rows,
    "conll": conll_rows,
}
ENDINGS = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".conll": "conll",
}
