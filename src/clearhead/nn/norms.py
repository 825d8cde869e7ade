"""The two normalisations: LayerNorm (centre and scale) and RMSNorm (scale only)."""

import torch
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
