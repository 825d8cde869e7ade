"""The table in LanceDB: a row for each chunk, in a folder or at an address of object storage. Only this file knows it.

Every change is one commit of LanceDB's, and holds whole documents: whatever stops a process, a document is there with
all its chunks or not at all, and the first row of each (position 0) tells its digest. The settings of the store are the
metadata of the table's schema, so the table and they come into being together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clearhead.errors import ClearheadError, StoreError
from clearhead.files import lock
from clearhead.hub import user_path
from clearhead.messages import say
from clearhead.retrieval.metrics import score
from clearhead.retrieval.settings import StoreSettings

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "chunks"
LOCK = ".lock"
FRESH = timedelta(seconds=5)  # for so long a reader of object storage does not ask whether somebody has written
OLD = timedelta(minutes=10)  # versions older than this are removed: nobody reads them any more
NAMES_AT_ONCE = 500  # in one condition
PARTITION = 1024  # vectors in a cell of the index, about
REFINE = 16  # so many times more candidates than asked for are compared by their whole vectors
PROBES = 32  # cells that a search looks into
FEWEST_FOR_PQ = 256  # vectors that the codes are learned from


class KnownDocument(NamedTuple):
    digest: str
    chunks: int
    source: str


class FoundRow(NamedTuple):
    """A row, and how alike it is."""

    row: dict[str, Any]
    score: float


def lance() -> Any:
    """The package, or how to get it."""
    try:
        import lancedb
    except ImportError:
        raise StoreError(say("retrieval.not_installed")) from None
    return lancedb


def schema_of(settings: StoreSettings) -> pa.Schema:
    lance()
    import pyarrow as pa

    tokens = pa.list_(pa.int32())
    columns = [
        pa.field("document", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),  # which chunk of the document, from 0
        pa.field("chunks", pa.int32(), nullable=False),  # how many the document has
        pa.field("digest", pa.string(), nullable=False),  # of the document's text
        pa.field("source", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("continuation", pa.string(), nullable=False),  # the text of the next chunk; "" for the last
        pa.field("tokens", tokens, nullable=False),
        pa.field("continuation_tokens", tokens, nullable=False),
        pa.field("vector", pa.list_(pa.float32(), settings.width), nullable=False),
    ]
    return pa.schema(columns, metadata=settings.to_metadata())


def is_address(where: str) -> bool:
    """Of object storage, such as s3://bucket/store; anything else is a folder."""
    return "://" in where


def place_of(where: str | os.PathLike[str]) -> str:
    name = os.fspath(where)
    return name if is_address(name) else str(user_path(name))


@contextmanager
def lance_errors(where: str, writing: bool = False) -> Iterator[None]:
    """What LanceDB raises, in words; its errors are plain ones of several kinds."""
    try:
        yield
    except ClearheadError:
        raise
    except (RuntimeError, OSError, ValueError) as error:
        reason = str(error).replace("\n", " ").removeprefix("lance error: ").partition(", /")[0]
        key = "retrieval.cannot_write" if writing else "retrieval.damaged"
        raise StoreError(say(key, where=where, reason=reason)) from None


@contextmanager
def locked(where: str) -> Iterator[None]:
    """Two processes must not write to one store. Object storage has no locks: there it is up to whoever builds."""
    if is_address(where):
        yield
        return
    folder = Path(where)
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / LOCK).open("w")
    except OSError as error:
        raise StoreError(say("retrieval.cannot_write", where=where, reason=error.strerror or str(error))) from None
    with handle:
        if not lock(handle):
            raise StoreError(say("retrieval.in_use", where=where))
        try:
            yield
        finally:
            if new and [path.name for path in folder.iterdir()] == [LOCK]:  # nothing came of it
                (folder / LOCK).unlink()
                for path in new:
                    path.rmdir()


def _connect(where: str) -> Any:
    return lance().connect(where, read_consistency_interval=FRESH if is_address(where) else timedelta(0))


def exists(where: str) -> bool:
    """Whether there is a table; an error for a place that holds something else."""
    if is_address(where):
        with lance_errors(where):
            return NAME in _connect(where).list_tables().tables
    folder = Path(where)
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise StoreError(say("retrieval.is_a_file", where=where))
    table = folder / f"{NAME}.lance"
    if any((table / "_versions").glob("*.manifest")):
        return True
    if table.is_dir() and any((table / "data").glob("*")):  # chunks, and nothing that says which of them count
        raise StoreError(say("retrieval.damaged", where=where, reason=f"{table.name}/_versions is empty"))
    ours = (LOCK, table.name if table.is_dir() else LOCK)
    others = [path.name for path in sorted(folder.iterdir()) if path.name not in ours]
    if others:
        raise StoreError(say("retrieval.other_files", where=where, files=others[:4]))
    return False


