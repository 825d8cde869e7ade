"""Words from their characters: convolutions over a word, the strongest answer of each filter, highways, a projection
(Kim et al. 2016; ELMo's token layer).

A word's vector depends on its characters alone, so each different word of a batch is computed once. And where all that
is left of the words is padding, every window sees the same: the windows there are computed once, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.nn.activations import Activation
from clearhead.nn.embedding import Embedder
from clearhead.nn.linear import Linear
from clearhead.nn.tracing import is_watched, tap


class Highway(nn.Module):
    """carry · relu(W x + b) + (1 − carry) · x, with carry = σ(W' x + b') (Srivastava et al. 2015).

    The published files call this gate "carry", though it is the share of what is new.
    """

    taps = ("carry", "output")

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = Linear(width, width)
        self.carry = Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        carry = tap(self, "carry", self.carry(x).sigmoid())
        return tap(self, "output", torch.lerp(x, F.relu(self.transform(x)), carry))


class CharacterCNN(Embedder):
    """Character ids (batch, time, characters) -> vectors (batch, time, width). Where all ids are 0 there is no word.

    filters          (how many characters it sees, how many filters there are of it), for each convolution
    max_characters   of a word, with the marks of its beginning and end
    padding_id       what stands behind the characters of a word
    project          False: the filters' answers are the vector, which is as wide as there are filters
    """

    def __init__(
        self,
        characters: int,
        character_width: int,
        filters: Sequence[Sequence[int]],
        highways: int,
        width: int,
        *,
        activation: str,
        max_characters: int,
        padding_id: int,
        project: bool = True,
    ) -> None:
        super().__init__()
        self.count = count = sum(number for _, number in filters)
        self.characters = nn.Embedding(characters, character_width, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(character_width, number, seen) for seen, number in filters)
        self.activation = Activation(activation)
        self.highways = nn.ModuleList(Highway(count) for _ in range(highways))
        self.projection = Linear(count, width) if project else None
        self.max_characters, self.padding_id = max_characters, padding_id
        self.widest = max(seen for seen, _ in filters)

    @property
    def taps(self) -> tuple[str, ...]:
        return ("characters", "filters", "output")

    @property
    def multiply_adds(self) -> int:
        """Of the convolutions, for one word: at each of its places where a filter fits."""
        weights = [convolution.weight for convolution in self.convolutions if isinstance(convolution, nn.Conv1d)]
        return sum(weight.numel() * (self.max_characters - weight.shape[-1] + 1) for weight in weights)

    def forward(self, ids: Tensor) -> Tensor:
        if not isinstance(ids, Tensor) or ids.ndim != 3:
            shape = tuple(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
            raise InputError(f"character_ids must be a tensor (batch, time, characters), not {shape}.")
        if ids.shape[-1] != self.max_characters:
            raise InputError(f"A word has {self.max_characters} character_ids here, not {ids.shape[-1]}.")
        if ids.numel() == 0:
            raise InputError("The input is empty: there is no word to read. Give at least one.")
        inside = is_watched(self, "characters", "filters")
        if inside or any(is_watched(highway, *Highway.taps) for highway in self.highways):
            return tap(self, "output", self._vectors(ids))
        words, places = different_rows(ids.flatten(0, 1))
        vectors = self._vectors(self._cut(words))
        return tap(self, "output", F.embedding(places, vectors).unflatten(0, ids.shape[:2]))

    def _cut(self, words: Tensor) -> Tensor:
        """Without the padding that no filter needs to see a second time: a window of nothing else is left to each."""
        used = ((words != self.padding_id) & (words != 0)).any(0).nonzero()
        return words[:, : (int(used[-1]) + 1 if len(used) else 0) + self.widest]

    def _vectors(self, ids: Tensor) -> Tensor:
        """(…, characters) -> (…, width)"""
        x = tap(self, "characters", self.characters(ids.long()))
        x = x.flatten(0, -3).mT  # (words, character_width, characters)
        found = [self.activation(convolution(x).amax(-1)) for convolution in self.convolutions]
        y = tap(self, "filters", torch.cat(found, -1).unflatten(0, ids.shape[:-1]))
        for highway in self.highways:
            y = highway(y)
        return y if self.projection is None else self.projection(y)


def different_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Each row once, (different, …), and for every row which of them it is, (rows,).

    Rows are told apart by one number each, a sum that two of them hardly ever share; and that is looked at.
    """
    draw = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (rows.shape[1],), generator=draw).to(rows.device)
    _, places = (rows.long() * factors).sum(-1).unique(return_inverse=True)
    first = places.new_zeros(int(places.max()) + 1)
    first[places] = torch.arange(len(rows), device=rows.device)
    different = rows[first]
    if not torch.equal(different[places], rows):
        return torch.unique(rows, dim=0, return_inverse=True)
    return different, places
