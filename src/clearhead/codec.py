"""Codecs: between what a person gives (a text, a picture, a piece of music) and the tensors a model reads.

A codec also names the places of its input: `units(raw)` gives what stands at each position, so that attention, saliency
and their pictures can point at it. Tokenizers are codecs (`text/`); image processors and MIDI events follow the same
protocol.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from clearhead.units import Unit


@runtime_checkable
class Codec(Protocol):
    def __call__(self, raw: Any, /) -> Any:
        """The tensors (or plain lists) that a model is called with, by their names."""
        ...

    def units(self, raw: Any, /) -> list[Any]:  # list[Unit], of the codec's own kind
        """What stands at each position of the model's input."""
        ...

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the files that make it again; which ones were written."""
        ...


__all__ = ["Codec", "Unit"]
