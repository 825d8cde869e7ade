"""Neighbours looked up before training: records of token ids for the objective retrieval-lm, without leaks.

A passage that holds the text itself would teach to copy. So what comes from the same document is left out, and what
shares most of its runs of 13 tokens with the chunk or with what follows it, which is what the model has to guess.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from clearhead.errors import InputError
from clearhead.pipeline.retrieval import passages_for
from clearhead.text import Tokenizer

RUN = 13  # tokens
MOST_SHARED = 0.8  # of the runs: the paper's limit
SPARE = 8  # passages asked for beside those that are needed, because some are left out


def with_neighbors(
    documents: Iterable[tuple[str | Collection[str], str]],  # (name or names, text): a name as the store has it
    store: Any,  # search(text, k=) -> hits with text, continuation and document
    tokenizer: Tokenizer,
    *,
    length: int,
    chunk_size: int = 64,
    neighbors: int = 2,
    padding_id: int | None = None,
) -> Iterator[dict[str, Any]]:
    """A record for every `length` tokens of a document: input_ids, and neighbor_ids (chunks, k, 2 · chunk_size).

    padding_id   fills short passages up; by default the tokenizer's padding token, or its end token, as the model's
    """
    padding = next((n for n in (padding_id, tokenizer.pad_token_id, tokenizer.eos_token_id) if n is not None), None)
    if padding is None:
        raise InputError("This tokenizer has no padding token to fill short passages with: give padding_id.")
    if length < chunk_size:
        raise InputError(f"length is {length} tokens, less than a chunk of {chunk_size}: it would have no neighbours.")
    for name, text in documents:
        ids = tokenizer.encode(text, add_special_tokens=False)
        for start in range(0, len(ids), length):
            block = ids[start : start + length]
            found = []
            for first in range(0, len(block) // chunk_size * chunk_size, chunk_size):
                here = start + first
                own = ids[here : here + 2 * chunk_size]  # the chunk, and what follows it
                query = tokenizer.decode(own[:chunk_size], skip_special_tokens=True)
                hits = passages_for(query, store, neighbors + SPARE)
                rows = list(_allowed(hits, {name} if isinstance(name, str) else name, own, tokenizer, 2 * chunk_size))[
                    :neighbors
                ]
                rows += [[]] * (neighbors - len(rows))
                found.append([row + [padding] * (2 * chunk_size - len(row)) for row in rows])
            yield {"input_ids": block, "neighbor_ids": found}


def _allowed(
    hits: Iterable[Any], documents: Collection[str], own: Sequence[int], tokenizer: Tokenizer, length: int
) -> Iterator[list[int]]:
    """The passages that give nothing away, as token ids."""
    for hit in hits:
        if hit.document in documents:
            continue
        ids = tokenizer.encode(hit.text + hit.continuation, add_special_tokens=False)[:length]
        if overlap(ids, own) < MOST_SHARED:
            yield ids


def overlap(one: Sequence[int], other: Sequence[int], run: int = RUN) -> float:
    """The share of runs of tokens that both have, of those that either has (Jaccard); 0 where one is too short."""
    runs = [{tuple(ids[n : n + run]) for n in range(len(ids) - run + 1)} for ids in (one, other)]
    return len(runs[0] & runs[1]) / len(runs[0] | runs[1]) if all(runs) else 0.0
