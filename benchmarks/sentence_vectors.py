"""How good sentence vectors are: similarity as people judge it, and search.

    python benchmarks/sentence_vectors.py --sts sts-test.csv --sick SICK_test.txt --squad xquad.en.json MODEL …

--sts     STS Benchmark (tab-separated: genre, file, year, number, score, two sentences)
--sick    SICK (tab-separated, with a header: number, two sentences, relatedness, entailment)
--squad   questions with their paragraphs in SQuAD's format, also packed by bzip2: every question looks for its
          paragraph among all of them

Prints Spearman's correlation of the cosines with the judgements, the share of questions whose paragraph comes first,
and the mean reciprocal rank among the first ten. Several models are measured in one run.
"""

from __future__ import annotations

import argparse
import bz2
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import clearhead as ch


def ranks(values: Tensor) -> Tensor:
    """From 0 on; what is equal shares the mean of its places."""
    order = values.argsort()
    places = torch.empty(len(values), dtype=torch.float64)
    places[order] = torch.arange(len(values), dtype=torch.float64)
    _, group = values.unique(return_inverse=True)
    sums = torch.zeros(int(group.max()) + 1, dtype=torch.float64).scatter_add_(0, group, places)
    return sums[group] / group.bincount()[group]


def spearman(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([ranks(a), ranks(b)]))[0, 1])


def vectors(pipe: Any, texts: list[str]) -> Tensor:
    out: Tensor = pipe.embed(texts, normalize=True).float().cpu()
    return out


def similarity(pipe: Any, rows: list[tuple[str, str, float]]) -> dict[str, float]:
    first, second, scores = zip(*rows, strict=True)
    cosines = (vectors(pipe, list(first)) * vectors(pipe, list(second))).sum(-1)
    return {"spearman": spearman(cosines, torch.tensor(scores))}


def search(pipe: Any, questions: list[str], passages: list[str], gold: list[int]) -> dict[str, float]:
    scores = vectors(pipe, questions) @ vectors(pipe, passages).T  # (questions, passages)
    right = scores[torch.arange(len(questions)), torch.tensor(gold)]
    rank = (scores > right[:, None]).sum(1) + 1
    return {"first": float((rank == 1).float().mean()), "mrr@10": float(((rank <= 10) / rank).mean())}


def table(path: Path, columns: tuple[int, int, int], header: bool) -> list[tuple[str, str, float]]:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[int(header) :]]
    a, b, score = columns
    return [(row[a], row[b], float(row[score])) for row in rows]


def squad(path: Path) -> tuple[list[str], list[str], list[int]]:
    packed = path.read_bytes()
    data = json.loads(bz2.decompress(packed) if path.suffix == ".bz2" else packed)["data"]
    paragraphs = [paragraph for article in data for paragraph in article["paragraphs"]]
    pairs = [(qa["question"], n) for n, paragraph in enumerate(paragraphs) for qa in paragraph["qas"]]
    return [q for q, _ in pairs], [paragraph["context"] for paragraph in paragraphs], [n for _, n in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--sts", type=Path)
    parser.add_argument("--sick", type=Path)
    parser.add_argument("--squad", type=Path)
    given = parser.parse_args()
    for name in given.models:
        pipe = ch.load(name, task="features", device="cuda" if torch.cuda.is_available() else None)
        results: dict[str, dict[str, float]] = {}
        if given.sts:
            results["STS-B"] = similarity(pipe, table(given.sts, (5, 6, 4), header=False))
        if given.sick:
            results["SICK"] = similarity(pipe, table(given.sick, (1, 2, 3), header=True))
        if given.squad:
            results["search"] = search(pipe, *squad(given.squad))
        for measure, numbers in results.items():
            print(f"{name:24} {measure:8}", *(f"{key} {value:.3f}" for key, value in numbers.items()), sep="  ")


if __name__ == "__main__":
    main()
