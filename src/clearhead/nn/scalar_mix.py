"""One vector from the layers of a model: γ · Σ softmax(s)ₙ · layerₙ, with weights that a task can learn (ELMo)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clearhead.errors import InputError

EPSILON = 1e-12


class ScalarMix(nn.Module):
    """
    layers       how many there are
    layer_norm   each layer gets mean 0 and variance 1 first: over all numbers of all real positions of the call, as
                 the published code has it
    """

    def __init__(self, layers: int, layer_norm: bool = False) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.layer_norm = layer_norm

    def forward(self, layers: Sequence[Tensor], real: Tensor | None = None) -> Tensor:
        """
        layers   (batch, time, width) each
        real     (batch, time): 0 where there is padding, which does not count in the norm
        """
        if len(layers) != len(self.weights):
            raise InputError(f"This mix has a weight for each of {len(self.weights)} layers, and got {len(layers)}.")
        if self.layer_norm:
            layers = [_normalized(layer, real) for layer in layers]
        shares = self.weights.softmax(0)
        return self.gamma * sum(share * layer for share, layer in zip(shares, layers, strict=True))


def _normalized(x: Tensor, real: Tensor | None) -> Tensor:
    kept = x.new_ones(x.shape[:-1]) if real is None else real.to(x.dtype)
    kept, count = kept[..., None], kept.sum() * x.shape[-1]
    mean = (x * kept).sum() / count
    variance = ((x - mean) * kept).square().sum() / count
    return (x - mean) * (variance + EPSILON).rsqrt()
