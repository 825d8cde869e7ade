"""The feed-forward half of a layer: up, activation, down; or the gated kind with two ways up."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.activations import Activation
from clearhead.nn.linear import Linear
from clearhead.nn.tracing import tap


class FeedForward(nn.Module):
    """down(act(up(x))), or gated: down(act(gate(x)) · up(x))."""

    taps = ("hidden", "output")

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: str = "gelu",
        *,
        gated: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.gate = Linear(width, hidden, bias=bias) if gated else None
        self.up = Linear(width, hidden, bias=bias)
        self.activation = Activation(activation)
        self.down = Linear(hidden, width, bias=bias)
        self.dropout = dropout  # on the widened vector, as in torch.nn and T5; BERT and GPT-2 have none here

    def forward(self, x: Tensor) -> Tensor:
        # (batch, time, width) -> (batch, time, hidden) -> (batch, time, width)
        hidden = self.activation(self.up(x) if self.gate is None else self.gate(x))
        if self.gate is not None:
            hidden = hidden * self.up(x)
        hidden = tap(self, "hidden", hidden)
        if self.training and self.dropout:
            hidden = F.dropout(hidden, self.dropout)
        if hidden.dtype is torch.float16 and self.down.weight.dtype != self.up.weight.dtype:
            hidden = hidden.to(self.down.weight.dtype)  # T5 in float16 keeps the way down in fp32
        return tap(self, "output", self.down(hidden))
