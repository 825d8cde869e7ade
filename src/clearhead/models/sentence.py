"""From token vectors to one vector for a sentence: pool, project, normalise, as Sentence-BERT folders describe it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError, did_you_mean
from clearhead.nn.activations import Activation
from clearhead.nn.linear import Linear

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


class Pooling(nn.Module):
    """One vector from many; several modes stand side by side.

    cls                    the first real token
    mean, max              over the real tokens
    mean_sqrt_len_tokens   their sum over the square root of their number
    weightedmean           later tokens count more: position n has weight n
    lasttoken              the last real token
    """

    def __init__(self, modes: tuple[str, ...] = ("mean",)) -> None:
        super().__init__()
        for mode in modes:
            if mode not in get_args(PoolingMode):
                raise ConfigError(
                    f"Unknown pooling {mode!r}.{did_you_mean(mode, get_args(PoolingMode))} "
                    f"Known: {', '.join(get_args(PoolingMode))}."
                )
        self.modes = modes

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """hidden (batch, time, width), mask (batch, time) of 1 and 0 -> (batch, width · modes)"""
        wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        real = mask[..., None].to(wide.dtype)
        return torch.cat([self._pool(mode, wide, real) for mode in self.modes], -1).to(hidden.dtype)

    def _pool(self, mode: str, hidden: Tensor, real: Tensor) -> Tensor:
        rows = torch.arange(len(hidden), device=hidden.device)
        first = real[..., 0].argmax(1)
        if mode == "cls":
            return hidden[rows, first]
        if mode == "lasttoken":
            return hidden[rows, real.shape[1] - 1 - real[..., 0].flip(1).argmax(1)]
        if mode == "max":
            return hidden.masked_fill(real == 0, -torch.inf).amax(1)
        if mode == "weightedmean":
            index = torch.arange(1, hidden.shape[1] + 1, device=hidden.device, dtype=hidden.dtype)
            real = real * (index - first[:, None])[..., None]
        count = real.sum(1).clamp(min=1e-9)
        return (hidden * real).sum(1) / (count.sqrt() if mode == "mean_sqrt_len_tokens" else count)

    def extra_repr(self) -> str:
        return ", ".join(self.modes)


class Dense(nn.Module):
    """A matrix and an activation on the sentence vector; `residual` adds what came in."""

    def __init__(self, width: int, out_width: int, activation: str, bias: bool = True, residual: bool = False) -> None:
        super().__init__()
        self.linear = Linear(width, out_width, bias=bias)
        self.activation = Activation(activation)
        self.residual = Linear(width, out_width, bias=False) if residual and width != out_width else None
        self.adds_input = residual

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.activation(self.linear(x))
        if not self.adds_input:
            return out
        return out + (x if self.residual is None else self.residual(x))


class Normalize(nn.Module):
    """To unit length, so that a dot product is a cosine."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, p=2, dim=-1)


class SentenceHead(nn.Module):
    """Pooling, then any number of steps on the pooled vector."""

    def __init__(self, pooling: Pooling, steps: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.pooling = pooling
        self.steps = nn.ModuleList(steps)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        x: Tensor = self.pooling(hidden, mask)
        for step in self.steps:
            x = step(x)
        return x
