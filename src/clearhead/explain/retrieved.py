"""A text with what was looked up for it: the chunks, the passages that a store has for each, and where they act."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.continuation import NEW_TOKENS, continued
from clearhead.explain.indices import checked_count
from clearhead.messages import Message, say
from clearhead.models.retrieval import RetrievalModel
from clearhead.pipeline import Pipeline, as_text
from clearhead.pipeline.ask import END, LONGEST, question_prompt
from clearhead.pipeline.retrieval import RetrievedPassage, StoreNeighbors, neighbors_of, open_store
from clearhead.text.units import units_of_ids
from clearhead.units import TokenUnit

NEIGHBORS = 2
ASKED = re.compile(r"[?？]\s*$")


@dataclass(frozen=True)
class NeighborPassage:
    """One passage that was found for a chunk of the text.

    chunk          of the text, counted from 0
    rank           0 is the nearest
    text           a chunk of a document; `continuation` is what follows it there
    position       which chunk of the document it is
    score          as the store gives it: the higher, the more alike. None where it gives none
    source         where the document was read
    tokens         both, as the model reads them: cut where they are longer than two chunks
    agrees         runs of tokens that the passage shares with what it acts on: each its place in `tokens`, its place in
                   the text, and its length
    """

    chunk: int
    rank: int
    text: str
    continuation: str
    document: str
    position: int | None
    score: float | None
    source: str
    tokens: Sequence[TokenUnit]
    agrees: list[list[int]]


@dataclass(frozen=True)
class RetrievedText:
    """
    prompt         the text as it was given, filled up where it is a question
    options        with which the model wrote after it
    units          of the whole text: what was given, and what was written after it
    begin          where the written part begins
    filler         so many tokens at the beginning say nothing: they fill the first chunk up
    passages       of all chunks that act on something, in order
    neighbor_ids   (1, chunks, k, tokens)
    """

    model: RetrievalModel
    provider: StoreNeighbors
    prompt: str
    options: dict[str, Any]
    ids: list[int]
    units: list[TokenUnit]
    begin: int
    filler: int
    passages: list[NeighborPassage]
    neighbor_ids: Tensor

    @property
    def chunk_size(self) -> int:
        return self.model.chunk_size

    @property
    def chunks(self) -> int:
        return self.neighbor_ids.shape[1]

    @property
    def input_ids(self) -> Tensor:
        """(1, time): all tokens but the last, so that each answer is about a token that stands there."""
        return torch.tensor([self.ids[:-1]], device=self.model.device)

    @property
    def acted_on(self) -> range:
        """The tokens that neighbours can have had a part in: those after the first whole chunk."""
        return range(self.chunk_size, len(self.ids))

    @property
    def answer(self) -> str:
        """What was written after the text."""
        return self.provider.tokenizer.decode(self.ids[self.begin :], skip_special_tokens=True).strip()

    @property
    def store_name(self) -> str:
        return store_name(self.provider.store)


def store_name(store: Any) -> str:
    """What a store is called: its last part, where it is a folder."""
    return str(getattr(store, "name", "") or re.split(r"[\\/]", str(getattr(store, "where", "")).rstrip("\\/"))[-1])


def reads_neighbors(pipe: Pipeline) -> Message | str | None:
    """None, or why a model has no use for a store."""
    if isinstance(pipe.model, RetrievalModel):
        return None
    return say("explain.no_neighbors", family=pipe.model.family.title)


def store_of(pipe: Pipeline, store: Any) -> Any:
    """The store that is meant: this one (or the one in this folder), else the pipeline's own."""
    if (reason := reads_neighbors(pipe)) is not None:
        raise InputError(reason)
    store = as_text(pipe).store if store is None else store
    if store is None:
        raise InputError(say("explain.no_store", title=pipe.title))
    return open_store(store)


