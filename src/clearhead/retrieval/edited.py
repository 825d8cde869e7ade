"""`EditedStore`: a store with some of its passages written otherwise, for whoever holds it. What is on disk stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clearhead.errors import InputError, did_you_mean
from clearhead.messages import say
from clearhead.retrieval.documents import cut
from clearhead.retrieval.metrics import likeness
from clearhead.retrieval.settings import StoreSettings
from clearhead.retrieval.store import Hit, Store


@dataclass(frozen=True)
class PassageEdit:
    """A chunk of a document, and what stands there instead: the chunk, and the rest as what follows it."""

    document: str
    position: int
    text: str


class EditedStore:
    """Searched like the store below it. An edited passage is found by what it says now: its vector is made anew."""

    def __init__(self, store: Store, edits: Sequence[PassageEdit]) -> None:
        self._store = store
        self._edited = {(edit.document, edit.position): self._rewritten(edit) for edit in edits}

    def _rewritten(self, edit: PassageEdit) -> Hit:
        chunks = self._store.chunks(edit.document)
        if edit.position not in range(len(chunks)):
            near = "" if chunks else did_you_mean(edit.document[:200], self._store.documents())
            name = edit.document[:200]
            raise InputError(say("retrieval.no_passage", document=name, position=edit.position, near=near))
        if not edit.text.strip():
            raise InputError(say("retrieval.empty_passage"))
        first, *rest = cut(edit.text.strip(), self._store.tokenizer, self.settings.chunk_size)
        return replace(
            chunks[edit.position],
            text=first.text,
            continuation="".join(chunk.text for chunk in rest),
            tokens=first.tokens,
            continuation_tokens=[token for chunk in rest for token in chunk.tokens],
            vector=self._store.keys([first.text])[0],
        )

    @property
    def settings(self) -> StoreSettings:
        return self._store.settings

    @property
    def where(self) -> str:
        return self._store.where

    def __len__(self) -> int:
        return len(self._store)

    def keys(self, texts: Sequence[str]) -> np.ndarray:
        return self._store.keys(texts)

    def search(self, text: str, k: int = 10, *, vectors: bool = False) -> list[Hit]:
        found = self._store.search(text, k + len(self._edited), vectors=vectors)
        query = self._store.keys([text])[0]
        edited = [
            replace(
                hit, score=likeness(query, hit.vector, self.settings.metric), vector=hit.vector if vectors else None
            )
            for hit in self._edited.values()
            if hit.vector is not None
        ]
        kept = [self._continued(hit) for hit in found if (hit.document, hit.position) not in self._edited]
        return sorted([*kept, *edited], key=lambda hit: -hit.score)[:k]

    def sample(self, count: int, seed: int = 0, *, vectors: bool = False) -> list[Hit]:
        drawn = self._store.sample(count, seed, vectors=vectors)
        return [self._edited.get((hit.document, hit.position), self._continued(hit)) for hit in drawn]

    def _continued(self, hit: Hit) -> Hit:
        """What stands before an edited chunk goes on with what it says now."""
        after = self._edited.get((hit.document, hit.position + 1))
        return hit if after is None else replace(hit, continuation=after.text, continuation_tokens=after.tokens)
