"""Building a store: documents are read, cut, embedded and committed. Stopped anywhere, the same call goes on.

What is new is added, what has changed is replaced, what a source no longer holds is removed; the rest is left alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from clearhead.errors import InputError, StoreError
from clearhead.messages import say
from clearhead.retrieval.documents import Document
from clearhead.retrieval.encoder import DEFAULT, Encoder
from clearhead.retrieval.rows import RowMaker
from clearhead.retrieval.settings import AskedSettings, load_named, open_encoder, open_tokenizer
from clearhead.retrieval.table import ChunkTable, KnownDocument, exists, lance, locked, place_of

if TYPE_CHECKING:
    import pyarrow as pa

IndexKind = Literal["auto", "exact", "ivf-pq"]
LARGE = 50_000  # chunks from which on an index is made, unless something else is asked for; benchmarks/vector_stores.py
GROUP = 256 * 1024  # characters of the documents that are embedded together
COMMIT_SECONDS = 10.0  # so much work is lost when the process is killed, and what is in hand
COMMIT_ROWS = 64 * 1024


@dataclass
class BuildReport:
    """What a build did, in documents; `chunks` are those that were embedded."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    removed: int = 0
    empty: list[str] = field(default_factory=list)  # without a token: they are left out
    repeated: list[str] = field(default_factory=list)  # names given twice: the first counts
    unknown: int = 0  # chunks of which the encoder knows no word
    chunks: int = 0
    has_index: bool = False


@dataclass(frozen=True)
class RayOptions:
    """Where embedding runs, if not in this process (ray_embedding.py)."""

    address: str  # of a cluster; "local" starts one on this machine
    workers: int = 2


def build(
    where: str | os.PathLike[str],
    documents: Iterable[Document],
    *,
    encoder: str | None = None,
    tokenizer: str | None = None,
    chunk_size: int | None = None,
    metric: str | None = None,
    index: IndexKind = "auto",
    device: Any = None,
    ray: RayOptions | None = None,
    advance: Callable[[int], None] | None = None,
) -> BuildReport:
    """Make a store of documents, or bring one up to date with them.

    where        a folder, or an address of object storage (s3://bucket/store)
    encoder      whose vectors are the keys; by default the store's own, of a new one bert-mini
    tokenizer    the model whose tokens chunks are counted in; by default the encoder
    chunk_size   tokens of a chunk; by default 64
    metric       "cosine" or "l2" (metrics.py)
    index        "auto": search is exact up to 50,000 chunks, and by an IVF-PQ index beyond; or say which
    advance      hears how many chunks were embedded since it was last called

    One process writes to a store at a time. What does not fit a store that is there is refused, and nothing changes.
    """
    lance()
    if index not in ("auto", "exact", "ivf-pq"):
        raise InputError(say("retrieval.index", index=index))
    place = place_of(where)
    asked = AskedSettings(encoder, tokenizer, chunk_size, metric)
    table = ChunkTable.open(place) if exists(place) else None
    maker = _maker(table, asked, device)
    with locked(place):
        table = ChunkTable.open(place) if exists(place) else None  # somebody may have written meanwhile
        if table is not None and table.settings != maker.settings:
            raise StoreError(say("retrieval.in_use", where=place))
        builder = _Builder(place, table, maker, documents, advance or (lambda _: None))
        builder.run(ray)
        assert builder.table is not None
        choose_index(builder.table, index)
        if builder.report.chunks or builder.report.removed:
            builder.table.tidy()
        builder.report.has_index = builder.table.has_index
    return builder.report


def choose_index(table: ChunkTable, kind: IndexKind) -> None:
    if kind == "exact":
        table.drop_index()
    elif not table.has_index and (kind == "ivf-pq" or len(table) >= LARGE):
        table.make_index()


