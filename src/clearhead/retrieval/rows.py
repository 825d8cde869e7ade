"""From documents to rows of the table: cut, embedded, each chunk with its continuation. In one process or in many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from clearhead.retrieval.documents import Document, cut
from clearhead.retrieval.encoder import Encoder
from clearhead.retrieval.metrics import keys
from clearhead.retrieval.settings import StoreSettings
from clearhead.retrieval.table import schema_of
from clearhead.text import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa


class RowMaker:
    """Knows what a store is made with."""

    def __init__(self, settings: StoreSettings, encoder: Encoder, tokenizer: Tokenizer) -> None:
        self.settings = settings
        self.encoder = encoder
        self.tokenizer = tokenizer

    def rows(self, documents: Sequence[Document], advance: Callable[[int], None] | None = None) -> pa.Table:
        """All chunks of these documents. One of which the tokenizer leaves nothing has none.

        advance   hears how many chunks are embedded, after every batch
        """
        import pyarrow as pa

        columns: dict[str, list[object]] = {name: [] for name in schema_of(self.settings).names if name != "vector"}
        for document in documents:
            chunks = list(cut(document.text, self.tokenizer, self.settings.chunk_size))
            count = len(chunks)
            columns["document"] += [document.name] * count
            columns["position"] += range(count)
            columns["chunks"] += [count] * count
            columns["digest"] += [document.digest] * count
            columns["source"] += [document.source] * count
            columns["text"] += [chunk.text for chunk in chunks]
            columns["continuation"] += [chunk.text for chunk in chunks[1:]] + [""] * (count > 0)
            columns["tokens"] += [chunk.tokens for chunk in chunks]
            columns["continuation_tokens"] += [chunk.tokens for chunk in chunks[1:]] + [[]] * (count > 0)
        vectors = self.vectors([str(text) for text in columns["text"]], advance)
        vector = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), self.settings.width)
        return pa.table(columns | {"vector": vector}, schema=schema_of(self.settings))

    def vectors(self, texts: Sequence[str], advance: Callable[[int], None] | None = None) -> np.ndarray:
        """(texts, width): the keys of these texts, as they are kept and searched with."""
        if not texts:
            return np.empty((0, self.settings.width), np.float32)
        return keys(self.encoder.embed(texts, advance), self.settings.metric)