def retrieved(
    pipe: Pipeline,
    text: str,
    *,
    store: Any = None,
    neighbors: int | None = None,
    target: str | None = None,
    max_new_tokens: int | None = None,
    ask: bool | None = None,
) -> RetrievedText:
    """The text, what is written after it, and the passages that the store has for its chunks.

    store            a store or its folder; None: the pipeline's own
    neighbors        passages for every chunk; None: 2
    target           what is written after the text, in place of what the model writes
    max_new_tokens   how many tokens it writes (0: none)
    ask              the text is a question, laid so that it ends with a chunk; None: it is where it ends with "?" and
                     is shorter than a chunk
    """
    opened = store_of(pipe, store)
    count = NEIGHBORS if neighbors is None else checked_count("neighbors", neighbors)
    provider = neighbors_of(as_text(pipe), opened, count)
    assert isinstance(provider, StoreNeighbors) and isinstance(pipe.model, RetrievalModel)
    asked = _is_asked(pipe, text, ask)
    prompt = question_prompt(as_text(pipe), text.strip()) if asked else text
    limit = max_new_tokens if max_new_tokens is not None else LONGEST if asked else NEW_TOKENS
    options = {"stop_strings": [END]} if asked else {}
    written = continued(pipe, prompt, None, target, limit, store=opened, neighbors=count, **options)
    ids = written.reading.inputs["input_ids"][0].tolist()
    size = pipe.model.chunk_size
    chunks = [ids[n : n + size] for n in range(0, (len(ids) - 1) // size * size, size)]
    if not chunks:
        raise InputError(say("explain.no_whole_chunk", count=len(ids), size=size))
    found = [provider.passages(chunk) for chunk in chunks]
    units = written.reading.units
    passages = [
        _passage(provider, hit, chunk, rank, ids) for chunk, hits in enumerate(found) for rank, hit in enumerate(hits)
    ]
    if not passages:
        raise InputError(say("explain.nothing_found", store=store_name(opened)))
    neighbor_ids = torch.tensor([[provider.rows(hits) for hits in found]], device=pipe.model.device)
    filler = _filler(ids, pipe.tokenizer.eos_token_id, asked)
    return RetrievedText(
        pipe.model, provider, prompt, options | {"max_new_tokens": limit}, ids, units, written.begin, filler, passages,
        neighbor_ids,
    )  # fmt: skip


def _chunk_size(pipe: Pipeline) -> int:
    assert isinstance(pipe.model, RetrievalModel)
    return pipe.model.chunk_size


def searched_by(pipe: Pipeline, text: str, ask: bool | None = None) -> str:
    """What a store is asked for a text: of a question, the chunk that it is laid in."""
    if not _is_asked(pipe, text, ask):
        return text
    ids = pipe.tokenizer.encode(question_prompt(as_text(pipe), text.strip()))[-_chunk_size(pipe) :]
    return pipe.tokenizer.decode(ids, skip_special_tokens=True)


def _is_asked(pipe: Pipeline, text: str, ask: bool | None) -> bool:
    if ask is not None:
        return ask
    return bool(ASKED.search(text)) and len(pipe.tokenizer.encode(text)) < _chunk_size(pipe)


def _filler(ids: list[int], filler: int | None, asked: bool) -> int:
    """How many tokens before the text fill a chunk up. A single one may be the beginning of a text."""
    count = next((n for n, id_ in enumerate(ids) if id_ != filler), len(ids))
    return count if asked or count > 1 else 0


def _passage(provider: StoreNeighbors, hit: RetrievedPassage, chunk: int, rank: int, ids: list[int]) -> NeighborPassage:
    size, own = provider.chunk_size, provider.ids(hit)
    units = units_of_ids(provider.tokenizer, own, hit.text + hit.continuation)
    begin = (chunk + 1) * size
    return NeighborPassage(
        chunk, rank, hit.text, hit.continuation, getattr(hit, "document", ""), getattr(hit, "position", None),
        getattr(hit, "score", None), getattr(hit, "source", ""), units,
        [[a, begin + b, length] for a, b, length in shared_runs(own, ids[begin : begin + size], units)],
    )  # fmt: skip


def shared_runs(passage: list[int], text: list[int], units: Sequence[TokenUnit]) -> list[tuple[int, int, int]]:
    """Runs of tokens that both have: (place in the passage, place in the text, length), the longest first.

    A run has two tokens or more, or is one word of four letters or digits: "the" agrees with anything. Each token of
    the text is in one run at most.
    """
    found: list[tuple[int, int, int]] = []
    lengths = [[0] * (len(text) + 1) for _ in range(len(passage) + 1)]
    for a, one in enumerate(passage):
        for b, other in enumerate(text):
            if one == other:
                lengths[a + 1][b + 1] = length = lengths[a][b] + 1
                found.append((a + 1 - length, b + 1 - length, length))
    taken: set[int] = set()
    runs = []
    for a, b, length in sorted(found, key=lambda run: (-run[2], run[1], run[0])):
        signs = sum(sign.isalnum() for unit in units[a : a + length] for sign in unit.text if not unit.special)
        if signs >= (2 if length > 1 else 4) and taken.isdisjoint(range(b, b + length)):
            taken |= set(range(b, b + length))
            runs.append((a, b, length))
    return runs
