"""Rows of several lengths as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

IGNORED = -100  # a label that is left out of every loss


def padded(rows: Sequence[Sequence[int] | np.ndarray], value: int, multiple: int = 1) -> Tensor:
    """Rows of whole numbers, filled on the right to one length: (rows, longest)."""
    longest = -(-max(map(len, rows)) // multiple) * multiple
    out = torch.full((len(rows), longest), value, dtype=torch.long)
    for n, row in enumerate(rows):
        out[n, : len(row)] = torch.from_numpy(np.asarray(row, dtype=np.int64))
    return out


def mask_of(rows: Sequence[Sequence[int] | np.ndarray], multiple: int = 1) -> Tensor:
    """1 for what is there, 0 for padding: (rows, longest)."""
    return padded([np.ones(len(row), dtype=np.int64) for row in rows], 0, multiple)
