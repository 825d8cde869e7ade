"""What an autoencoder says of a picture: a normal distribution for every number of its latent."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LEAST_LOGVAR, MOST_LOGVAR = -30.0, 20.0


class LatentDistribution:
    """Means and variances, each (batch, channels, height, width). `parameters` holds both, side by side in channels."""

    def __init__(self, parameters: Tensor) -> None:
        self.parameters = parameters
        self.mean, logvar = parameters.chunk(2, dim=1)
        self.logvar = logvar.clamp(LEAST_LOGVAR, MOST_LOGVAR)

    @property
    def std(self) -> Tensor:
        return (0.5 * self.logvar).exp()

    @property
    def var(self) -> Tensor:
        return self.logvar.exp()

    def mode(self) -> Tensor:
        return self.mean

    def sample(self, generator: torch.Generator | Sequence[torch.Generator] | None = None) -> Tensor:
        return self.mean + self.std * noise_like(self.mean, generator)

    def kl(self) -> Tensor:
        """(batch,): how far it is from a standard normal, in nats."""
        return 0.5 * (self.mean.square() + self.var - 1.0 - self.logvar).sum(dim=(1, 2, 3))


def noise_like(tensor: Tensor, generator: torch.Generator | Sequence[torch.Generator] | None = None) -> Tensor:
    """Standard normal numbers of this shape, from one generator, or each row from its own: a row then has the same
    noise whatever stands beside it. They are drawn where the generator is, which may be the CPU, and moved."""
    if generator is None or isinstance(generator, torch.Generator):
        device = tensor.device if generator is None else generator.device
        return torch.randn(tensor.shape, generator=generator, device=device, dtype=tensor.dtype).to(tensor.device)
    rows = [noise_like(row, each) for row, each in zip(tensor.split(1), generator, strict=True)]
    return torch.cat(rows)
