"""The text of `awd-lstm`: general English, a document after another. For maintainers.

    python zoo/general_text.py OUT.txt DATA

DATA holds the data sets that the card names, a folder each, as they were published, packed by bzip2. What is written of
today stands whole; of old books there is a part, or they would be nine words in ten. The same data gives the same file.
"""

from __future__ import annotations

import argparse
import bz2
import json
import random
from collections.abc import Iterator
from pathlib import Path

END = "<|endoftext|>"  # between two documents
BOOK_WORDS = 4_000  # of each old book, from a place of its own


def rows(path: Path, column: str) -> Iterator[str]:
    with bz2.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield str(json.loads(line)[column])


def parts_of_books(path: Path, draw: random.Random) -> Iterator[str]:
    with bz2.open(path, "rt", encoding="utf-8") as file:
        books = file.read().split(END)
    for book in books:
        paragraphs = [line for line in book.splitlines() if line.strip()]
        start = draw.randrange(max(1, len(paragraphs) // 2))
        taken, words = [], 0
        for paragraph in paragraphs[start:]:
            taken.append(paragraph)
            words += len(paragraph.split())
            if words > BOOK_WORDS:
                break
        yield "\n".join(taken)


def documents(data: Path) -> Iterator[str]:
    draw = random.Random(1)
    yield from rows(data / "wiki_passages/passages.jsonl.bz2", "text")
    yield from rows(data / "medquad/medquad.jsonl.bz2", "answer")
    for name in ("children_en/children.txt.bz2", "books_en/books.txt.bz2"):
        yield from parts_of_books(data / name, draw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("data", type=Path)
    given = parser.parse_args()
    texts = [text.strip() for text in documents(given.data) if text.strip()]
    random.Random(2).shuffle(texts)
    given.out.write_text(f"\n{END}\n".join(texts) + "\n", encoding="utf-8")
    print(f"{len(texts):,} documents, {sum(len(text.split()) for text in texts):,} words")


if __name__ == "__main__":
    main()
