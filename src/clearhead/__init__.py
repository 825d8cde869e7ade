"""Clearhead: every transformer, small enough to read, fast enough to use, with glass walls.

Heavy imports wait until a name is used: `import clearhead` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from clearhead import explain, generate, hub, models, nn, retrieval, studies, text, train
    from clearhead.errors import ClearheadError
    from clearhead.nn.tracing import tap, tap_points, trace
    from clearhead.pipeline import Pipeline, load

_NAMES = {
    "ClearheadError": "clearhead.errors",
    "Pipeline": "clearhead.pipeline",
    "load": "clearhead.pipeline",
    "tap": "clearhead.nn.tracing",
    "tap_points": "clearhead.nn.tracing",
    "trace": "clearhead.nn.tracing",
}
_ROOMS = ("explain", "generate", "hub", "models", "nn", "retrieval", "studies", "text", "train")

__all__ = [
    "ClearheadError",
    "Pipeline",
    "explain",
    "generate",
    "hub",
    "load",
    "models",
    "nn",
    "retrieval",
    "studies",
    "tap",
    "tap_points",
    "text",
    "trace",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"clearhead.{name}")
    raise AttributeError(f"module 'clearhead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
