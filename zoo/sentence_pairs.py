"""The data of `sentences`: pairs of texts that belong together, and the text its encoder reads first. For maintainers.

    python zoo/sentence_pairs.py DATA OUT

DATA holds the data sets that the card of `sentences` names, a folder each, as they were published (packed by bzip2).
OUT gets pairs.jsonl.bz2 (anchor, positive), held_out.jsonl.bz2 (the same, of the kinds that search is measured by) and
modern.txt.bz2 (running text, documents parted by <|endoftext|>). The same data gives the same files.
"""

from __future__ import annotations

import bz2
import csv
import itertools
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Pair = tuple[str, str]

END = "<|endoftext|>"
HELD_OUT = 10  # one question in so many is kept back
OTHER_SCRIPTS = re.compile(r"[^\u0000-\u024f\u2010-\u2030]+")  # names in their own letters


def lines(path: Path) -> Iterator[str]:
    with bz2.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n")


def latin(text: str) -> str:
    return OTHER_SCRIPTS.sub("", text)


def records(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, lines(path))


def sentences_of(text: str) -> list[str]:
    return [s for s in re.split(r"(?<=[.!?])[\"']?\s+", text) if s]


def paraphrases(data: Path, draw: random.Random) -> Iterator[Pair]:
    """English sentences that somebody translated by the same sentence (Tatoeba, French and Chinese)."""
    groups: dict[str, set[str]] = defaultdict(set)
    for name in ("fra", "cmn"):
        for line in lines(data / "tatoeba" / f"{name}.txt.bz2"):
            english, *rest = line.split("\t")
            if rest:
                groups[re.sub(r"\W+", " ", rest[0]).strip().lower()].add(english)
    for group in groups.values():
        members = sorted(group)
        draw.shuffle(members)
        yield from itertools.combinations(members[:6], 2)


def intents(data: Path, draw: random.Random) -> Iterator[Pair]:
    """Two requests that want the same (CLINC150, banking77), and a request with the name of what it wants."""
    groups: dict[str, list[str]] = defaultdict(list)
    clinc = json.loads("\n".join(lines(data / "clinc150" / "data_full.json.bz2")))
    for text, intent in clinc["train"]:
        groups["clinc " + intent].append(text)
    for row in csv_rows(data / "banking77" / "train.csv"):
        groups["banking " + row["category"]].append(row["text"])
    for name, group in groups.items():
        draw.shuffle(group)
        yield from itertools.pairwise(group)
        label = name.partition(" ")[2].replace("_", " ")
        yield from ((label, text) for text in group[:10])


def csv_rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def questions(data: Path) -> Iterator[Pair]:
    """A question and the passage that answers it."""
    passages = {row["id"]: row for row in records(data / "wiki_passages" / "passages.jsonl.bz2")}
    for row in records(data / "wiki_passages" / "questions.jsonl.bz2"):
        gold = row["gold"] if isinstance(row["gold"], list) else [row["gold"]]
        for name in gold[:1]:
            if name in passages:
                yield row["question"], passages[name]["text"]
    for row in records(data / "medquad" / "medquad.jsonl.bz2"):
        yield row["question"], row["answer"]
    for row in records(data / "fairytaleqa" / "train.jsonl.bz2"):
        yield row["question"], row["context"]


def titles(data: Path, draw: random.Random) -> Iterator[Pair]:
    """A title and its text; the first sentence of a passage and the rest; a summary and what it sums up."""
    for row in records(data / "wiki_passages" / "passages.jsonl.bz2"):
        yield row["title"], row["text"]
        first, *rest = sentences_of(row["text"])
        if rest:
            yield first, " ".join(rest)
        if len(rest) > 2:
            at = draw.randrange(1, len(rest))
            yield rest[at], " ".join([first, *rest[:at], *rest[at + 1 :]])
    for row in records(data / "factbook" / "passages.jsonl.bz2"):
        if len(row["text"]) > 60:
            yield f"{row['country']}: {row['field']}", row["text"]
    for row in records(data / "scitldr" / "train.jsonl.bz2"):
        abstract = " ".join(row["source"])
        yield from ((target, abstract) for target in row["target"][:1])
        first, *rest = row["source"]
        if rest:
            yield first, " ".join(rest)


