"""Vectors of texts that were embedded before, on disk: by the model's fingerprint and each text's own."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clearhead.cli.style import note
from clearhead.files import atomic_paths

if TYPE_CHECKING:
    from torch import Tensor


class VectorCache:
    """One file for what is searched (a file or a folder) with one model: a key for each text, and its vector.

    known   key -> vector, of what was there
    """

    def __init__(self, folder: Path, model: str, source: str) -> None:
        name = hashlib.blake2b(f"{model} {source}".encode(), digest_size=16).hexdigest()
        self.path = folder / f"{name}.npz"
        self.known = self._read()

    @staticmethod
    def key(text: str) -> bytes:
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def _read(self) -> dict[bytes, np.ndarray]:
        """What is in the file; nothing where there is none, or not a whole one."""
        try:
            with np.load(self.path, allow_pickle=False) as file:
                keys, vectors = file["keys"], file["vectors"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return {}
        if keys.ndim != 2 or vectors.ndim != 2 or len(keys) != len(vectors) or not np.isfinite(vectors).all():
            return {}
        return {key.tobytes(): vector for key, vector in zip(keys, vectors, strict=True)}

    def write(self, texts: list[str], vectors: Tensor) -> bool:
        """These texts alone, whole or not at all. Whether it could be written: without a cache a search is slow, no
        more."""
        keys = np.frombuffer(b"".join(map(self.key, texts)), dtype=np.uint8).reshape(len(texts), -1)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_paths(self.path) as [part], part.open("wb") as file:
                np.savez(file, keys=keys, vectors=vectors.float().cpu().numpy())
        except OSError as error:
            note(f"The vectors cannot be kept in {self.path.parent}: {error.strerror or error}.")
            return False
        return True
