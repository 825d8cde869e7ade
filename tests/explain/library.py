"""A tiny RETRO with chunks of four tokens, and a shelf of passages that is searched without a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace

import numpy as np

from clearhead.explain.passages import passages
from clearhead.explain.retrieval_ablation import retrieval_ablation
from clearhead.explain.store_map import store_map
from tests.tiny import TEXT, tiny_pipeline

SIZES = {
    "num_hidden_layers": 2, "chunked_attention_layers": [1, 2], "chunk_size": 4, "embedding_size": None,
    "encoder_hidden_size": 8, "encoder_heads": 2, "encoder_head_dim": 4, "max_position_embeddings": 80,
}  # fmt: skip


@dataclass(frozen=True)
class ShelfHit:
    text: str
    continuation: str
    document: str
    position: int
    score: float
    source: str = "shelf.txt"
    vector: np.ndarray | None = None


class Shelf:
    """As `clearhead.retrieval.Store`, without a table: a text finds the passages that share most letters with it."""

    where = "somewhere/shelf"
    settings = SimpleNamespace(encoder="letters", metric="cosine", width=26)

    def __init__(self, *texts: str) -> None:
        given = texts or ("a dog sat", "the cat ran", "on the mat", "我喜欢猫", "unbelievably", "don't")
        self.hits = [
            ShelfHit(text, " and ran on the sofa" if n < 2 else "", f"book {n}", 0, float("nan"), vector=key(text))
            for n, text in enumerate(given)
        ]

    def __len__(self) -> int:
        return len(self.hits)

    def keys(self, texts: list[str]) -> np.ndarray:
        return np.stack([key(text) for text in texts])

    def search(self, text: str, k: int, vectors: bool = False) -> list[ShelfHit]:
        scored = [replace(hit, score=float(hit.vector @ key(text))) for hit in self.hits]
        return sorted(scored, key=lambda hit: -hit.score)[:k]

    def sample(self, count: int, seed: int = 0, vectors: bool = False) -> list[ShelfHit]:
        order = np.random.default_rng(seed).permutation(len(self.hits))[:count]
        return [self.hits[n] for n in order]


def key(text: str) -> np.ndarray:
    counts = np.array([text.count(chr(97 + n)) for n in range(26)], np.float32) + 0.01
    return counts / np.linalg.norm(counts)


@cache
def retro(null_key: bool = False):
    return tiny_pipeline("retro", **SIZES, null_key=null_key)


def of_library():
    """Every kind of finding about retrieval."""
    asked = {"store": Shelf(), "max_new_tokens": 3}
    return (
        store_map(retro(), TEXT, store=Shelf(), near=3),
        passages(retro(null_key=True), TEXT, **asked),
        retrieval_ablation(retro(), TEXT, neighbors=1, **asked),
    )
