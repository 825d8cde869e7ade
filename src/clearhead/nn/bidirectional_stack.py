"""Two language models in one stack: one reads forwards, one backwards, and neither sees what the other found (ELMo).

Unlike a bidirectional LSTM, whose upper layers read both directions, each direction here is a stack of its own; the
layers of both are only put side by side: (batch, time, [forward; backward]).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.clipped_lstm import ClippedLSTM, run_clipped
from clearhead.nn.embedding import Embedder
from clearhead.nn.stack import Stack, narrowed
from clearhead.nn.tracing import tap


class BidirectionalLayer(nn.Module):
    """One layer of each direction.

    residual   the input is added to the output (a skip connection)
    dropout    of the input
    """

    taps = ("input", "output")
    tap_names = {"forwards": "forward", "backwards": "backward"}

    def __init__(
        self, forwards: ClippedLSTM, backwards: ClippedLSTM, *, residual: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.forwards, self.backwards = forwards, backwards
        self.residual, self.dropout = residual, dropout

    @property
    def input_size(self) -> int:
        return 2 * self.forwards.input_size

    @property
    def width(self) -> int:
        return 2 * self.forwards.width

    @property
    def gates_and_states(self) -> int:
        """How many numbers one position makes, which training keeps; cells count twice, for they are fp32."""
        return 2 * (6 * self.forwards.hidden_size + self.forwards.width)

    def forward(self, x: Tensor, real: Tensor, mirror: Tensor) -> Tensor:
        """
        x        (batch, time, 2 · width)
        real     (batch, time): where a text is, at the beginning of its row
        mirror   (batch, time): where each word stands when its text is read backwards
        """
        x = tap(self, "input", x)
        dropped = F.dropout(x, self.dropout, self.training)
        ahead, back = dropped.chunk(2, -1)
        if self.forwards.is_seen() or self.backwards.is_seen():
            states = [self.forwards.announced(ahead, real), self.backwards.announced(back, real, backwards=True)]
        else:
            states = run_clipped([self.forwards, self.backwards], [ahead, mirrored(back, mirror)])
            states[1] = mirrored(states[1], mirror)
        y = torch.cat(states, -1)
        y = (y + dropped if self.residual else y) * real[..., None]
        return tap(self, "output", y)


class BidirectionalStack(Stack):
    """Embeds words and runs them through both directions. What stands behind the end of a text is zero everywhere."""

    def __init__(self, embed: Embedder, layers: Iterable[BidirectionalLayer], final_dropout: float = 0.0) -> None:
        super().__init__(embed, layers, causal=False, final_dropout=final_dropout)  # type: ignore[arg-type]

    def forward(self, character_ids: Tensor) -> Tensor:  # type: ignore[override]
        """The last layer's output, (batch, time, 2 · width)."""
        return self.last(self.all_layers(character_ids))

    def last(self, layers: list[Tensor]) -> Tensor:
        """What a head reads of all layers."""
        return F.dropout(layers[-1], self.final_dropout, self.training)

    def all_layers(self, character_ids: Tensor) -> list[Tensor]:
        """The words alone, twice, and what each layer makes of them: (batch, time, 2 · width) each.

        character_ids   (batch, time, characters); a row of zeros is no word. Words come first in their row
        """
        real = (character_ids != 0).any(-1)
        x = narrowed(self.embed(character_ids)) * real[..., None]
        outputs, mirror = [torch.cat([x, x], -1)], mirror_of(real)
        for layer in self.layers:
            outputs.append(self.through(layer, outputs[-1], real, mirror))
        return outputs


def mirror_of(real: Tensor) -> Tensor:
    """(batch, time): each place of a text counted from its end; places behind it stay where they are."""
    at = torch.arange(real.shape[1], device=real.device)
    last = real.sum(-1, keepdim=True) - 1
    return torch.where(real, last - at, at)


def mirrored(x: Tensor, mirror: Tensor) -> Tensor:
    """Each text from its end to its beginning; twice is as before."""
    return x.gather(1, mirror[..., None].expand_as(x))