def _maker(table: ChunkTable | None, asked: AskedSettings, device: Any) -> RowMaker:
    """With the store's own encoder and tokenizer, or those of a new store."""
    if table is not None:
        asked.check(table.settings, table.where)
        encoder = open_encoder(table.settings, table.where, asked.encoder, device)
        return RowMaker(table.settings, encoder, open_tokenizer(table.settings, encoder, table.where, asked.tokenizer))
    encoder = Encoder(asked.encoder or DEFAULT, device)
    tokenizer = encoder.tokenizer if asked.tokenizer is None else load_named(asked.tokenizer)
    return RowMaker(asked.settle(encoder, asked.tokenizer or encoder.name, tokenizer), encoder, tokenizer)


class _Builder:
    """One build: what was there, what is read, and what waits to be committed."""

    def __init__(
        self,
        place: str,
        table: ChunkTable | None,
        maker: RowMaker,
        documents: Iterable[Document],
        advance: Callable[[int], None],
    ) -> None:
        self.place = place
        self.table = table
        self.maker = maker
        self.advance = advance
        self.report = BuildReport()
        self.known: dict[str, KnownDocument] = {} if table is None else table.documents()
        self.seen: set[str] = set()
        self.sources: set[str] = set()
        self._groups = self._grouped(documents)
        self._sent: set[str] = set()  # documents of which no rows have come back yet
        self._waiting: list[pa.Table] = []
        self._committed = time.monotonic()

    def run(self, ray: RayOptions | None) -> None:
        try:
            for rows in self._embedded(ray):
                self._take(rows)
        finally:  # stopped or not: what is embedded is kept
            self._commit()
        if self.table is None:
            raise InputError(say("retrieval.no_documents"))
        self.report.empty = sorted(self._sent)
        gone = {name for name, old in self.known.items() if old.source in self.sources and name not in self.seen}
        gone |= self._sent & self.known.keys()  # nothing is left of them
        self.table.delete(gone)
        self.report.removed = len(gone)

    def _embedded(self, ray: RayOptions | None) -> Iterator[pa.Table]:
        if ray is None:
            for group in self._groups:
                yield self.maker.rows(group, self.advance)
            return
        from clearhead.retrieval.ray_embedding import rows_by_ray

        for rows in rows_by_ray(self._groups, self.maker, ray):
            self.advance(len(rows))
            yield rows

    def _grouped(self, documents: Iterable[Document]) -> Iterator[list[Document]]:
        """Those that are new or have changed, some at a time."""
        group: list[Document] = []
        size = 0
        for document in documents:
            if document.source:
                self.sources.add(document.source)
            if document.name in self.seen:
                self.report.repeated.append(document.name)
                continue
            self.seen.add(document.name)
            old = self.known.get(document.name)
            if old is not None and old.digest == document.digest:
                self.report.unchanged += 1
                continue
            group.append(document)
            self._sent.add(document.name)
            size += len(document.text)
            if size >= GROUP:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _take(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._sent.difference_update(rows["document"].to_pylist())
        if self.maker.tokenizer is self.maker.encoder.tokenizer:
            unknown = self.maker.tokenizer.unk_token_id
            self.report.unknown += sum(set(tokens) == {unknown} for tokens in rows["tokens"].to_pylist())
        late = time.monotonic() - self._committed >= COMMIT_SECONDS
        if late or sum(map(len, self._waiting)) >= COMMIT_ROWS:
            self._commit()

    def _commit(self) -> None:
        """Everything that waits: whole documents, the new ones in one commit and the changed ones in another."""
        import pyarrow as pa
        import pyarrow.compute as pc

        waiting, self._waiting = self._waiting, []
        rows = pa.concat_tables(waiting) if waiting else None
        if not rows:
            return
        if self.table is None:
            self.table = ChunkTable.create(self.place, self.maker.settings)
        is_old = pc.is_in(rows["document"], value_set=pa.array(list(self.known), pa.string()))
        new, changed = rows.filter(pc.invert(is_old)), rows.filter(is_old)
        if len(new):
            self.table.add(new)
        if len(changed):
            self.table.replace(changed)
        self.report.added += len(new["document"].unique())
        self.report.replaced += len(changed["document"].unique())
        self.report.chunks += len(rows)
        self._committed = time.monotonic()
