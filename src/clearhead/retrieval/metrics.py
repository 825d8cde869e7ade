"""How alike two vectors are. A score rises with likeness, whatever the metric; a distance, as LanceDB has it, falls.

cosine   the cosine of the angle, from -1 to 1; vectors are kept at unit length
l2       minus the squared Euclidean distance, at most 0; RETRO's paper searches by it
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

Metric = Literal["cosine", "l2"]
METRICS: tuple[Metric, ...] = get_args(Metric)


def keys(vectors: np.ndarray, metric: Metric) -> np.ndarray:
    """(n, width) as they are kept and searched with."""
    if metric == "l2":
        return vectors
    unit: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


def score(distance: float, metric: Metric) -> float:
    """LanceDB's distance, which is 1 - cosine or the squared Euclidean one, as a score."""
    return 1.0 - distance if metric == "cosine" else -distance


def likeness(a: np.ndarray, b: np.ndarray, metric: Metric) -> float:
    """The score of two vectors as they are kept."""
    return float(a @ b) if metric == "cosine" else -float(((a - b) ** 2).sum())
