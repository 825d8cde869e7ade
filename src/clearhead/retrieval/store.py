"""`Store`: chunks of documents, found by their meaning."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from clearhead.errors import InputError, StoreError, UnknownQuery
from clearhead.files import atomic_folder
from clearhead.messages import say
from clearhead.retrieval.building import BuildReport, IndexKind, RayOptions, build, choose_index
from clearhead.retrieval.documents import Document
from clearhead.retrieval.rows import RowMaker
from clearhead.retrieval.settings import StoreSettings, open_encoder, open_tokenizer
from clearhead.retrieval.table import LOCK, PROBES, ChunkTable, KnownDocument, is_address, locked, place_of
from clearhead.schema import Field
from clearhead.text import Tokenizer
from clearhead.zoo import shipped_store

if TYPE_CHECKING:
    from clearhead.retrieval.check import CheckReport

_K = Field(name="k", type=int, default=10, least=1)
_PROBES = Field(name="probes", type=int, default=PROBES, least=1)


@dataclass(frozen=True)
class Hit:
    """A chunk that was found.

    score          the higher, the more alike (metrics.py)
    position       which chunk of the document it is, from 0
    continuation   the next chunk of the document; "" after the last
    tokens         ids in the store's tokenizer, and those of the continuation
    vector         its key, where it was asked for
    """

    text: str
    document: str
    position: int
    score: float
    continuation: str = ""
    source: str = ""
    tokens: list[int] = field(default_factory=list, repr=False)
    continuation_tokens: list[int] = field(default_factory=list, repr=False)
    vector: np.ndarray | None = field(default=None, repr=False, compare=False)


class Store:
    """A store that is there. `clearhead.retrieval.build` makes one.

    where     a folder, an address of object storage (s3://bucket/store), or the name of a store that ships
    encoder   where the store's encoder is now, if not where it was
    device    for the encoder, which is loaded when it is first needed
    """

    def __init__(self, where: str | os.PathLike[str], encoder: str | None = None, device: Any = None) -> None:
        shipped = shipped_store(where)
        self.where = place_of(where) if shipped is None else str(shipped)
        self.is_shipped = shipped is not None  # part of a package, and never written to
        self._encoder_name = encoder
        self._device = device
        self._table = ChunkTable.open(self.where)
        if encoder is not None:
            _ = self._maker  # another encoder is refused at once

    @property
    def settings(self) -> StoreSettings:
        return self._table.settings

    @property
    def has_index(self) -> bool:
        """Whether search goes by an index (IVF-PQ). Without one it is exact."""
        return self._table.has_index

    @cached_property
    def _maker(self) -> RowMaker:
        encoder = open_encoder(self.settings, self.where, self._encoder_name, self._device)
        return RowMaker(self.settings, encoder, encoder.tokenizer)

    def __len__(self) -> int:
        """Chunks."""
        return len(self._table)

    def __repr__(self) -> str:
        return (
            f"<store {self.where}: {len(self):,} chunks of {self.settings.chunk_size} tokens, {self.settings.metric}>"
        )

    def documents(self) -> dict[str, KnownDocument]:
        """Every document by its name: digest, number of chunks, source."""
        return self._table.documents()

    def chunks(self, document: str) -> list[Hit]:
        """All chunks of a document in order, each with the score nan: nobody asked."""
        return [_hit(row, float("nan")) for row in self._table.chunks_of(document)]

    def keys(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, width): the vectors that these texts are searched by, and would be kept with."""
        return self._maker.vectors(texts)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The one that its chunks are counted in."""
        return open_tokenizer(self.settings, self._maker.encoder, self.where)

    def sample(self, count: int, seed: int = 0, *, vectors: bool = False) -> list[Hit]:
        """Chunks drawn at random, no two the same, each with the score nan. All of them, where there are fewer."""
        size = len(self)
        places = random.Random(seed).sample(range(size), min(count, size))
        rows = self._table.at(places, vectors) if places else []
        return [_hit(row, float("nan")) for row in rows]

    @overload
    def search(
        self,
        text: str,
        k: int = 10,
        *,
        exact: bool = False,
        probes: int = PROBES,
        without: Sequence[str] = (),
        vectors: bool = False,
    ) -> list[Hit]: ...
    @overload
    def search(
        self,
        text: list[str],
        k: int = 10,
        *,
        exact: bool = False,
        probes: int = PROBES,
        without: Sequence[str] = (),
        vectors: bool = False,
    ) -> list[list[Hit]]: ...
    def search(
        self,
        text: str | list[str],
        k: int = 10,
        *,
        exact: bool = False,
        probes: int = PROBES,
        without: Sequence[str] = (),
        vectors: bool = False,
    ) -> list[Hit] | list[list[Hit]]:
        """The chunks nearest in meaning, best first: k of them, or all where there are fewer. A list gives a list.

        exact     compare with every chunk, though there is an index
        probes    how many cells of the index are looked into: more find more, and take longer
        without   documents that are passed over, such as the one that the text is from
        vectors   each hit has its own vector with it
        """
        k, probes = _K.check(k), _PROBES.check(probes)
        texts = text if isinstance(text, list) else [text]
        for one in texts:
            self._check_query(one)
        found = self._table.search(self.keys(texts), k, exact, probes, list(without), vectors)
        hits = [[_hit(one.row, one.score) for one in rows] for rows in found]
        return hits[0] if isinstance(text, str) else hits

    def _check_query(self, text: Any) -> None:
        if not isinstance(text, str) or not text.strip():
            raise InputError(say("retrieval.no_query"))
        if not self._maker.encoder.knows(text):
            raise UnknownQuery(say("retrieval.unknown_script", encoder=self._maker.encoder.name))

    def add(
        self, documents: Iterable[Document], index: IndexKind = "auto", ray: RayOptions | None = None
    ) -> BuildReport:
        """New documents, and changed ones in place of what they were."""
        self._check_own()
        encoder = self._encoder_name
        report = build(self.where, documents, encoder=encoder, index=index, device=self._device, ray=ray)
        self._table.refresh()
        return report

    def delete(self, names: Iterable[str]) -> int:
        """Remove documents; how many. A name that is none is an error, and nothing is removed."""
        self._check_own()
        listed = list(dict.fromkeys(names))
        with locked(self.where):
            known = self.documents()
            for name in listed:
                if name not in known:
                    from clearhead.errors import did_you_mean

                    near = did_you_mean(name, known)
                    raise InputError(say("retrieval.no_document", where=self.where, name=name, near=near))
            self._table.delete(listed)
            self._table.tidy()
        return len(listed)

    def index(self, kind: IndexKind) -> None:
        """Make or drop the index: "ivf-pq", "exact", or "auto" by size."""
        self._check_own()
        with locked(self.where):
            choose_index(self._table, kind)

    def copy(self, folder: str | os.PathLike[str]) -> Store:
        """The same store in a new folder, to be changed there. It appears whole or not at all."""
        where = place_of(folder)
        if is_address(self.where) or is_address(where):
            raise InputError(say("retrieval.copy_folders"))
        if Path(where).exists():
            raise InputError(say("retrieval.copy_exists", where=where))
        with atomic_folder(Path(where)) as new:
            shutil.copytree(self.where, new, dirs_exist_ok=True, ignore=shutil.ignore_patterns(LOCK))
        return Store(where, self._encoder_name, self._device)

    def _check_own(self) -> None:
        """An error for a store that ships: it belongs to its package."""
        if self.is_shipped:
            raise StoreError(say("retrieval.shipped", name=Path(self.where).name))

    @property
    def fingerprint(self) -> str:
        """Of what it holds and how it is searched: another one may find something else."""
        digest = hashlib.blake2b(repr(sorted(asdict(self.settings).items())).encode(), digest_size=16)
        for name, known in sorted(self.documents().items()):
            digest.update(f"{name}\0{known.digest}\n".encode())
        return digest.hexdigest()

    def check(self) -> CheckReport:
        """Read all of it and look whether it is whole (check.py)."""
        from clearhead.retrieval.check import check

        _ = self.tokenizer  # another one is refused
        return check(self._table, self._maker)


def _hit(row: dict[str, Any], score: float) -> Hit:
    vector = np.asarray(row["vector"], np.float32) if "vector" in row else None
    return Hit(
        row["text"], row["document"], row["position"], score, row["continuation"], row["source"], row["tokens"],
        row["continuation_tokens"], vector,
    )  # fmt: skip
