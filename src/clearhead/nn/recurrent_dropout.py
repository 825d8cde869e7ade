"""Dropout that suits recurrent layers (Merity et al. 2017, after Gal and Ghahramani): what is left out stays left out.

locked        one mask for all steps of a text, so that noise does not add up in time
words         whole words of the vocabulary vanish, wherever they stand
DropConnect   single connections from state to state vanish, the same in every step: the weights are dropped before the
              steps are taken, so torch's fused kernel runs as ever
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.embedding import TokenEmbedder
from clearhead.nn.fused_recurrence import States
from clearhead.nn.recurrent import LSTM
from clearhead.nn.recurrent_stack import RecurrentLayer


def locked_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """(batch, time, width): of each row the same numbers vanish at every step."""
    if not training or p == 0:
        return x
    return x * F.dropout(torch.ones_like(x[:, :1]), p)


class DroppedWordEmbedder(TokenEmbedder):
    """Looks words up, leaving some of the vocabulary out; then locked dropout.

    word_dropout    how many of all words vanish
    input_dropout   how many numbers of a row's vectors
    """

    def __init__(self, tokens: nn.Embedding, word_dropout: float = 0.0, input_dropout: float = 0.0) -> None:
        super().__init__(tokens)
        self.word_dropout, self.input_dropout = word_dropout, input_dropout

    def look_up(self, input_ids: Tensor) -> Tensor:
        x = super().look_up(input_ids)
        if self.training and self.word_dropout:
            words = F.dropout(x.new_ones(self.tokens.num_embeddings, 1), self.word_dropout)
            x = x * words[input_ids]
        return x

    def drop(self, x: Tensor) -> Tensor:
        return locked_dropout(x, self.input_dropout, self.training)


class DropConnectLSTM(LSTM):
    """An LSTM of which, in training, every call leaves some connections from state to state out.

    weight_dropout   how many of them
    """

    def __init__(self, *args: Any, weight_dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.weight_dropout = weight_dropout

    def read(self, x: Tensor, states: States | None = None, real: Tensor | None = None) -> tuple[Tensor, States]:
        if not self.training or not self.weight_dropout:
            return super().read(x, states, real)
        names = [name for name in self._parameters if name.startswith("weight_hh")]
        # An attribute of the object is found before the parameter of that name, by whoever asks for it in this call.
        self.__dict__ |= {name: F.dropout(self._parameters[name], self.weight_dropout) for name in names}  # type: ignore[arg-type]
        try:
            return super().read(x, states, real)
        finally:
            for name in names:
                del self.__dict__[name]


class LockedDropoutLayer(RecurrentLayer):
    """A recurrent layer that hands on what locked dropout leaves of its states."""

    def drop(self, x: Tensor) -> Tensor:
        return locked_dropout(x, self.dropout, self.training)
