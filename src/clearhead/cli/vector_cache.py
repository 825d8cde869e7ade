"""Vectors of texts and pictures that were embedded before, on disk: by the model's fingerprint and each one's own."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from clearhead.cli.batch_job import INTERRUPTED, BatchJob, Read
from clearhead.cli.style import note
from clearhead.cli.texts import rows_of_list
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


def _embed_texts(pipe: Any, texts: list[str]) -> list[Any]:
    return list(pipe.embed(texts, normalize=True).float().cpu().numpy())


def vectors_of(
    pipe: Any,
    model: str,
    inputs: list[str],
    names: list[str],
    cache: VectorCache | None,
    embed: Callable[[Any, list[str]], list[Any]] = _embed_texts,
) -> Any:
    """Vectors of unit length, (inputs, width): those on disk, and the others computed and kept there.

    names   what tells the inputs apart: the texts themselves, or what is in a file
    embed   (pipe, inputs) -> their vectors, None for one that has none; then the answer is a list
    """
    import torch

    known = {} if cache is None else dict(cache.known)
    keys = [VectorCache.key(name) for name in names]
    new = {key: given for key, given in zip(keys, inputs, strict=True) if key not in known}

    def predict(read: list[Read], _: list[int]) -> list[Any]:
        return embed(pipe, [given for (given,) in read])

    stopped = False
    if new:
        rows = rows_of_list("the texts", list(new.values()))
        job = BatchJob("search", "Reading", model, pipe, rows, predict, list, {})
        found, stopped = job.collect()
        known |= {key: vector for key, (_, vector) in zip(new, found, strict=False) if vector is not None}
    if cache is not None and (found_now := {key: name for key, name in zip(keys, names, strict=True) if key in known}):
        same = len(found_now) == len(cache.known) and all(key in cache.known for key in found_now)
        vectors = torch.stack([torch.as_tensor(known[key]) for key in found_now])
        if not same and cache.write(list(found_now.values()), vectors):
            note(f"Vectors of {len(found_now):,} texts are kept in {cache.path} (--no-keep keeps none).")
    if stopped:
        raise typer.Exit(INTERRUPTED)
    rows_found = [torch.as_tensor(known[key]) if key in known else None for key in keys]
    return rows_found if any(row is None for row in rows_found) else torch.stack(rows_found)  # type: ignore[arg-type]
