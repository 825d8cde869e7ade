"""Texts to search or to ask: the lines of a file, the rows of a table, or the paragraphs of a folder's files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clearhead.cli.style import note
from clearhead.cli.texts import STANDARD_INPUT, FileArguments, read_texts, standard_input_lines
from clearhead.errors import InputError, did_you_mean

DOCUMENTS = (".txt", ".text", ".md", ".rst")  # what is read of a folder
LONGEST = 1000  # characters of a passage; a longer paragraph is cut after a sentence
_ENDS = (re.compile(r"[.!?。！？]\s+"), re.compile(r"\s+"))
_BETWEEN = re.compile(r"\n[^\S\n]*\n\s*")


@dataclass(frozen=True)
class Passage:
    """A text and where it stands."""

    text: str
    source: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}"


def read_passages(
    path_or_dash: str, column: str | None, encoding: str | None, whole_paragraphs: bool = False
) -> list[Passage]:
    """A folder's files by their paragraphs, a table by its rows, any other file by its lines.

    whole_paragraphs  any other file by its paragraphs too, and no paragraph is cut: for who reads windows of it
    """
    from clearhead.hub import user_path

    path = user_path(path_or_dash)
    if path_or_dash != STANDARD_INPUT and not path.exists():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(
            f"{path} does not exist.{did_you_mean(path.name, siblings)} Give a file, a folder, or - for lines."
        )
    if column is not None and not _is_table(path):
        raise InputError("--column names a column of a table: a .csv, .tsv or .jsonl file.")
    if path_or_dash == STANDARD_INPUT:
        lines = enumerate(standard_input_lines(encoding), 1)
        passages = [Passage(line, "standard input", n) for n, line in lines]
    elif path.is_dir():
        passages = list(_folder(path, encoding or "utf-8", whole_paragraphs))
    elif _is_table(path):
        passages = list(_rows(path, column, encoding))
    elif whole_paragraphs:
        passages = list(_paragraphs(path, encoding or "utf-8", whole_paragraphs))
    else:
        from clearhead.text.text_files import lines as lines_of

        numbered_lines = lines_of(path, encoding or "utf-8", lambda _: None)
        passages = [Passage(line.strip(), str(path), n) for n, line in numbered_lines if line.strip()]
    if not passages:
        raise InputError(f"There is nothing to read in {path_or_dash}: it is empty.")
    return passages


def _is_table(path: Path) -> bool:
    from clearhead.train.data.file_paths import ending_of
    from clearhead.train.data.formats import ENDINGS

    return ENDINGS.get(ending_of(path), "text") not in ("text", "conll")


def _rows(path: Path, column: str | None, encoding: str | None) -> Iterator[Passage]:
    rows = read_texts(None, FileArguments(file=path, column=column, encoding=encoding), "search")
    assert rows.file is not None
    for (line, _), read in zip(rows.file.rows(), rows.inputs(), strict=True):
        if read:
            yield Passage(read[0], str(path), line)


def _folder(folder: Path, encoding: str, whole_paragraphs: bool) -> Iterator[Passage]:
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in DOCUMENTS and p.is_file())
    paths = [p for p in paths if not any(part.startswith(".") for part in p.relative_to(folder).parts)]
    if not paths:
        raise InputError(f"{folder} holds no file that ends in {', '.join(DOCUMENTS)}.")
    for path in paths:
        try:
            yield from list(_paragraphs(path, encoding, whole_paragraphs))
        except InputError as error:
            note(f"Left out: {error}")


def _paragraphs(path: Path, encoding: str, whole_paragraphs: bool) -> Iterator[Passage]:
    """What stands between empty lines."""
    from clearhead.text.text_files import characters

    text = "".join(characters(path, encoding, lambda _: None))
    paragraph_start = 0
    for end, after in [*((m.start(), m.end()) for m in _BETWEEN.finditer(text)), (len(text), len(text))]:
        for start, stop in [(paragraph_start, end)] if whole_paragraphs else _cuts(text, paragraph_start, end):
            if shown := text[start:stop].strip():
                first = start + len(text[start:stop]) - len(text[start:stop].lstrip())
                yield Passage(shown, str(path), text.count("\n", 0, first) + 1)
        paragraph_start = after


def _cuts(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The same stretch of text in parts that are short enough, cut after a sentence or at least a word."""
    while end - start > LONGEST:
        ends = [[m.end() for m in pattern.finditer(text, start + LONGEST // 2, start + LONGEST)] for pattern in _ENDS]
        cut = next((positions[-1] for positions in ends if positions), start + LONGEST)
        yield start, cut
        start = cut
    yield start, end
