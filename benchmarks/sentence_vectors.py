"""How good sentence vectors are: similarity as people judge it, search, and whether what means the same lies together.

    python benchmarks/sentence_vectors.py words bert-mini MODEL … --sts sts-test.csv --sick SICK_test_annotated.txt
        --squad xquad.en.json --held-out held_out.json.bz2

--sts        STS Benchmark (tab-separated: genre, file, year, number, score, two sentences): Spearman's correlation of
             the cosines with the judgements; may be given more than once
--sick       SICK (tab-separated, with a header: number, two sentences, relatedness, entailment): the same
--squad      questions with their paragraphs in SQuAD's format: every question looks for its paragraph among all; the
             shares that find it first and among five, and the mean reciprocal rank among the first ten
--held-out   the same for the sets that zoo/sentence_pairs.py keeps back; of requests, the share whose nearest other
             one wants the same, and the V-measure of k-means with as many clusters as there are intents

Several models are measured in one run. The model `words` has none: BM25 for searches, TF-IDF for the rest, the measure
that vectors of meaning should beat. Files may be packed by bzip2. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import bz2
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.metrics import v_measure_score
from torch import Tensor

import clearhead as ch

WORDS = "words"


class Meanings:
    """Vectors of a model."""

    def __init__(self, name: str) -> None:
        self.pipe: Any = ch.load(name, task="features", device="cuda" if torch.cuda.is_available() else None)

    def vectors(self, texts: list[str]) -> Tensor:
        """(texts, width), of unit length"""
        out: Tensor = self.pipe.embed(texts, normalize=True).float().cpu()
        return out

    def search_scores(self, queries: list[str], texts: list[str]) -> Tensor:
        """(queries, texts)"""
        return self.vectors(queries) @ self.vectors(texts).T


class Words:
    """Which words a text has, and how rare they are: no model."""

    def vectors(self, texts: list[str]) -> Tensor:
        return torch.from_numpy(TfidfVectorizer(token_pattern=r"\w+").fit_transform(texts).toarray()).float()

    def search_scores(self, queries: list[str], texts: list[str], k1: float = 1.2, b: float = 0.75) -> Tensor:
        """BM25"""
        counter = CountVectorizer(token_pattern=r"\w+")
        counts = counter.fit_transform(texts).astype("float32")  # (texts, words), sparse
        asked = counter.transform(queries).astype("float32")
        lengths, holding = np.asarray(counts.sum(1)).ravel(), np.asarray((counts > 0).sum(0)).ravel()
        rarity = np.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        counts = counts.tocoo()
        weight = counts.data * (k1 + 1) / (counts.data + k1 * (1 - b + b * lengths[counts.row] / lengths.mean()))
        counts.data = weight * rarity[counts.col]
        return torch.from_numpy((asked @ counts.tocsr().T).toarray())


Measured = Meanings | Words


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


def similarity(model: Measured, rows: list[tuple[str, str, float]]) -> dict[str, float]:
    first, second, scores = zip(*rows, strict=True)
    a, b = model.vectors([*first, *second]).chunk(2)
    return {"spearman": spearman((a * b).sum(-1), torch.tensor(scores))}


def search(model: Measured, queries: list[str], texts: list[str], right: list[int]) -> dict[str, float]:
    scores = model.search_scores(queries, texts)
    found = scores[torch.arange(len(queries)), torch.tensor(right)]
    rank = (scores > found[:, None]).sum(1) + 1
    shares = {f"first {k}" if k > 1 else "first": float((rank <= k).float().mean()) for k in (1, 5)}
    return shares | {"mrr@10": float(((rank <= 10) / rank).mean())}


def grouping(model: Measured, texts: list[str], labels: list[str]) -> dict[str, float]:
    vectors, numbers = model.vectors(texts), {label: n for n, label in enumerate(sorted(set(labels)))}
    wanted = torch.tensor([numbers[label] for label in labels])
    nearest = (vectors @ vectors.T).fill_diagonal_(-2.0).argmax(1)
    clusters = KMeans(len(numbers), n_init=3, random_state=1).fit_predict(vectors.numpy())
    same = float((wanted[nearest] == wanted).float().mean())
    return {"nearest": same, "v-measure": float(v_measure_score(wanted.numpy(), clusters))}


def text_of(path: Path) -> str:
    packed = path.read_bytes()
    return (bz2.decompress(packed) if path.suffix == ".bz2" else packed).decode("utf-8")


def table(path: Path, columns: tuple[int, int, int], header: bool) -> list[tuple[str, str, float]]:
    rows = [line.split("\t") for line in text_of(path).splitlines()[int(header) :]]
    a, b, score = columns
    return [(row[a], row[b], float(row[score])) for row in rows]


def squad(path: Path) -> tuple[list[str], list[str], list[int]]:
    paragraphs = [paragraph for article in json.loads(text_of(path))["data"] for paragraph in article["paragraphs"]]
    pairs = [(qa["question"], n) for n, paragraph in enumerate(paragraphs) for qa in paragraph["qas"]]
    return [q for q, _ in pairs], [paragraph["context"] for paragraph in paragraphs], [n for _, n in pairs]


def measures(given: argparse.Namespace) -> dict[str, tuple[Callable[..., dict[str, float]], tuple[Any, ...]]]:
    """By the name of the set: what is done with a model, and with which data."""
    found: dict[str, tuple[Callable[..., dict[str, float]], tuple[Any, ...]]] = {}
    for path in given.sts:
        found[path.stem] = similarity, (table(path, (5, 6, 4), header=False),)
    if given.sick:
        found["SICK"] = similarity, (table(given.sick, (1, 2, 3), header=True),)
    if given.squad:
        found[given.squad.name.split(".")[0]] = search, squad(given.squad)
    for name, kept in json.loads(text_of(given.held_out)).items() if given.held_out else ():
        found[name] = search if "queries" in kept else grouping, tuple(kept.values())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--sts", type=Path, action="append", default=[])
    parser.add_argument("--sick", type=Path)
    parser.add_argument("--squad", type=Path)
    parser.add_argument("--held-out", type=Path)
    given = parser.parse_args()
    sets = measures(given)
    for name in given.models:
        model = Words() if name == WORDS else Meanings(name)
        for measure, (run, data) in sets.items():
            numbers = "  ".join(f"{key} {value:.3f}" for key, value in run(model, *data).items())
            print(f"{Path(name).name:20} {measure:12} {numbers}", flush=True)


if __name__ == "__main__":
    main()
