"""The model of the package retro-pytorch, without what the package needs to build its index of neighbours."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any
from unittest import mock


def retro_class() -> Any:
    """Its class RETRO. Its model imports the index, and so two packages that no model calls: empty ones stand in."""
    faiss, autofaiss = ModuleType("faiss"), ModuleType("autofaiss")
    autofaiss.build_index = None  # type: ignore[attr-defined]
    with mock.patch.dict(sys.modules, {"faiss": faiss, "autofaiss": autofaiss}):
        from retro_pytorch.retro_pytorch import RETRO
    return RETRO
