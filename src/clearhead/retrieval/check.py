"""Whether a store is whole: documents with all their chunks and their own text, vectors as the encoder makes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from clearhead.messages import say
from clearhead.retrieval.rows import RowMaker
from clearhead.retrieval.table import ChunkTable

AGAIN = 16  # chunks that are embedded again
NEAR = 1e-3  # how far a number of a vector may be from what it was: other machines round otherwise
MOST_PROBLEMS = 20


@dataclass
class CheckReport:
    """`problems` in words; a store without any is good."""

    documents: int = 0
    chunks: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.problems


@dataclass
class _MetDocument:
    """The chunks of a document that were met: how many it says it has, and what they say."""

    digest: str
    chunks: int
    texts: dict[int, str] = field(default_factory=dict)
    is_mixed: bool = False  # rows of different versions, or one twice


def check(table: ChunkTable, maker: RowMaker) -> CheckReport:
    report, documents = CheckReport(), dict[str, _MetDocument]()
    sample: list[tuple[str, np.ndarray]] = []
    step = max(1, len(table) // AGAIN)
    for batch in table.rows(["document", "position", "chunks", "digest", "text", "vector"]):
        rows = batch.to_pydict()
        width = table.settings.width
        vectors = np.asarray(batch["vector"].flatten(), np.float32).reshape(-1, width)
        for n in range(len(batch)):
            name, position = rows["document"][n], rows["position"][n]
            known = documents.setdefault(name, _MetDocument(rows["digest"][n], rows["chunks"][n]))
            other = (known.digest, known.chunks) != (rows["digest"][n], rows["chunks"][n])
            known.is_mixed |= other or position in known.texts
            known.texts[position] = rows["text"][n]
            if (report.chunks + n) % step == 0 and len(sample) < AGAIN:
                sample.append((rows["text"][n], vectors[n]))
        report.chunks += len(batch)
        report.problems += _bad_vectors(vectors, rows["document"], table.settings.metric)
    report.documents = len(documents)
    report.problems += [problem for name, known in documents.items() for problem in _bad_document(name, known)]
    if report.chunks != len(table):
        report.problems.append(say("retrieval.check_count", found=report.chunks, count=len(table)))
    report.problems += _bad_keys(sample, maker)
    del report.problems[MOST_PROBLEMS:]
    return report


def _bad_vectors(vectors: np.ndarray, names: list[str], metric: str) -> Iterator[str]:
    good = np.isfinite(vectors).all(1)
    if metric == "cosine":
        good &= np.abs(np.linalg.norm(vectors, axis=1) - 1) < NEAR
    for n in np.flatnonzero(~good):
        yield say("retrieval.check_vector", document=names[n])


def _bad_document(name: str, known: _MetDocument) -> Iterator[str]:
    if known.is_mixed or sorted(known.texts) != list(range(known.chunks)):
        yield say("retrieval.check_chunks", document=name, found=len(known.texts), chunks=known.chunks)
        return
    text = "".join(known.texts[n] for n in range(known.chunks))
    if hashlib.blake2b(text.encode(), digest_size=16).hexdigest() != known.digest:
        yield say("retrieval.check_text", document=name)


def _bad_keys(sample: list[tuple[str, np.ndarray]], maker: RowMaker) -> Iterator[str]:
    """Some chunks again: their vectors must be those that are kept."""
    again = maker.vectors([text for text, _ in sample])
    wrong = sum(float(np.abs(kept - now).max()) > NEAR for (_, kept), now in zip(sample, again, strict=True))
    if wrong:
        yield say("retrieval.check_keys", wrong=wrong, count=len(sample), encoder=maker.encoder.name)
