"""The data of `sentences`: pairs of texts that belong together, and the text its encoder reads first. For maintainers.

    python zoo/sentence_pairs.py OUT DATA … --without sts-test.csv sts-dev.csv SICK_test_annotated.txt

DATA are folders that hold the data sets that the card of `sentences` names, a folder each, as they were published
(packed by bzip2 where the names below say so). OUT gets

    pairs.jsonl.bz2     anchor, positive
    text.txt.bz2        running text, documents parted by <|endoftext|>
    valid.jsonl.bz2     the same from half of what is kept back: questions with their passages, paraphrases
    held_out.json.bz2   the other half, and intents, to measure by (benchmarks/sentence_vectors.py --held-out)

--without names files that vectors will be measured by: pairs with a sentence that stands in one are left out.
The same data gives the same files.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import itertools
import json
import random
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped, unused-ignore]

Pair = tuple[str, str]

END = "<|endoftext|>"
OTHER_SCRIPTS = re.compile(r"[^\u0000-\u024f\u2010-\u2030]+")  # names in their own letters
REPEATED = {"paraphrases": 4, "captions": 4, "questions": 2}  # the best kinds are few
DISTRACTORS = 3000  # passages, beside the right ones, that a held-out question is looked for among


def lines(path: Path) -> Iterator[str]:
    with (
        bz2.open(path, "rt", encoding="utf-8-sig") if path.suffix == ".bz2" else path.open(encoding="utf-8-sig") as file
    ):
        for line in file:
            yield line.rstrip("\n")


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(path)]


def plain(text: str) -> str:
    """In Latin letters, on one line."""
    return " ".join(OTHER_SCRIPTS.sub("", text).split())


def key_of(text: str) -> str:
    """The same for texts that differ in punctuation and capitals only."""
    return re.sub(r"\W+", " ", text).strip().lower()


def one_in(count: int, name: str) -> bool:
    """Whether a thing of this name is kept back: one in so many is."""
    return zlib.crc32(name.encode()) % count == 0


def sentences_of(text: str) -> list[str]:
    return [s for s in re.split(r"(?<=[.!?])[\"']?\s+", text) if s]


def detokenized(text: str) -> str:
    return re.sub(r" (n't|'s|[.,!?;:])", r"\1", text.strip())


@dataclass
class Sources:
    """The published files, each read once, with what is kept back marked."""

    folders: list[Path]
    draw: random.Random = field(default_factory=lambda: random.Random(1))

    def path(self, name: str) -> Path:
        found = [folder / name for folder in self.folders if (folder / name).exists()]
        if not found:
            raise SystemExit(f"None of {', '.join(map(str, self.folders))} holds {name}.")
        return found[0]

    @cached_property
    def wiki_questions(self) -> list[tuple[str, str, bool]]:
        """(question, the passage's id, kept back)"""
        rows = records(self.path("wiki_passages/questions.jsonl.bz2"))
        return [(row["question"], row["gold"][0], any(one_in(8, name) for name in row["gold"])) for row in rows]

    @cached_property
    def wiki(self) -> list[tuple[str, str, str, bool]]:
        """(id, title, text, kept back); the passages of held-out questions are, all of them"""
        rows = records(self.path("wiki_passages/questions.jsonl.bz2"))
        secret = {name for row in rows if any(one_in(8, name) for name in row["gold"]) for name in row["gold"]}
        found = records(self.path("wiki_passages/passages.jsonl.bz2"))
        return [(row["id"], row["title"], row["text"], row["id"] in secret) for row in found]

    @cached_property
    def medquad(self) -> list[tuple[str, str, str, bool]]:
        """(topic, question, answer, kept back); a topic is kept back as a whole"""
        rows = records(self.path("medquad/medquad.jsonl.bz2"))
        return [(r["focus"], r["question"].replace(" ?", "?"), r["answer"], one_in(10, r["focus"])) for r in rows]

    def tales(self, part: str) -> list[Pair]:
        """(question, section); the parts have other stories"""
        return [(r["question"], r["context"]) for r in records(self.path(f"fairytaleqa/{part}.jsonl.bz2"))]

    @cached_property
    def tatoeba(self) -> dict[str, list[str]]:
        """English sentences by the translation that they share."""
        groups: dict[str, set[str]] = defaultdict(set)
        for name in ("fra", "cmn"):
            for line in lines(self.path(f"tatoeba/{name}.txt.bz2")):
                english, *rest = line.split("\t")
                if rest:
                    groups[key_of(rest[0])].add(english)
        return {name: sorted(group) for name, group in sorted(groups.items())}

    def intents(self, part: str) -> Iterator[tuple[str, str, bool]]:
        """(request, intent, kept back); an intent is kept back as a whole"""
        clinc = json.loads("\n".join(lines(self.path("clinc150/data_full.json.bz2"))))
        for text, intent in clinc[part]:
            yield text, intent, one_in(3, intent)
        with self.path(f"banking77/{part}.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                yield row["text"], row["category"], one_in(3, row["category"])

    @cached_property
    def wordnet(self) -> list[dict[str, Any]]:
        """Synsets of the Open English WordNet: members, definition, example."""
        found: list[dict[str, Any]] = []
        for path in sorted(self.path("wordnet").glob("*.yaml")):
            with path.open(encoding="utf-8") as file:
                table = yaml.load(file, yaml.CSafeLoader)
            for synset in table.values():
                if "members" in synset:
                    examples = [e["text"] if isinstance(e, dict) else e for e in synset.get("example", [])]
                    found.append(synset | {"definition": synset["definition"][0], "example": examples})
        return found

    @cached_property
    def snli(self) -> list[tuple[str, str, str]]:
        """(premise, hypothesis, label)"""
        rows = []
        for part in ("dev", "test"):
            files = [lines(self.path(f"snli/{name}.{part}")) for name in ("s1", "s2", "labels")]
            rows += [(detokenized(a), detokenized(b), label) for a, b, label in zip(*files, strict=True)]
        return rows

    @cached_property
    def scitldr(self) -> list[dict[str, Any]]:
        return records(self.path("scitldr/train.jsonl.bz2"))

    @cached_property
    def factbook(self) -> list[dict[str, Any]]:
        rows = records(self.path("factbook/passages.jsonl.bz2"))
        return [row for row in rows if len(row["text"]) > 60 and not row["country"].endswith(".json")]


# ---- pairs, a kind each


def paraphrases(data: Sources) -> Iterator[Pair]:
    """English sentences that somebody translated by the same sentence (Tatoeba, French and Chinese)."""
    for name, group in data.tatoeba.items():
        if not one_in(10, name):
            data.draw.shuffle(group)
            yield from itertools.combinations(group[:6], 2)


def captions(data: Sources) -> Iterator[Pair]:
    """A picture's caption and what must be true of the picture (SNLI, entailment)."""
    return ((premise, hypothesis) for premise, hypothesis, label in data.snli if label == "entailment")


def synonyms(data: Sources) -> Iterator[Pair]:
    """Two words for one thing; and a sentence with one of them and with the other (WordNet)."""
    for synset in data.wordnet:
        if len(synset["members"]) == 1:
            continue
        first, second = data.draw.sample(synset["members"], 2)
        yield first, second
        for example in synset["example"]:
            for word in synset["members"]:
                other = second if word == first else first
                changed = f" {example} ".replace(f" {word} ", f" {other} ").strip()
                if changed != example:
                    yield example, changed
                    break


def definitions(data: Sources) -> Iterator[Pair]:
    """A word and what it means (WordNet)."""
    return ((data.draw.choice(synset["members"]), synset["definition"]) for synset in data.wordnet)


def intents(data: Sources) -> Iterator[Pair]:
    """Two requests that want the same (CLINC150, banking77), and what they want with a request."""
    groups: dict[str, list[str]] = defaultdict(list)
    for text, intent, kept_back in data.intents("train"):
        if not kept_back:
            groups[intent].append(text)
    for intent, group in groups.items():
        data.draw.shuffle(group)
        yield from itertools.pairwise(group)
        yield from ((intent.replace("_", " "), text) for text in group[:10])


def questions(data: Sources) -> Iterator[Pair]:
    """A question and the passage that answers it."""
    texts = {name: text for name, _, text, kept_back in data.wiki if not kept_back}
    yield from ((question, texts[gold]) for question, gold, _ in data.wiki_questions if gold in texts)
    yield from ((question, answer) for _, question, answer, kept_back in data.medquad if not kept_back)
    yield from data.tales("train")


def titles(data: Sources) -> Iterator[Pair]:
    """A title and its text; a sentence and the passage it was taken from (inverse cloze); a summary and its text."""
    for _, title, text, kept_back in data.wiki:
        if not kept_back:
            yield title, text
            yield from cloze(data, sentences_of(text))
    for _, _, answer, kept_back in data.medquad:
        if not kept_back:
            yield from cloze(data, sentences_of(answer))
    for row in data.factbook:
        yield f"{row['country']}: {row['field']}", row["text"]
    for row in data.scitldr:
        yield row["target"][0], " ".join(row["source"])
        yield row["title"], " ".join(row["source"])
        yield from cloze(data, row["source"])


def cloze(data: Sources, parts: list[str]) -> Iterator[Pair]:
    """The first sentence with the rest, and another one with the others."""
    if len(parts) > 1:
        yield parts[0], " ".join(parts[1:])
    if len(parts) > 3:
        at = data.draw.randrange(1, len(parts))
        yield parts[at], " ".join(parts[:at] + parts[at + 1 :])


def keywords(data: Sources) -> Iterator[Pair]:
    """A few of the rarer words of a sentence, as one types them into a search, and the passage that has them."""
    passages = [text for _, _, text, kept_back in data.wiki if not kept_back]
    passages += [answer for _, _, answer, kept_back in data.medquad if not kept_back]
    passages += [" ".join(row["source"]) for row in data.scitldr]
    words_of = re.compile(r"[A-Za-z][\w'-]+").findall
    spread = Counter(word for passage in passages for word in set(words_of(passage.lower())))
    for passage in passages:
        words = dict.fromkeys(words_of(data.draw.choice(sentences_of(passage)).lower()))
        rare = sorted(words, key=lambda word: spread[word])[:8]
        if len(rare) > 3:
            yield " ".join(data.draw.sample(rare, data.draw.randint(2, min(5, len(rare))))), passage


def neighbours(data: Sources) -> Iterator[Pair]:
    """Two parts of one paragraph of a book."""
    for name in ("books_en/books", "children_en/children"):
        paragraphs = [line for line in lines(data.path(f"{name}.txt.bz2")) if 150 < len(line) < 1000]
        for paragraph in data.draw.sample(paragraphs, min(20_000, len(paragraphs))):
            parts = sentences_of(paragraph)
            if len(parts) > 1:
                at = data.draw.randrange(1, len(parts))
                yield " ".join(parts[:at]), " ".join(parts[at:])


def same(data: Sources) -> Iterator[Pair]:
    """A sentence and itself: dropout makes the difference (SimCSE, 2021)."""
    pool = {sentence for group in data.tatoeba.values() for sentence in group}
    pool |= {s for _, _, text, kept_back in data.wiki if not kept_back for s in sentences_of(text) if 20 < len(s) < 200}
    pool |= {premise for premise, _, _ in data.snli}
    yield from ((sentence, sentence) for sentence in data.draw.sample(sorted(pool), 60_000))


KINDS: tuple[Callable[[Sources], Iterator[Pair]], ...] = (
    paraphrases, captions, synonyms, definitions, intents, questions, titles, keywords, neighbours,
    same,
)  # fmt: skip


# ---- running text


def documents(data: Sources) -> Iterator[str]:
    """Texts in today's words, then children's books, and a quarter of the other books."""
    yield from (f"{title}. {text}" for _, title, text, kept_back in data.wiki if not kept_back)
    yield from (f"{question} {answer}" for _, question, answer, kept_back in data.medquad if not kept_back)
    yield from (" ".join([row["title"] + ".", *row["source"], *row["target"]]) for row in data.scitldr)
    for country, rows in itertools.groupby(data.factbook, lambda row: row["country"]):
        yield country + ". " + " ".join(f"{row['field']}: {row['text']}." for row in rows)
    for synset in data.wordnet:
        yield ". ".join([f"{', '.join(synset['members'])}: {synset['definition']}", *synset["example"]]) + "."
    spoken = {sentence for group in data.tatoeba.values() for sentence in group}
    spoken |= {text for text, _, kept_back in data.intents("train") if not kept_back}
    spoken |= {sentence for premise, hypothesis, _ in data.snli for sentence in (premise, hypothesis)}
    talk = data.draw.sample(sorted(spoken), len(spoken))
    yield from (" ".join(talk[at : at + 12]) for at in range(0, len(talk), 12))
    for name, every in (("children_en/children", 1), ("books_en/books", 4)):
        yield from "\n".join(lines(data.path(f"{name}.txt.bz2"))).split(END)[::every]


# ---- what is kept back


def kept_back(data: Sources) -> dict[str, list[Pair]]:
    """Pairs by the data set: what is asked, and the right text."""
    wiki = {name: text for name, _, text, _ in data.wiki}
    groups = (group[:2] for name, group in data.tatoeba.items() if one_in(10, name))
    return {
        "wiki": [(question, wiki[gold]) for question, gold, secret in data.wiki_questions if secret],
        "medquad": [(question, answer) for _, question, answer, secret in data.medquad if secret],
        "fairytaleqa": [pair for two in zip(data.tales("val"), data.tales("test"), strict=False) for pair in two],
        "tatoeba": [(group[0], group[1]) for group in groups if len(group) > 1],
    }


def held_out(data: Sources, pairs: dict[str, list[Pair]]) -> dict[str, Any]:
    """Searches: queries, texts, and for each query the number of the right text. Groups: texts and their labels."""
    others = {
        "wiki": [text for _, _, text, secret in data.wiki if not secret],
        "tatoeba": sorted({sentence for group in data.tatoeba.values() for sentence in group}),
    }
    found: dict[str, Any] = {}
    for name, asked in pairs.items():
        beside = data.draw.sample(others[name], DISTRACTORS) if name in others else []
        texts = list(dict.fromkeys(plain(text) for text in (*(text for _, text in asked), *beside)))
        number = {text: n for n, text in enumerate(texts)}
        right = [number[plain(text)] for _, text in asked]
        found[name] = {"queries": [plain(query) for query, _ in asked], "texts": texts, "right": right}
    requests = [(text, intent) for text, intent, secret in data.intents("test") if secret]
    return found | {"intents": {"texts": [text for text, _ in requests], "labels": [label for _, label in requests]}}


# ---- files


def measured_by(paths: Iterable[Path]) -> set[str]:
    """The sentences of tables that vectors are measured by."""
    cells = {key_of(cell) for path in paths for line in lines(path) for cell in line.split("\t")}
    return {cell for cell in cells if " " in cell}


def write(path: Path, rows: Iterable[str]) -> int:
    """Rows of one kind and place stand together, so that repeated texts pack well; training draws its own order."""
    with bz2.open(path, "wt", encoding="utf-8") as file:
        return sum(file.write(row + "\n") > 0 for row in rows)


def as_json(pair: Pair) -> str:
    anchor, positive = map(plain, pair)
    return json.dumps({"anchor": anchor, "positive": positive}, ensure_ascii=False)


def write_pairs(path: Path, data: Sources, secret: set[str]) -> None:
    """Those of every kind without a text (as `key_of` gives it) that is secret."""
    counts: Counter[str] = Counter()

    def rows() -> Iterator[str]:
        for kind in KINDS:
            for pair in kind(data):
                keys = {key_of(plain(text)) for text in pair}
                if all(keys) and secret.isdisjoint(keys):
                    counts[kind.__name__] += 1
                    yield from itertools.repeat(as_json(pair), REPEATED.get(kind.__name__, 1))

    total = write(path, rows())
    print(*(f"{count:8,} {name}" for name, count in counts.items()), f"{total:8,} with repetitions", sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--without", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    data = Sources(given.data)
    back = kept_back(data)
    valid = [pair for pairs in back.values() for pair in pairs[::2]]
    measures = held_out(data, {name: pairs[1::2] for name, pairs in back.items()})
    secret = measured_by(given.without) | {key_of(text) for pair in back["tatoeba"] for text in pair}
    secret |= {key_of(text) for text in measures["intents"]["texts"]}
    write(given.out / "held_out.json.bz2", [json.dumps(measures, ensure_ascii=False)])
    write(given.out / "valid.jsonl.bz2", map(as_json, valid))
    write_pairs(given.out / "pairs.jsonl.bz2", data, secret)
    count = write(given.out / "text.txt.bz2", (plain(text) + "\n" + END for text in documents(data)))
    print(f"{count:8,} documents")


if __name__ == "__main__":
    main()
