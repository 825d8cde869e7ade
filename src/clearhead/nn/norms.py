"""Normalisations: LayerNorm (centre and scale), RMSNorm (scale, or gate too), BatchNorm over the rows of a batch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LayerNorm = nn.LayerNorm


class RMSNorm(nn.Module):
    """x / rms(x) · weight, with the mean of squares taken in fp32 at least, as T5 does."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * scaled.to(self.weight.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}"


class GatedRMSNorm(RMSNorm):
    """RMSNorm(x) · σ(x · gate): each number says itself how much of it passes."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__(width, eps)
        self.gate = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * torch.sigmoid(x * self.gate)


class BatchNorm(nn.Module):
    """As nn.BatchNorm1d, (batch, width). What it remembers of earlier batches are parameters that do not learn, so that
    they are stored, loaded and resumed with all others.

    A batch of one row has no spread of its own: in training too, it is measured by what is remembered.
    """

    def __init__(self, width: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.running_mean = nn.Parameter(torch.zeros(width), requires_grad=False)
        self.running_var = nn.Parameter(torch.ones(width), requires_grad=False)
        self.eps, self.momentum = eps, momentum

    def forward(self, x: Tensor) -> Tensor:
        of_batch = self.training and len(x) > 1
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, of_batch, self.momentum, self.eps
        )

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}, momentum={self.momentum}"