class ChunkTable:
    """An open table with its settings."""

    def __init__(self, where: str, table: Any) -> None:
        self.where = where
        self._table = table
        self.settings = StoreSettings.from_metadata(table.schema.metadata, where)
        found = table.schema.field("vector").type.list_size
        if found != self.settings.width:
            raise StoreError(say("retrieval.width", where=where, found=found, width=self.settings.width))

    @classmethod
    def open(cls, where: str) -> ChunkTable:
        lance()
        if not exists(where):
            raise StoreError(say("retrieval.no_store", where=where))
        with lance_errors(where):
            return cls(where, _connect(where).open_table(NAME))

    @classmethod
    def create(cls, where: str, settings: StoreSettings) -> ChunkTable:
        with lance_errors(where, writing=True):
            return cls(where, _connect(where).create_table(NAME, schema=schema_of(settings)))

    def __len__(self) -> int:
        with lance_errors(self.where):
            return int(self._table.count_rows())

    def refresh(self) -> None:
        """See what others have written."""
        with lance_errors(self.where):
            self._table.checkout_latest()

    # ---- documents

    def documents(self) -> dict[str, KnownDocument]:
        """Every document, by its name."""
        columns = ["document", "digest", "chunks", "source"]
        with lance_errors(self.where):
            rows = self._table.search().where("position = 0").select(columns).to_arrow()
        values = [rows[name].to_pylist() for name in columns]
        return {name: KnownDocument(*known) for name, *known in zip(*values, strict=True)}

    def rows(self, columns: Sequence[str], batch_size: int = 4096) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, a batch at a time."""
        with lance_errors(self.where):
            yield from self._table.search().select(list(columns)).to_batches(batch_size=batch_size)

    def chunks_of(self, document: str) -> list[dict[str, Any]]:
        """Those of one document, in order, without their vectors."""
        with lance_errors(self.where):
            query = self._table.search().where(_one_of("document", [document]))
            rows = query.select(self._columns(vectors=False)).to_list()
        return sorted(rows, key=lambda row: row["position"])

    # ---- changes, each one commit

    def add(self, rows: pa.Table) -> None:
        """Documents that are not there yet."""
        with lance_errors(self.where, writing=True):
            self._table.add(rows)

    def replace(self, rows: pa.Table) -> None:
        """Documents that are there, with other chunks: what they had and no longer have goes in the same commit."""
        names = rows["document"].unique().to_pylist()
        merge = self._table.merge_insert(["document", "position"]).when_matched_update_all()
        with lance_errors(self.where, writing=True):
            merge.when_not_matched_insert_all().when_not_matched_by_source_delete(_one_of("document", names)).execute(
                rows
            )

    def delete(self, names: Iterable[str]) -> None:
        listed = list(names)
        with lance_errors(self.where, writing=True):
            for first in range(0, len(listed), NAMES_AT_ONCE):
                self._table.delete(_one_of("document", listed[first : first + NAMES_AT_ONCE]))

    # ---- search

    def search(
        self,
        vectors: np.ndarray,
        k: int,
        exact: bool = False,
        probes: int = PROBES,
        without: Sequence[str] = (),
        keep_vectors: bool = False,
    ) -> list[list[FoundRow]]:
        """For each vector the k rows most alike, best first. vectors: (queries, width)

        exact          compare with every row, though there is an index
        probes         how many of the index's cells are looked into: more find more, and take longer
        without        documents that are passed over
        keep_vectors   a row has its own vector with it
        """
        metric = self.settings.metric
        columns = self._columns(keep_vectors)
        found = []
        with lance_errors(self.where):
            for vector in vectors:
                query = self._table.search(vector, vector_column_name="vector").distance_type(metric).limit(k)
                query = query.nprobes(probes).refine_factor(REFINE).select([*columns, "_distance"])
                query = query.bypass_vector_index() if exact else query
                query = query.where(f"NOT ({_one_of('document', without)})", prefilter=True) if without else query
                rows = query.to_list()
                found.append([FoundRow(row, score(row.pop("_distance"), metric)) for row in rows])
        return found

    def at(self, places: Sequence[int], keep_vectors: bool = False) -> list[dict[str, Any]]:
        """The rows at these places of the table."""
        with lance_errors(self.where):
            rows: list[dict[str, Any]] = (
                self._table.take_offsets(list(places)).select(self._columns(keep_vectors)).to_list()
            )
        return rows

    def _columns(self, vectors: bool) -> list[str]:
        return [name for name in self._table.schema.names if vectors or name != "vector"]

    @property
    def has_index(self) -> bool:
        with lance_errors(self.where):
            return any("vector" in index.columns for index in self._table.list_indices())

    def make_index(self) -> None:
        """IVF-PQ: vectors in cells by their nearest centre, each kept as a code of a byte for every four numbers."""
        if len(self) < FEWEST_FOR_PQ:
            raise StoreError(say("retrieval.too_few_for_index", count=len(self), fewest=FEWEST_FOR_PQ))
        width = self.settings.width
        codes = next(n for n in range(max(1, width // 4), 0, -1) if width % n == 0)
        with lance_errors(self.where, writing=True):
            from lancedb.index import IvfPq

            cells = max(1, len(self) // PARTITION)
            config = IvfPq(distance_type=self.settings.metric, num_partitions=cells, num_sub_vectors=codes)
            self._table.create_index("vector", config=config)

    def drop_index(self) -> None:
        with lance_errors(self.where, writing=True):
            for index in self._table.list_indices():
                self._table.drop_index(index.name)

    def tidy(self) -> None:
        """Few large files in place of many small ones; new rows into the index; old versions away."""
        with lance_errors(self.where, writing=True):
            self._table.optimize(cleanup_older_than=OLD)


def _one_of(column: str, values: Sequence[str]) -> str:
    quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    return f"{column} IN ({quoted})"
