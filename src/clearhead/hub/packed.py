"""Weights that were shipped in eight bits: a matrix as whole numbers with a scale for each row, the rest in fp16.

A packed model is a quarter as large as in fp32 and is unpacked when it is loaded: from then on it is like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from clearhead.hub.weights import Weights, names_in, open_weights

PACKED = "model.int8.safetensors"
SCALE = ".scale"  # of a packed matrix: (rows, 1), under the matrix's name and this


class PackedWeights(Weights):
    """The tensors of a packed file, by published name, as fp32."""

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._where if not name.endswith(SCALE))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Tensor:
        tensor = super().__getitem__(name).float()
        return tensor * super().__getitem__(name + SCALE).float() if name + SCALE in self._where else tensor

    def read(self, name: str, dtype: torch.dtype, device: torch.device, *, to_transpose: bool = False) -> Tensor:
        return self[name].to(device=device, dtype=dtype)

    def dtype(self, name: str) -> str:
        return "float32"


def open_packed(folder: Path) -> PackedWeights | None:
    """The folder's packed weights; None where it has none."""
    path = folder / PACKED
    return PackedWeights({path: names_in(path)}) if path.is_file() else None


def pack(folder: Path, target: Path) -> None:
    """Write the weights of a model's folder into `target`, packed."""
    packed: dict[str, Tensor] = {}
    weights = open_weights(folder)
    for name in weights:
        tensor = weights[name].float()
        if tensor.ndim < 2:
            packed[name] = tensor.half()
            continue
        # the scale is rounded first, so that the numbers are right for the scale that is stored
        scale = (tensor.abs().amax(tuple(range(1, tensor.ndim)), keepdim=True) / 127).clamp(min=1e-7).half()
        packed[name] = (tensor / scale.float()).round().clamp(-127, 127).to(torch.int8)
        packed[name + SCALE] = scale
    save_file(packed, target / PACKED)
