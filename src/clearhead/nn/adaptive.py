"""Adaptive input and output: rare words get narrow vectors, and a whole cluster of them is one choice among the common.

Words are sorted by how often they occur. `cutoffs` cut the list into clusters; cluster i has vectors of
embed_width / shrink^i, which a matrix per cluster takes to and from the width of the layers.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.nn.linear import Linear


class Clusters:
    """Where the clusters begin and end, and how wide the vectors of each are."""

    def __init__(self, words: int, width: int, embed_width: int, cutoffs: Sequence[int], shrink: int) -> None:
        ends = [*cutoffs, words]
        self.spans = list(zip([0, *ends], ends, strict=False))
        if any(low >= high for low, high in self.spans):
            raise ConfigError(f"cutoffs {list(cutoffs)} must grow, between 0 and the {words} words there are.")
        self.widths = [embed_width // shrink**n for n in range(len(ends))]
        if shrink < 1 or self.widths[-1] < 1:
            raise ConfigError(f"{embed_width} cannot be divided by {shrink} once for each of {len(cutoffs)} cutoffs.")
        self.one_table = shrink == 1  # all clusters alike: one table for all words
        self.sizes = [words] if self.one_table else [high - low for low, high in self.spans]
        self.projected = not self.one_table or width != embed_width


class AdaptiveEmbedding(nn.Module):
    """Ids to vectors of the layers' width, times √width."""

    def __init__(self, words: int, width: int, embed_width: int, cutoffs: Sequence[int] = (), shrink: int = 1) -> None:
        super().__init__()
        self.clusters = Clusters(words, width, embed_width, cutoffs, shrink)
        self.num_embeddings, self.embedding_dim, self.scale = words, width, width**0.5
        sizes = list(zip(self.clusters.sizes, self.clusters.widths, strict=False))
        self.tables = nn.ModuleList(nn.Embedding(size, narrow) for size, narrow in sizes)
        self.projections = nn.ParameterList(
            nn.Parameter(torch.empty(width, narrow)) for _, narrow in sizes if self.clusters.projected
        )

    def forward(self, ids: Tensor) -> Tensor:
        if self.clusters.one_table:
            x: Tensor = self.tables[0](ids)
            return (F.linear(x, self.projections[0]) if self.clusters.projected else x) * self.scale
        x = self.projections[0].new_zeros(*ids.shape, self.embedding_dim)
        for (low, high), table, projection in zip(self.clusters.spans, self.tables, self.projections, strict=True):
            inside = (ids >= low) & (ids < high)
            x[inside] = F.linear(table(ids[inside] - low), projection).to(x.dtype)
        return x * self.scale


class AdaptiveSoftmax(nn.Module):
    """Vectors to log-probabilities of all words: of the common ones, or of a rare word's cluster and of it therein."""

    def __init__(self, words: int, width: int, embed_width: int, cutoffs: Sequence[int] = (), shrink: int = 1) -> None:
        super().__init__()
        self.clusters = Clusters(words, width, embed_width, cutoffs, shrink)
        widths = self.clusters.widths
        table = nn.Linear if self.clusters.one_table else Linear  # one table is used in parts, so never quantised
        self.tables = nn.ModuleList(table(n, size) for n, size in zip(widths, self.clusters.sizes, strict=False))
        self.projections = nn.ParameterList(
            nn.Parameter(torch.empty(width, narrow)) for narrow in widths if self.clusters.projected
        )
        self.cluster = Linear(embed_width, len(cutoffs)) if cutoffs else None

    def _scores(self, n: int, hidden: Tensor) -> Tensor:
        """Scores of the words of cluster n; for the first, of the other clusters too."""
        x = hidden @ self.projections[n] if self.clusters.projected else hidden
        if self.clusters.one_table:
            words = slice(*self.clusters.spans[n])
            scores = F.linear(x, self.tables[0].weight[words], self.tables[0].bias[words])  # type: ignore[index]
        else:
            scores = self.tables[n](x)
        return scores if n or self.cluster is None else torch.cat((scores, self.cluster(x)), -1)

    def _log_probs(self, n: int, hidden: Tensor) -> Tensor:
        scores = self._scores(n, hidden)
        return F.log_softmax(scores, -1, dtype=torch.promote_types(scores.dtype, torch.float32))

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, width) -> (…, words)"""
        head = self._log_probs(0, hidden)
        shortlist = self.clusters.spans[0][1]
        parts = [head[..., :shortlist]]
        for n in range(1, len(self.clusters.spans)):
            parts.append(head[..., shortlist + n - 1, None] + self._log_probs(n, hidden))
        return torch.cat(parts, -1).to(hidden.dtype)

    def loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """The mean -log p of labels (rows,) given hidden (rows, width); each row costs its own cluster only."""
        counted = labels != -100
        hidden, labels = hidden[counted], labels[counted]
        if bool(((labels < 0) | (labels >= self.clusters.spans[-1][1])).any()):
            raise InputError(f"labels must be -100 or words, 0 to {self.clusters.spans[-1][1] - 1}.")
        head = self._log_probs(0, hidden)
        shortlist = self.clusters.spans[0][1]
        # rare words: first the choice of their cluster
        total = hidden.new_zeros((), dtype=head.dtype)
        for n, (low, high) in enumerate(self.clusters.spans):
            inside = (labels >= low) & (labels < high)
            if not bool(inside.any()):
                continue
            words = (labels[inside] - low)[:, None]
            if n:
                total = total + head[inside, shortlist + n - 1].sum()
                total = total + self._log_probs(n, hidden[inside]).gather(1, words).sum()
            else:
                total = total + head[inside].gather(1, words).sum()
        return -total / len(labels)
