"""Blocks of a convolutional network over pictures: the residual block that is told the time, and steps of size.

Shapes: (batch, channels, height, width).
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.activations import Activation
from clearhead.nn.linear import Linear
from clearhead.nn.tracing import tap

TimeNorm = Literal["default", "scale_shift"]


def group_norm(groups: int, channels: int, eps: float) -> nn.GroupNorm:
    if channels % groups:
        raise ConfigError(f"{channels} channels cannot be normalised in {groups} groups of equal size.")
    return nn.GroupNorm(groups, channels, eps=eps)


class ResnetBlock(nn.Module):
    """x + conv(act(norm(conv(act(norm(x))) + time))), the shortcut widened by a 1 × 1 convolution where it must be.

    time_width   of the time's embedding; None: it is told none (an autoencoder's)
    time_norm    "default": the time is added; "scale_shift": it scales and shifts what the second norm gives
    scale        what the sum is divided by
    """

    taps = ("output",)

    def __init__(
        self,
        channels: int,
        out_channels: int,
        *,
        time_width: int | None,
        groups: int,
        eps: float,
        activation: str = "silu",
        dropout: float = 0.0,
        time_norm: TimeNorm = "default",
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.norm1 = group_norm(groups, channels, eps)
        self.conv1 = nn.Conv2d(channels, out_channels, 3, padding=1)
        shifts = 2 if time_norm == "scale_shift" else 1
        self.time = None if time_width is None else Linear(time_width, shifts * out_channels)
        self.norm2 = group_norm(groups, out_channels, eps)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.shortcut = None if channels == out_channels else nn.Conv2d(channels, out_channels, 1)
        self.activation = Activation(activation)
        self.dropout, self.time_norm, self.scale = dropout, time_norm, scale

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        hidden = self.conv1(self.activation(self.norm1(x)))
        if self.time is None:
            hidden = self.norm2(hidden)
        else:
            assert time is not None
            told = self.time(self.activation(time))[:, :, None, None]
            if self.time_norm == "scale_shift":
                scale, shift = told.chunk(2, dim=1)
                hidden = self.norm2(hidden) * (1 + scale) + shift
            else:
                hidden = self.norm2(hidden + told)
        hidden = F.dropout(self.activation(hidden), self.dropout, self.training)
        residual = x if self.shortcut is None else self.shortcut(x)
        return tap(self, "output", (residual + self.conv2(hidden)) / self.scale)


class Downsample(nn.Module):
    """Half the height and width, by a convolution with stride 2. Padding 0: a row and a column of zeros at the end."""

    def __init__(self, channels: int, padding: int = 1) -> None:
        super().__init__()
        self.padding = padding
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        smaller: Tensor = self.conv(x if self.padding else F.pad(x, (0, 1, 0, 1)))
        return smaller


class Upsample(nn.Module):
    """Twice the height and width (or `size`, where an odd one was halved): pixels repeated, then a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        repeated = F.interpolate(x, scale_factor=2.0) if size is None else F.interpolate(x, size=size)
        larger: Tensor = self.conv(repeated)
        return larger
