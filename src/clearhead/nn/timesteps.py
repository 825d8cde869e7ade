"""How a denoising network is told the time: sines and cosines of the step's number, then two matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from clearhead.nn.activations import Activation
from clearhead.nn.linear import Linear


def timestep_waves(
    timesteps: Tensor,  # (batch,), whole numbers or fractions
    width: int,
    *,
    cosines_first: bool = False,
    frequency_shift: float = 1.0,
) -> Tensor:
    """(batch, width) in fp32: sines, then cosines of t · 10000^(-i / (width/2 - frequency_shift)).

    Not `positions.sinusoidal`: t may be any number, and its table would have a row for whole ones only.
    """
    half = width // 2
    exponent = torch.arange(half, dtype=torch.float32, device=timesteps.device) * -math.log(10_000)
    angle = timesteps[:, None].float() * (exponent / (half - frequency_shift)).exp()
    parts = [angle.cos(), angle.sin()] if cosines_first else [angle.sin(), angle.cos()]
    if width % 2:
        parts.append(torch.zeros_like(angle[:, :1]))
    return torch.cat(parts, dim=-1)


class TimestepEmbedding(nn.Module):
    """second(act(first(waves))), with another activation after it where a configuration asks for one."""

    def __init__(self, width: int, hidden: int, activation: str = "silu", after: str | None = None) -> None:
        super().__init__()
        self.first = Linear(width, hidden)
        self.activation = Activation(activation)
        self.second = Linear(hidden, hidden)
        self.after = None if after is None else Activation(after)

    def forward(self, waves: Tensor) -> Tensor:
        embedded: Tensor = self.second(self.activation(self.first(waves)))
        return embedded if self.after is None else self.after(embedded)
