"""The encoder of retrieved text: it reads in both directions, and looks at the chunk that asked for the text."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from clearhead.nn.block import Block
from clearhead.nn.embedding import Embedder, check_ids
from clearhead.nn.stack import Stack
from clearhead.nn.tracing import tap


class NeighborEmbedder(Embedder):
    """Tokens without positions: those act inside attention.

    tokens    a table of its own; None: it is lent the table of whoever asks
    project   from the width of the table to that of the layers
    """

    content = "tokens"
    reads_tokens = True
    taps = ("tokens", "output")

    def __init__(self, tokens: nn.Embedding | None = None, project: nn.Module | None = None) -> None:
        super().__init__()
        self.tokens, self.project = tokens, project

    def forward(self, ids: Tensor, lent: nn.Embedding) -> Tensor:
        table = lent if self.tokens is None else self.tokens
        check_ids("neighbor_ids", ids, table.num_embeddings)
        x = tap(self, "tokens", table(ids))
        return tap(self, "output", x if self.project is None else self.project(x))


class NeighborEncoder(Stack):
    """project_out: from the width of its layers to that of those which look at it; None: they take it as it is."""

    embed: NeighborEmbedder

    def __init__(
        self,
        embed: NeighborEmbedder,
        layers: Iterable[Block],
        final_norm: nn.Module | None,
        project_out: nn.Module | None = None,
    ) -> None:
        super().__init__(embed, layers, final_norm, causal=False)
        self.project_out = project_out

    def encode(
        self,
        ids: Tensor,  # (texts, tokens)
        chunk_states: Tensor,  # (texts, chunk, width of the asking layers)
        lent: nn.Embedding,
        hidden_id: int | None,  # padding, which nobody sees
    ) -> Tensor:
        """(texts, tokens, width)"""
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        mask = None if hidden_id is None else ids != hidden_id
        x = self.run(self.embed(ids, lent), attention_mask=mask, position_ids=positions, memory=chunk_states)
        return x if self.project_out is None else self.project_out(x)
