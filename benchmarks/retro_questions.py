"""Does the library matter? Questions about facts that no training text held, answered with and without a store.

    python benchmarks/retro_questions.py QUESTIONS.jsonl --model runs/retro --store facts --edited facts-edited
    … --gpt runs/gpt        # a GPT of the same size beside it

QUESTIONS.jsonl is `test.jsonl` of zoo/factbook/make_data.py: question, answer, edited (what the edited store says),
document (where the answer stands), asked (seen or unseen: whether training has asked in these words).

An answer counts when it is the very text (exact match). Of the edited store: how many of the answers that were right
with the true store become what the edited one says. The GPT is asked without anything, and with the passages that the
store finds written before the question. Retrieval itself: how often the passage is among the first k.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import torch

import clearhead as ch
from clearhead.retrieval import Store

FRAME = "Question: {question}\nAnswer:"
BATCH = 32


def exact(answers: list[str], right: list[str]) -> list[bool]:
    return [one.strip() == other.strip() for one, other in zip(answers, right, strict=True)]


def ask_all(pipe: Any, questions: list[str], store: Any, neighbors: int) -> list[str]:
    found: list[str] = []
    options = {} if store is None else {"neighbors": neighbors}
    for first in range(0, len(questions), BATCH):
        answers = pipe.ask(questions[first : first + BATCH], store=store, **options)
        found += [answer.answer for answer in answers]
    return found


def write_all(pipe: Any, prompts: list[str]) -> list[str]:
    found: list[str] = []
    for first in range(0, len(prompts), BATCH):
        written = pipe.write(prompts[first : first + BATCH], max_new_tokens=40, stop_strings=["\n"], log_probs=False)
        found += [one.new_text for one in written]
    return found


def percent(hits: list[bool]) -> str:
    return f"{100 * sum(hits) / max(len(hits), 1):.1f} %"


def table(rows: dict[str, list[bool]], asked: list[str]) -> None:
    """Exact match of all, and by whether the words of the question were seen in training."""
    print(f"\n| answered | all {len(asked)} | asked in seen words | in unseen words |\n| --- | ---: | ---: | ---: |")
    for name, hits in rows.items():
        parts = [[hit for hit, kind in zip(hits, asked, strict=True) if kind == of] for of in ("seen", "unseen")]
        print(f"| {name} | {percent(hits)} | {percent(parts[0])} | {percent(parts[1])} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--edited", required=True)
    parser.add_argument("--gpt")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--neighbors", type=int, default=2)
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.questions.read_text(encoding="utf-8").splitlines()]
    random.Random(0).shuffle(rows)
    rows = rows[: given.limit]
    questions, right, edited = ([row[name] for row in rows] for name in ("question", "answer", "edited"))
    torch.manual_seed(0)

    store = Store(given.store)
    framed = [FRAME.format(question=question) for question in questions]
    hits = [found for first in range(0, len(rows), BATCH) for found in store.search(framed[first : first + BATCH], 20)]
    for k in (1, 2, 5, 20):
        among = [row["document"] in [hit.document for hit in found[:k]] for row, found in zip(rows, hits, strict=True)]
        print(f"recall@{k}: {percent(among)}")

    pipe = ch.load(given.model)
    started = time.process_time()
    answers = ask_all(pipe, questions, store, given.neighbors)
    seconds = time.process_time() - started
    true = exact(answers, right)
    results = {"with the store": true}
    results["without a store"] = exact(ask_all(pipe, questions, None, 0), right)
    other = ask_all(pipe, questions, Store(given.edited), given.neighbors)
    results["with the edited store: the true answer"] = exact(other, right)
    results["with the edited store: what it says"] = exact(other, edited)
    found = [
        hit
        for hit, row, passages in zip(true, rows, hits, strict=True)
        if row["document"] in [p.document for p in passages[: given.neighbors]]
    ]
    flipped = [new for new, was in zip(results["with the edited store: what it says"], true, strict=True) if was]
    if given.gpt:
        gpt = ch.load(given.gpt)
        results["a GPT of the same size, from its weights"] = exact(write_all(gpt, framed), right)
        prompts = [
            "".join(hit.text + hit.continuation + "\n" for hit in passages[: given.neighbors]) + one
            for passages, one in zip(hits, framed, strict=True)
        ]
        results["the same GPT with the passages in its prompt"] = exact(write_all(gpt, prompts), right)
    table(results, [row["asked"] for row in rows])
    print(f"\nwhere the passage was found: {percent(found)} right (of {len(found)})")
    print(f"right answers that flip with the edited store: {percent(flipped)} (of {len(flipped)})")
    print(f"{len(rows) / seconds:.1f} questions per processor second, retrieval included")


if __name__ == "__main__":
    main()
