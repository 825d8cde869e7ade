"""Vector stores side by side: build time, queries a second, recall@10 against exact search, memory and disk.

    python benchmarks/vector_stores.py --chunks 100000
    python benchmarks/vector_stores.py --chunks 1000000

The table of a Clearhead store (LanceDB: exact, and with its IVF-PQ index), faiss (flat, IVF-PQ with the same cells and
codes, HNSW), hnswlib and usearch, in one run over the same vectors: a mixture of clusters of very different sizes,
of unit length, 256 numbers each; the queries are drawn from it too. Texts are left empty, so that disks compare. Each
store builds in a process of its own, and another opens what is on the disk and answers queries one by one. Time is that
of the clock, and beside it that of the processors, which says more where the machine is busy with other things. Memory
is the most that a process holds of its own while it works, less what it held before; pages of files are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

WIDTH, K, CLUSTERS = 256, 10, 2000
BLOCK = 100_000


class VectorStore:
    """How one store is built from vectors (n, width) into a folder, and then searched."""

    def build(self, vectors: np.ndarray, folder: Path, threads: int) -> None:
        raise NotImplementedError

    def open(self, folder: Path, threads: int) -> None:
        raise NotImplementedError

    def search(self, query: np.ndarray) -> list[int]:
        raise NotImplementedError


class LanceExact(VectorStore):
    indexed: ClassVar[bool] = False

    def build(self, vectors: np.ndarray, folder: Path, threads: int) -> None:
        import pyarrow as pa

        from clearhead.retrieval.settings import StoreSettings
        from clearhead.retrieval.table import ChunkTable, schema_of

        settings = StoreSettings("none", "", WIDTH, "none", "")
        table = ChunkTable.create(str(folder), settings)
        for first in range(0, len(vectors), BLOCK):
            some = np.asarray(vectors[first : first + BLOCK])
            count = len(some)
            plain = {name: [""] * count for name in ("digest", "source", "text", "continuation")}
            columns = plain | {
                "document": [str(first + n) for n in range(count)], "position": [0] * count, "chunks": [1] * count,
                "tokens": [[]] * count, "continuation_tokens": [[]] * count,
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(some.ravel()), WIDTH),
            }  # fmt: skip
            table.add(pa.table(columns, schema=schema_of(settings)))
        if self.indexed:
            table.make_index()

    def open(self, folder: Path, threads: int) -> None:
        from clearhead.retrieval.table import ChunkTable

        self.table = ChunkTable.open(str(folder))

    def search(self, query: np.ndarray) -> list[int]:
        return [int(found.row["document"]) for found in self.table.search(query[None], K)[0]]


class LanceIndexed(LanceExact):
    indexed = True


class Faiss(VectorStore):
    """factory: faiss's own words for a kind of index, with the number of cells to be filled in"""

    factory: ClassVar[str] = "Flat"

    def build(self, vectors: np.ndarray, folder: Path, threads: int) -> None:
        import faiss

        faiss.omp_set_num_threads(threads)
        kind = self.factory.format(cells=max(1, len(vectors) // 1024))
        index = faiss.index_factory(WIDTH, kind, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            cells = max(1, len(vectors) // 1024)
            index.train(np.asarray(vectors[: max(256 * cells, 65_536)]))
        for first in range(0, len(vectors), BLOCK):
            index.add(np.asarray(vectors[first : first + BLOCK]))
        faiss.write_index(index, str(folder / "index"))

    def open(self, folder: Path, threads: int) -> None:
        import faiss

        faiss.omp_set_num_threads(threads)
        self.index = faiss.read_index(str(folder / "index"))
        if "IVF" in self.factory:
            self.parameters = faiss.IndexRefineSearchParameters(
                k_factor=16, base_index_params=faiss.SearchParametersIVF(nprobe=32)
            )
        else:
            self.parameters = faiss.SearchParametersHNSW(efSearch=100) if "HNSW" in self.factory else None

    def search(self, query: np.ndarray) -> list[int]:
        return self.index.search(query[None], K, params=self.parameters)[1][0].tolist()


class FaissIvfPq(Faiss):
    factory = "IVF{cells},PQ64,RFlat"


class FaissHnsw(Faiss):
    factory = "HNSW16"


class Hnswlib(VectorStore):
    def build(self, vectors: np.ndarray, folder: Path, threads: int) -> None:
        import hnswlib

        index = hnswlib.Index("cosine", WIDTH)
        index.init_index(len(vectors), M=16, ef_construction=200)
        for first in range(0, len(vectors), BLOCK):
            some = np.asarray(vectors[first : first + BLOCK])
            index.add_items(some, np.arange(first, first + len(some)), num_threads=threads)
        index.save_index(str(folder / "index"))

    def open(self, folder: Path, threads: int) -> None:
        import hnswlib

        self.index = hnswlib.Index("cosine", WIDTH)
        self.index.load_index(str(folder / "index"))
        self.index.set_num_threads(threads)
        self.index.set_ef(100)

    def search(self, query: np.ndarray) -> list[int]:
        return self.index.knn_query(query, K)[0][0].tolist()


class Usearch(VectorStore):
    def build(self, vectors: np.ndarray, folder: Path, threads: int) -> None:
        from usearch.index import Index

        index = Index(ndim=WIDTH, metric="cos", dtype="f32", connectivity=16, expansion_add=200, expansion_search=100)
        for first in range(0, len(vectors), BLOCK):
            some = np.asarray(vectors[first : first + BLOCK])
            index.add(np.arange(first, first + len(some)), some, threads=threads)
        index.save(str(folder / "index"))

    def open(self, folder: Path, threads: int) -> None:
        from usearch.index import Index

        self.index = Index.restore(str(folder / "index"))
        self.index.expansion_search = 100

    def search(self, query: np.ndarray) -> list[int]:
        return self.index.search(query, K).keys.tolist()


STORES: dict[str, type[VectorStore]] = {
    "LanceDB, exact": LanceExact,
    "LanceDB, IVF-PQ": LanceIndexed,
    "faiss, flat": Faiss,
    "faiss, IVF-PQ": FaissIvfPq,
    "faiss, HNSW": FaissHnsw,
    "hnswlib": Hnswlib,
    "usearch": Usearch,
}


class Resident:
    """The most memory of its own, in MiB, while it watches, less what there was first."""

    def __enter__(self) -> Resident:
        self.first = self.most = self._now()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        self.most = max(self.most, self._now())

    def _watch(self) -> None:
        while not self.stop.wait(0.05):
            self.most = max(self.most, self._now())

    @staticmethod
    def _now() -> float:
        """Without the pages of files: the vectors that are given to a store are mapped from one."""
        fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
        return int(fields["RssAnon"].split()[0]) / 1024

    @property
    def grown(self) -> float:
        return self.most - self.first


def draw(count: int, queries: int, folder: Path) -> None:
    """Clusters whose sizes follow Zipf's law, each with a spread of its own and 32 directions in which it is wide."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLUSTERS, WIDTH)).astype(np.float32)
    common = rng.normal(size=WIDTH).astype(np.float32)  # vectors of language models point one way, more or less
    directions = rng.normal(size=(CLUSTERS, 8, WIDTH)).astype(np.float32) / 8**0.5
    share = 1 / np.arange(1, CLUSTERS + 1)
    for name, total in (("vectors", count), ("queries", queries)):
        out = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (total, WIDTH))
        for first in range(0, total, BLOCK):
            size = min(BLOCK, total - first)
            cluster = rng.choice(CLUSTERS, size, p=share / share.sum())
            some = common + centres[cluster] + 0.4 * rng.normal(size=(size, WIDTH)).astype(np.float32)
            for n in range(8):
                some += rng.normal(size=(size, 1)).astype(np.float32) * directions[cluster, n]
            out[first : first + size] = some / np.linalg.norm(some, axis=1, keepdims=True)
        out.flush()
    best = np.empty((queries, K), np.int64)
    vectors, asked = np.load(folder / "vectors.npy", mmap_mode="r"), np.load(folder / "queries.npy")
    scores = np.full((queries, K), -np.inf, np.float32)
    for first in range(0, count, BLOCK):
        some = asked @ np.asarray(vectors[first : first + BLOCK]).T
        places = np.argpartition(-some, K - 1, 1)[:, :K] if some.shape[1] > K else np.argsort(-some, 1)
        both = np.concatenate([scores, np.take_along_axis(some, places, 1)], 1)
        names = np.concatenate([best, places + first], 1)
        kept = np.argsort(-both, 1)[:, :K]
        scores, best = np.take_along_axis(both, kept, 1), np.take_along_axis(names, kept, 1)
    np.save(folder / "best.npy", best)


def build_one(name: str, data: Path, folder: Path, threads: int) -> dict[str, Any]:
    vectors = np.load(data / "vectors.npy", mmap_mode="r")
    begin, cpu = time.perf_counter(), time.process_time()
    with Resident() as memory:
        STORES[name]().build(vectors, folder, threads)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    return {"build_s": seconds, "build_cpu": cpu, "build_mib": memory.grown, "disk_mib": disk}


def search_one(name: str, data: Path, folder: Path, threads: int) -> dict[str, Any]:
    queries, best = np.load(data / "queries.npy"), np.load(data / "best.npy")
    store = STORES[name]()
    with Resident() as memory:
        store.open(folder, threads)
        for query in queries[:5]:
            store.search(query)
        begin, cpu = time.perf_counter(), time.process_time()
        found = [store.search(query) for query in queries]
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    recall = float(np.mean([len(set(some) & set(right)) / K for some, right in zip(found, best.tolist(), strict=True)]))
    count = len(queries)
    return {"queries_s": count / seconds, "queries_cpu": count / cpu, "recall": recall, "search_mib": memory.grown}


def child(job: str, name: str, data: Path, folder: Path, threads: int) -> dict[str, Any]:
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "LANCE_CPU_THREADS": str(threads)}
    words = [sys.executable, __file__, "--job", job, "--store", name, "--data", str(data), "--folder", str(folder)]
    done = subprocess.run([*words, "--threads", str(threads)], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name} failed to {job}:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--stores", nargs="*", default=list(STORES), choices=list(STORES))
    parser.add_argument("--work", type=Path, help="where to write, some GB for a million; default: a temporary folder")
    parser.add_argument("--job", choices=["build", "search"], help=argparse.SUPPRESS)
    for name in ("--store", "--data", "--folder"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        run = build_one if asked.job == "build" else search_one
        print(json.dumps(run(asked.store, Path(asked.data), Path(asked.folder), asked.threads)))
        return
    with tempfile.TemporaryDirectory(dir=asked.work) as temporary:
        data = Path(temporary)
        print(f"{asked.chunks:,} vectors of {WIDTH}, {asked.queries} queries, {asked.threads} threads, "
              f"{platform.processor() or platform.machine()}; load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
        draw(asked.chunks, asked.queries, data)
        print("| store | build, s | CPU, s | MiB | disk, MiB | queries/s | per CPU s | MiB | recall@10 |")
        print("| --- |" + " ---: |" * 8, flush=True)
        for n, name in enumerate(asked.stores):
            folder = data / str(n)
            folder.mkdir()
            row = child("build", name, data, folder, asked.threads) | child("search", name, data, folder, asked.threads)
            print(
                f"| {name} | {row['build_s']:.1f} | {row['build_cpu']:.1f} | {row['build_mib']:,.0f} | "
                f"{row['disk_mib']:,.0f} | {row['queries_s']:,.0f} | {row['queries_cpu']:,.0f} | "
                f"{row['search_mib']:,.0f} | {row['recall']:.3f} |",
                flush=True,
            )
        print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
