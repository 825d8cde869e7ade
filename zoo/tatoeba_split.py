"""The data of `translate-en-zh` and `rnn-attention-en-zh`: Tatoeba's pairs, parted. For maintainers.

    python zoo/tatoeba_split.py cmn.txt.bz2 OUT

OUT gets train.tsv.gz, valid.tsv.gz and test.tsv.gz (English, tab, Chinese). An English sentence often has several
translations, so pairs are parted by a hash of it: three in a hundred to test, two to validate. The same file gives the
same parts.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import sys
from pathlib import Path


def part_of(english: str) -> str:
    number = int(hashlib.sha256(english.lower().encode()).hexdigest(), 16) % 100
    return "test" if number < 3 else "valid" if number < 5 else "train"


def split(source: Path, target: Path) -> dict[str, int]:
    """How many pairs each part has got."""
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    with bz2.open(source, "rt", encoding="utf-8") as file:
        for line in file:
            english, *rest = line.rstrip("\n").split("\t")
            if rest:
                parts[part_of(english)].append(f"{english}\t{rest[0]}\n")
    target.mkdir(parents=True, exist_ok=True)
    for name, rows in parts.items():
        with gzip.GzipFile(target / f"{name}.tsv.gz", "wb", mtime=0) as packed:
            packed.write("".join(rows).encode())
    return {name: len(rows) for name, rows in parts.items()}


if __name__ == "__main__":
    print(split(Path(sys.argv[1]), Path(sys.argv[2])))
