"""Facts of The World Factbook as passages and questions: what stores for a RETRO and its training are made of.

A fact is a country, a field (fields.yaml) and a value. A passage tells the facts of one topic of one country in plain
sentences. Some countries are kept back: nothing of them is in any text that a model is trained on.
"""

from __future__ import annotations

import bz2
import json
import random
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml  # type: ignore[import-untyped, unused-ignore]

LONGEST_VALUE = 48  # characters
LONGEST_NAME = 34
HELD_OUT = 6  # one country in so many
RENAMED = {
    "DRC": "the Democratic Republic of the Congo",
    "The Dominican": "the Dominican Republic",
    "Gaza, Gaza Strip": "the Gaza Strip",
}
YEAR = re.compile(r"\s*\((?:\d{4}|FY)[^)]*\)")
SINCE = re.compile(r"\s*\(since[^)]*\).*")
ENDS = re.compile(r";| \(note|, note")


@dataclass(frozen=True)
class FactField:
    """One kind of fact: what fields.yaml says of it."""

    name: str
    topic: str
    field: str
    kind: str
    label: str
    sentence: str
    questions: tuple[str, ...]

    @property
    def unseen_question(self) -> str:
        """The way of asking that no training text has."""
        return self.questions[-1]


@dataclass(frozen=True)
class Passage:
    """The facts of one topic of one country: field name -> value."""

    country: str
    topic: str
    facts: dict[str, str]

    @property
    def document(self) -> str:
        return f"{self.country}: {self.topic}"


def read_fields(path: Path | None = None) -> dict[str, FactField]:
    raw = yaml.safe_load((path or Path(__file__).parent / "fields.yaml").read_text(encoding="utf-8"))
    found = {}
    for topic, fields in raw.items():
        for name, said in fields.items():
            questions = tuple(said.pop("questions"))
            found[name] = FactField(name=name, topic=topic, questions=questions, **said)
    return found


FIELDS = read_fields()


def country_name(raw: str) -> str | None:
    """As it stands in a sentence; None for what is no country and for lists of islands."""
    name = RENAMED.get(raw, raw)
    name = re.sub(r"\s*\((?!Brazzaville)[^)]*\)", "", name)
    name = re.sub(r"^The ", "the ", name)
    return None if "/" in name or name.count(",") > 0 or len(name) > LONGEST_NAME else name


def value_of(field: FactField, raw: str) -> str | None:
    """The short form of a value; None where there is none that is short."""
    text = ENDS.split(YEAR.sub("", SINCE.sub("", raw)))[0].strip().rstrip(",.-").strip()
    if field.name == "independence":
        text = text.split(" (")[0]
        if not re.match(r"\d{1,2} \w+ \d{4}$", text):
            return None
    elif field.name == "currency":
        text = text.split(" per ")[0]
    elif field.name == "partner":
        text = re.split(r" \d", text)[0]
    elif field.name == "product":
        text = text.split(",")[0]
    elif field.name == "location":
        text = ", ".join(text.split(", ")[:2])
    elif field.name in ("capital", "legislature"):
        text = text.split(" (")[0]
    elif field.name == "symbol":
        text = text.split(",")[0].split(" (")[0]
    elif field.name == "anthem":
        text = text.split(" (")[0].strip('"')
    if not text or len(text) > LONGEST_VALUE or text in ("NA", "none", "no") or "\n" in text:
        return None
    return text


