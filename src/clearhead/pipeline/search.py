"""Search texts by meaning: the cosine between the vector of a question and that of each text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import InputError
from clearhead.pipeline.batches import texts_of
from clearhead.schema import Field

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline
    from clearhead.pipeline.word_vectors import WordVectors
    from clearhead.pipeline.words import WordPipeline

TOP_K = Field(name="top_k", type=int, default=10, least=1)


@dataclass(frozen=True)
class SearchHit:
    """A text that was found."""

    text: str
    score: float  # the cosine, from -1 to 1
    index: int  # which of the texts it is


def search(
    pipe: TextPipeline | WordPipeline | WordVectors,
    query: str | list[str],
    texts: Sequence[str],
    *,
    top_k: int = 10,
    vectors: Tensor | None = None,
    batch_size: int = 32,
) -> list[SearchHit] | list[list[SearchHit]]:
    """TextPipeline.search."""
    top_k = TOP_K.check(top_k)
    if isinstance(texts, str):
        raise InputError("The texts to search must be a list of strings; one text is no list.")
    documents = texts_of(texts)
    queries = texts_of(query)
    if vectors is None:
        vectors = pipe.embed(documents, normalize=True, batch_size=batch_size)
    query_vectors = pipe.embed(queries, normalize=True, batch_size=batch_size)
    vectors = torch.as_tensor(vectors, dtype=query_vectors.dtype, device=query_vectors.device)
    if vectors.shape != (len(documents), query_vectors.shape[-1]):
        raise InputError(
            f"vectors must have the shape ({len(documents)}, {query_vectors.shape[-1]}), a row for each text as "
            f"pipe.embed gives them, not {tuple(vectors.shape)}."
        )
    best = (query_vectors @ F.normalize(vectors, dim=-1).T).topk(min(top_k, len(documents)))
    hits = [
        [SearchHit(documents[n], score, n) for score, n in zip(scores, indices, strict=True)]
        for scores, indices in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
    return hits[0] if isinstance(query, str) else hits
