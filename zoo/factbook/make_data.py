"""The data of a RETRO that answers from The World Factbook, of its encoder and its two stores. For maintainers.

    python zoo/factbook/make_data.py OUT DATA

DATA holds the data sets factbook and wiki_passages, a folder each, as they were published. OUT gets

    factbook.jsonl, edited.jsonl   the passages of the two stores: id, text (clearhead index build … --id-column id)
    pairs.jsonl, valid_pairs.jsonl questions with the passage that answers them and one that does not (the encoder)
    tokenizer/                     BPE, made from all texts but those of the countries that are kept back
    train.jsonl, valid.jsonl       token ids with their neighbours, for the objective retrieval-lm
    gpt.jsonl, gpt_valid.jsonl     the same questions as text, half of them behind their passages (the GPT beside it)
    test.jsonl                     what is asked of the countries that are kept back: question, answer, edited answer

In training, values, and often names, are varied: no fact can be learned by heart, so it must come from a passage.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from facts import FIELDS, Passage, Variation, as_list, is_held_out, questions_for, read_names, read_passages, render

from clearhead.text import Tokenizer, train_tokenizer

CHUNK, LONGEST, NEIGHBOR = 64, 116, 96  # tokens: of a question with what fills it up; of all; of a neighbour
END = "<|endoftext|>"
UNKNOWN = "unknown"
ALL = (
    "What is known about the {topic} of {country}?",
    "What does the library say about the {topic} of {country}?",
    "Tell me about the {topic} of {country}.",
)
FRAME = "Question: {question}\nAnswer:"


class Examples:
    """Questions with two passages, drawn anew each time.

    recited   the share of examples in which a whole passage is asked for: every token of the answer is copied, which
              teaches copying far sooner than short answers do
    """

    def __init__(self, passages: list[Passage], names: list[str], draw: random.Random, recited: float = 0.45) -> None:
        self.passages, self.names, self.draw, self.recited = passages, names, draw, recited
        self.variation = Variation(passages, names)
        self.by_topic: dict[str, list[Passage]] = {}
        for passage in passages:
            self.by_topic.setdefault(passage.topic, []).append(passage)

    def passage(self, country: str | None = None, topic: str | None = None, true_values: float = 0.3) -> Passage:
        """One passage, of this name and topic if they are given."""
        draw = self.draw
        base = draw.choice(self.by_topic[topic] if topic else self.passages)
        name = country or (base.country if draw.random() < 0.6 else draw.choice(self.names))
        if draw.random() < true_values:
            return Passage(name, base.topic, base.facts)
        return self.variation.of(base, draw, name)

    def beside(self, right: Passage) -> Passage:
        """A passage that is near and does not answer: another topic of the country, or the topic of another."""
        draw = self.draw
        if draw.random() < 0.5:
            return self.passage(right.country, draw.choice([topic for topic in self.by_topic if topic != right.topic]))
        return self.passage(topic=right.topic)

    def text(self, passage: Passage) -> str:
        """Sentences, as in the store, or a list; some facts may be missing, in any order."""
        names = list(passage.facts)
        if self.draw.random() < 0.5:
            self.draw.shuffle(names)
        return render(passage, names) if self.draw.random() < 0.75 else as_list(passage, names)

    def question(self, name: str, country: str) -> str:
        return self.draw.choice(FIELDS[name].questions[:-1]).format(country=country)

    def draw_one(self) -> tuple[list[str], list[tuple[str, str]]]:
        """The texts of two passages, and questions with their answers; any of the two may be the one that answers."""
        draw = self.draw
        right = self.passage()
        other = self.beside(right)
        if draw.random() < self.recited:
            told = self.text(right)
            texts = [told, self.text(other)]
            draw.shuffle(texts)
            return texts, [(draw.choice(ALL).format(topic=right.topic, country=right.country), told)]
        asked = draw.sample(list(right.facts), k=min(len(right.facts), 4))
        if draw.random() < 0.06:  # nothing here answers
            other_than = [self.beside(right) for _ in range(2)]
            found = [p for p in other_than if not (p.country == right.country and p.topic == right.topic)]
            return [self.text(p) for p in found], [(self.question(asked[0], right.country), UNKNOWN)]
        pairs = [(self.question(name, right.country), right.facts[name]) for name in asked]
        if draw.random() < 0.3 and (other.country, other.topic) != (right.country, right.topic):
            name = draw.choice(list(other.facts))
            pairs.insert(draw.randint(1, len(pairs)), (self.question(name, other.country), other.facts[name]))
        texts = [self.text(right), self.text(other)]
        draw.shuffle(texts)
        return texts, pairs


def record(examples: Examples, tokenizer: Tokenizer) -> dict[str, Any]:
    """The first question ends with the first chunk, so that its passages act on the first word of the answer."""
    texts, pairs = examples.draw_one()

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    assert tokenizer.eos_token_id is not None
    first = ids(FRAME.format(question=pairs[0][0]))
    rest = ids(f" {pairs[0][1]}\n")
    for question, answer in pairs[1:]:
        more = ids(FRAME.format(question=question)) + ids(f" {answer}\n")
        if CHUNK + len(rest) + len(more) > LONGEST:
            break
        rest += more
    text = [tokenizer.eos_token_id] * (CHUNK - len(first)) + first[:CHUNK] + rest + [tokenizer.eos_token_id]
    found = [ids(text)[:NEIGHBOR] for text in texts]
    width = max(map(len, found), default=0)
    padded = [row + [tokenizer.eos_token_id] * (width - len(row)) for row in found]
    return {"input_ids": text[:LONGEST], "neighbor_ids": [padded] if padded else []}


def pair(examples: Examples) -> dict[str, str]:
    """A question, the passage that answers it, and one that is near and does not."""
    right = examples.passage()
    wrong = examples.beside(right)
    asked = examples.question(examples.draw.choice(list(right.facts)), right.country)
    framed = FRAME.format(question=asked) if examples.draw.random() < 0.6 else asked
    return {"anchor": framed, "positive": render(right), "negative": render(wrong)}


def plain_text(examples: Examples, passages: list[Passage]) -> str:
    """For the GPT: half with the passages in front, half true facts without, which it may learn by heart."""
    if examples.draw.random() < 0.5:
        texts, pairs = examples.draw_one()
        front = "".join(text + "\n" for text in texts)
    else:
        one = examples.draw.choice(passages)
        front, pairs = "", [(examples.question(name, one.country), value) for name, value in one.facts.items()]
        examples.draw.shuffle(pairs)
    return front + "".join(f"{FRAME.format(question=question)} {answer}\n" for question, answer in pairs)


def edited(passages: Iterable[Passage], draw: random.Random) -> Iterator[Passage]:
    """Every passage with the values of other countries, and other numbers."""
    listed = list(passages)
    pools = Variation(listed, [])
    for passage in listed:
        facts = {}
        for name, value in passage.facts.items():
            field, other = FIELDS[name], value
            while other == value:
                other = (
                    pools.value(field, value, draw) if field.kind == "number" else draw.choice(pools.pools[field.name])
                )
            facts[name] = other
        yield Passage(passage.country, passage.topic, facts)


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        count = sum(file.write(json.dumps(row, ensure_ascii=False) + "\n") > 0 for row in rows)
    print(f"{count:8,} {path.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=60_000)
    given = parser.parse_args()
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)

    passages = read_passages(given.data / "factbook/passages.jsonl.bz2")
    names = read_names(given.data / "wiki_passages/passages.jsonl.bz2")
    known = [p for p in passages if not is_held_out(p.country)]
    kept_back = [p for p in passages if is_held_out(p.country)]
    changed = list(edited(passages, random.Random(7)))
    write(out / "factbook.jsonl", ({"id": p.document, "text": render(p)} for p in passages))
    write(out / "edited.jsonl", ({"id": p.document, "text": render(p)} for p in changed))
    answers = {(p.document, name): value for p in changed for name, value in p.facts.items()}
    asked = questions_for(kept_back, random.Random(5))
    write(out / "test.jsonl", (q | {"edited": answers[q["document"], q["field"]]} for q in asked))

    def examples(seed: int, recited: float = 0.45) -> Examples:
        return Examples(known, names, random.Random(seed), recited)

    for name, seed, count in (("pairs", 11, given.pairs), ("valid_pairs", 12, 1000)):
        source = examples(seed)
        write(out / f"{name}.jsonl", (pair(source) for _ in range(count)))
    for name, seed, count in (("gpt", 13, given.records), ("gpt_valid", 14, 1000)):
        source = examples(seed)
        write(out / f"{name}.jsonl", ({"text": plain_text(source, known)} for _ in range(count)))
    read = examples(17, recited=0.0)
    texts = [plain_text(read, known) for _ in range(30_000)]
    tokenizer = train_tokenizer(iter(texts), kind="bpe", vocab_size=6144)
    tokenizer.save(out / "tokenizer")
    for name, seed, count in (("train", 15, given.records), ("valid", 16, 1000)):
        source = examples(seed)
        write(out / f"{name}.jsonl", (record(source, tokenizer) for _ in range(count)))


if __name__ == "__main__":
    main()