def read_passages(path: Path) -> list[Passage]:
    """Every passage of the Factbook (passages.jsonl.bz2: country, field, text) that has two facts or more."""
    by_field = {field.field: field for field in FIELDS.values()}
    topics: dict[tuple[str, str], dict[str, str]] = {}
    with bz2.open(path, "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            field, country = by_field.get(record["field"]), country_name(record["country"])
            if field is None or country is None:
                continue
            value = value_of(field, record["text"])
            if value is not None:
                topics.setdefault((country, field.topic), {}).setdefault(field.name, value)
    return [Passage(country, topic, facts) for (country, topic), facts in topics.items() if len(facts) > 1]


def is_held_out(country: str) -> bool:
    """Whether nothing of it is in any training text. Decided by the name alone."""
    return zlib.crc32(country.encode()) % HELD_OUT == 0


def sentence(field: FactField, country: str, value: str) -> str:
    said = field.sentence.format(country=country, value=value)
    return said[0].upper() + said[1:]


def render(passage: Passage, names: Iterable[str] | None = None) -> str:
    """As the store has it: a sentence for every fact."""
    chosen = passage.facts if names is None else names
    return " ".join(sentence(FIELDS[name], passage.country, passage.facts[name]) for name in chosen)


def as_list(passage: Passage, names: Iterable[str]) -> str:
    """The same facts as a list of fields."""
    listed = (f"{FIELDS[name].label}: {passage.facts[name]}." for name in names)
    return f"{passage.country}, {passage.topic}. " + " ".join(listed)


class Variation:
    """Other values in place of true ones, so that an answer can only come from a passage.

    passages   whose values may be taken
    names      any names, of people, places and works
    """

    def __init__(self, passages: Iterable[Passage], names: list[str]) -> None:
        self.names = names
        self.pools: dict[str, list[str]] = {}
        for passage in passages:
            for name, value in passage.facts.items():
                self.pools.setdefault(name, []).append(value)

    def value(self, field: FactField, value: str, draw: random.Random) -> str:
        if field.kind == "number":
            return other_digits(draw.choice(self.pools[field.name]) if draw.random() < 0.5 else value, draw)
        if field.kind == "name" and draw.random() < 0.6:
            return draw.choice(self.names)
        return draw.choice(self.pools[field.name])

    def of(self, passage: Passage, draw: random.Random, country: str | None = None) -> Passage:
        """The same topic of a country by this name, with other values."""
        facts = {name: self.value(FIELDS[name], value, draw) for name, value in passage.facts.items()}
        return Passage(country or passage.country, passage.topic, facts)


MONTHS = "January February March April May June July August September October November December".split()


def other_digits(text: str, draw: random.Random) -> str:
    """Another number in place of the first, of about its size, or another date."""
    if len(words := text.split()) == 3 and words[1] in MONTHS:
        return f"{draw.randint(1, 28)} {draw.choice(MONTHS)} {draw.randint(1700, 2020)}"
    number, *unit = text.split(" ", 1)

    def digit(match: re.Match[str]) -> str:
        first = match.start() == 0 or not number[match.start() - 1].isdigit()
        return str(draw.randint(1 if first else 0, 9))

    changed = re.sub(r"\d", digit, number)
    if changed.endswith("%") and float(changed.strip("%-").replace(",", "")) > 100:
        changed = f"{draw.randint(1, 99)}.{draw.randint(0, 9)}%"
    return " ".join([changed, *unit])


def read_names(path: Path) -> list[str]:
    """Titles of Wikipedia's passages (passages.jsonl.bz2) that are short names."""
    with bz2.open(path, "rt", encoding="utf-8") as file:
        titles = [str(json.loads(line)["title"]) for line in file]
    plain = (re.sub(r"\s*\([^)]*\)", "", title).replace("_", " ").strip() for title in titles)
    return sorted({title for title in plain if re.fullmatch(r"[A-Z][A-Za-z'’.-]+(?: [A-Za-z'’.-]+){0,3}", title)})


def questions_for(passages: Iterable[Passage], draw: random.Random) -> Iterator[dict[str, str]]:
    """One seen and one unseen way of asking for every fact."""
    for passage in passages:
        for name, value in passage.facts.items():
            field = FIELDS[name]
            for kind, form in (("seen", draw.choice(field.questions[:-1])), ("unseen", field.unseen_question)):
                asked = form.format(country=passage.country)
                yield {"question": asked, "answer": value, "document": passage.document, "field": name, "asked": kind}