def captions(data: Path, draw: random.Random) -> Iterator[Pair]:
    """The name of a thing and the words people look for it with."""
    seen = set()
    for row in records(data / "icons_captions" / "records.jsonl.bz2"):
        words = [word for word in row["keywords"] if word.lower() != row["object"].lower()]
        if row["object"] not in seen and row["split"] == "train" and words:
            seen.add(row["object"])
            yield row["object"], ", ".join(words)
            yield draw.choice(words), row["object"]


def neighbours(data: Path, draw: random.Random, count: int) -> Iterator[Pair]:
    """Two parts of one paragraph of a book."""
    for name in ("books_en/books", "children_en/children"):
        paragraphs = [line for line in lines(data / f"{name}.txt.bz2") if 150 < len(line) < 1200]
        for paragraph in draw.sample(paragraphs, min(count, len(paragraphs))):
            parts = sentences_of(paragraph)
            if len(parts) > 1:
                at = draw.randrange(1, len(parts))
                yield " ".join(parts[:at]), " ".join(parts[at:])


def same(data: Path, draw: random.Random, count: int) -> Iterator[Pair]:
    """A sentence and itself: dropout makes the difference (SimCSE, 2021)."""
    pool = {line.split("\t")[0] for line in lines(data / "tatoeba" / "fra.txt.bz2")}
    pool |= {
        sentence
        for row in records(data / "wiki_passages" / "passages.jsonl.bz2")
        for sentence in sentences_of(row["text"])
        if 20 < len(sentence) < 200
    }
    for sentence in draw.sample(sorted(pool), count):
        yield sentence, sentence


def modern(data: Path) -> Iterator[str]:
    """Documents in today's words, beside the books."""
    for row in records(data / "wiki_passages" / "passages.jsonl.bz2"):
        yield f"{row['title']}. {row['text']}"
    for row in records(data / "wiki_passages" / "questions.jsonl.bz2"):
        yield row["question"]
    for row in records(data / "medquad" / "medquad.jsonl.bz2"):
        yield f"{row['question']} {row['answer']}"
    for row in records(data / "scitldr" / "train.jsonl.bz2"):
        yield " ".join(row["source"] + row["target"])
    for country, rows in itertools.groupby(records(data / "factbook" / "passages.jsonl.bz2"), lambda r: r["country"]):
        yield country + ". " + " ".join(f"{row['field']}: {row['text']}." for row in rows if len(row["text"]) > 40)
    talk = {line.split("\t")[0] for name in ("fra", "cmn") for line in lines(data / "tatoeba" / f"{name}.txt.bz2")}
    talk |= {text for text, _ in json.loads("\n".join(lines(data / "clinc150" / "data_full.json.bz2")))["train"]}
    talk |= {row["text"] for row in csv_rows(data / "banking77" / "train.csv")}
    spoken = sorted(talk)
    random.Random(5).shuffle(spoken)
    for at in range(0, len(spoken), 12):
        yield " ".join(spoken[at : at + 12])


def as_json(pair: Pair) -> str:
    anchor, positive = map(latin, pair)
    return json.dumps({"anchor": anchor, "positive": positive}, ensure_ascii=False)


def write(path: Path, rows: Iterable[str]) -> int:
    with bz2.open(path, "wt", encoding="utf-8") as file:
        return sum(file.write(row + "\n") > 0 for row in rows)


def main(data: Path, out: Path) -> None:
    draw = random.Random(1)
    out.mkdir(parents=True, exist_ok=True)
    asked = list(questions(data))
    held_out = asked[::HELD_OUT]
    kinds = {
        "paraphrases": list(paraphrases(data, draw)),
        "intents": list(intents(data, draw)),
        "questions": [pair for n, pair in enumerate(asked) if n % HELD_OUT],
        "titles": list(titles(data, draw)),
        "captions": list(captions(data, draw)),
        "neighbours": list(neighbours(data, draw, 40_000)),
        "same": list(same(data, draw, 60_000)),
    }
    everything = [pair for pairs in kinds.values() for pair in pairs] + 3 * kinds["paraphrases"]  # few, and the best
    draw.shuffle(everything)
    for name, pairs in kinds.items():
        print(f"{name:12} {len(pairs):8,}   {pairs[len(pairs) // 2][0][:50]!r} | {pairs[len(pairs) // 2][1][:60]!r}")
    print(write(out / "pairs.jsonl.bz2", map(as_json, everything)), "pairs")
    print(write(out / "held_out.jsonl.bz2", map(as_json, held_out)), "held out")
    documents = (" ".join(latin(text).split()) + "\n" + END for text in modern(data))
    print(write(out / "modern.txt.bz2", documents), "documents")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
