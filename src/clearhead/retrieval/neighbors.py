"""Hits as RETRO reads them: the tokens of each chunk and its continuation, in the model's own vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.hub.fingerprint import tokenizer_fingerprint
from clearhead.retrieval.settings import StoreSettings
from clearhead.retrieval.store import Hit
from clearhead.text import Tokenizer


def neighbor_ids(
    hits: Sequence[Sequence[Hit]], settings: StoreSettings, tokenizer: Tokenizer, k: int, pad_token_id: int
) -> Tensor:
    """(chunks, k, 2 · chunk_size): the first k of each list of hits, chunk and continuation; the rest is padding.

    With the tokenizer that the store was cut with, the ids are those that are kept; another one reads the texts.
    """
    length = 2 * settings.chunk_size
    is_same = tokenizer_fingerprint(tokenizer) == settings.tokenizer_fingerprint
    ids = torch.full((len(hits), k, length), pad_token_id)
    for n, found in enumerate(hits):
        for m, hit in enumerate(found[:k]):
            if is_same:
                row = [*hit.tokens, *hit.continuation_tokens]
            else:
                row = tokenizer(hit.text + hit.continuation, add_special_tokens=False)["input_ids"][:length]
            ids[n, m, : len(row)] = torch.tensor(row, dtype=torch.long)
    return ids
