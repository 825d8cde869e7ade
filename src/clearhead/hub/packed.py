"""Weights that were shipped in few bits: matrices as small whole numbers with scales, the rest in fp16.

eight bits   a scale for each row; codes -127 to 127
five bits    a scale for each 128 numbers of a row; codes -16 to 15, kept as four bits (two codes in a byte) and one
             (eight in a byte). For the matrices inside the layers, where most of the weights are; tables keep eight.

A packed model is unpacked when it is loaded: from then on it is like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from clearhead.errors import InputError
from clearhead.hub.weights import Weights, names_in, open_weights

PACKED = "model.packed.safetensors"
SCALE = ".scale"  # of a packed matrix: (rows, groups), under the matrix's name and this
HIGH = ".high"  # of one in five bits: the fifth bit of every code, (rows, columns / 8)
GROUP = 128
_IN_A_LAYER = re.compile(r"\.\d+\.")
# of the largest number in a group: clipping it can make the others better
_CLIP_RATIOS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)


class PackedWeights(Weights):
    """The tensors of a packed file, by published name, as fp32."""

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._files if not name.endswith((SCALE, HIGH)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Tensor:
        tensor = super().__getitem__(name)
        if name + SCALE not in self._files:
            return tensor.float()
        scale = super().__getitem__(name + SCALE).float()
        if name + HIGH not in self._files:
            return tensor.float() * scale
        return _from_five_bits(tensor, super().__getitem__(name + HIGH), scale)

    def shape(self, name: str) -> tuple[int, ...]:
        rows, *columns = super().shape(name)
        return (rows, 2 * columns[0]) if name + HIGH in self._files else (rows, *columns)

    def read(self, name: str, dtype: torch.dtype, device: torch.device, *, column_major: bool = False) -> Tensor:
        return self[name].to(device=device, dtype=dtype)

    def dtype(self, name: str) -> str:
        return "float32"


def open_packed(folder: Path) -> PackedWeights | None:
    """The folder's packed weights; None where it has none."""
    path = folder / PACKED
    return PackedWeights({path: names_in(path)}) if path.is_file() else None


def pack(folder: Path, target: Path, bits: int = 8) -> None:
    """Write the weights of a model's folder into `target`, packed.

    bits   8, or 5 for the matrices inside the layers
    """
    if bits not in (5, 8):
        raise InputError(f"Weights are packed to 8 or 5 bits, not {bits}.")
    packed: dict[str, Tensor] = {}
    weights = open_weights(folder)
    for name in weights:
        tensor = weights[name].float()
        if tensor.ndim < 2:
            packed[name] = tensor.half()
        elif bits == 5 and tensor.ndim == 2 and tensor.shape[1] % GROUP == 0 and _IN_A_LAYER.search(name):
            packed[name], packed[name + HIGH], packed[name + SCALE] = _to_five_bits(tensor)
        else:
            # the scale is rounded first, so that the numbers are right for the scale that is stored
            scale = (tensor.abs().amax(tuple(range(1, tensor.ndim)), keepdim=True) / 127).clamp(min=1e-7).half()
            packed[name] = (tensor / scale.float()).round().clamp(-127, 127).to(torch.int8)
            packed[name + SCALE] = scale
    save_file(packed, target / PACKED)


def _to_five_bits(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(rows, columns) -> four bits of each code (rows, columns / 2), the fifth (rows, columns / 8), scales."""
    groups = matrix.unflatten(1, (-1, GROUP))  # (rows, groups, 128)
    low, high = groups.aminmax(dim=-1, keepdim=True)
    largest = torch.where(high > -low, high, low)
    best, smallest_error = torch.zeros_like(largest), torch.full_like(largest, torch.inf)
    for ratio in _CLIP_RATIOS:
        scale = (largest * ratio / -16).half().float()  # the largest becomes -16, so that all codes are used
        scale = torch.where(scale == 0, 1e-7, scale)
        error = ((groups / scale).round().clamp(-16, 15) * scale - groups).square().sum(-1, keepdim=True)
        best, smallest_error = torch.where(error < smallest_error, scale, best), torch.minimum(error, smallest_error)
    codes = (groups / best).round().clamp(-16, 15).add(16).to(torch.uint8).flatten(1)
    first, second = (codes & 15).chunk(2, 1)
    high_bits = (codes >> 4).unflatten(1, (-1, 8)) << torch.arange(8, dtype=torch.uint8)
    return first | second << 4, high_bits.sum(-1, dtype=torch.uint8), best.squeeze(-1).half()


def _from_five_bits(low_bits: Tensor, high: Tensor, scale: Tensor) -> Tensor:
    low = torch.cat([low_bits & 15, low_bits >> 4], 1)
    fifth = (high.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8)) & 1
    codes = (low | fifth.flatten(1) << 4).float() - 16
    return (codes.unflatten(1, (-1, GROUP)) * scale.unsqueeze(-1)).flatten(1)
