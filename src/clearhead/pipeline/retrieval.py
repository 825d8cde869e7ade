"""Neighbours from a store of passages, for a model that looks at them while it writes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor

from clearhead.errors import InputError, UnknownQuery
from clearhead.generate import NeighborProvider
from clearhead.messages import say
from clearhead.models import Model
from clearhead.models.retrieval import RetrievalModel
from clearhead.text import Tokenizer

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline

NEIGHBORS = 2  # as many as RETRO was trained with


class RetrievedPassage(Protocol):
    """A chunk of a document, and what follows it there."""

    @property
    def text(self) -> str: ...

    @property
    def continuation(self) -> str: ...


class PassageStore(Protocol):
    """What `clearhead.retrieval.Store` is to a model that writes."""

    def search(self, text: str, *, k: int) -> Sequence[RetrievedPassage]:
        """The passages nearest to a text, best first."""
        ...


def open_store(store: Any) -> PassageStore:
    """A store as it is, or the one in a folder."""
    if isinstance(store, str | os.PathLike):
        store = importlib.import_module("clearhead.retrieval").Store(store)
    if not callable(getattr(store, "search", None)):
        raise InputError(say("generation.no_store", got=type(store).__name__))
    return cast(PassageStore, store)


@dataclass(frozen=True)
class StoreNeighbors:
    """The neighbours of chunks: every passage with its continuation, two chunks long, cut or padded to that.

    Equal ones find the same, so that what was read with one can be used again with the other.
    """

    store: PassageStore
    tokenizer: Tokenizer
    k: int
    chunk_size: int
    padding_id: int

    def __call__(self, chunks: Tensor) -> Tensor:
        """(chunks, chunk_size) -> (chunks, k, 2 · chunk_size)"""
        return torch.tensor([self._of(chunk) for chunk in chunks.tolist()])

    def passages(self, chunk: list[int]) -> list[RetrievedPassage]:
        """What the store has for a chunk."""
        return passages_for(self.tokenizer.decode(chunk, skip_special_tokens=True), self.store, self.k)

    def _of(self, chunk: list[int]) -> list[list[int]]:
        return self.rows(self.passages(chunk))

    def rows(self, found: Sequence[RetrievedPassage]) -> list[list[int]]:
        """Their ids, k rows of two chunks each, padded where there is less."""
        rows = [self.ids(passage) for passage in found] + [[]] * (self.k - len(found))
        return [row + [self.padding_id] * (2 * self.chunk_size - len(row)) for row in rows]

    def ids(self, passage: RetrievedPassage) -> list[int]:
        whole = passage.text + passage.continuation
        return self.tokenizer.encode(whole, add_special_tokens=False)[: 2 * self.chunk_size]


def passages_for(text: str, store: PassageStore, k: int) -> list[RetrievedPassage]:
    """What a store has for a chunk that a model has read or written; nothing for one without a word it knows."""
    try:
        return list(store.search(text, k=k))[:k] if text.strip() else []
    except UnknownQuery:
        return []


def with_store(pipe: Any, store: Any) -> Any:
    """The same pipeline, which looks in this store unless a call of it names another."""
    if not isinstance(getattr(pipe, "model", None), RetrievalModel):
        raise InputError(say("generation.no_neighbors", family=pipe.model.family.title))
    pipe.store = open_store(store)
    return pipe


def neighbors_of(pipe: TextPipeline, store: Any, neighbors: Any) -> NeighborProvider | None:
    """What finds neighbours for one call of `generate`; None where it looks at none.

    store       a store or its folder; None: none
    neighbors   how many passages for every chunk; None: 2
    """
    model: Model = pipe.model
    if not isinstance(model, RetrievalModel):
        if store is not None or neighbors is not None:
            raise InputError(say("generation.no_neighbors", family=model.family.title))
        return None
    if neighbors is not None and (not isinstance(neighbors, int) or isinstance(neighbors, bool) or neighbors < 1):
        raise InputError(say("generation.neighbors_count", got=repr(neighbors)))
    if store is None:
        if neighbors is not None:
            raise InputError(say("generation.neighbors_without_store"))
        return None
    if model.hidden_id is None:
        raise InputError(say("generation.no_padding_for_neighbors", title=pipe.title))
    k = NEIGHBORS if neighbors is None else neighbors
    return StoreNeighbors(open_store(store), pipe.tokenizer, k, model.chunk_size, model.hidden_id)
