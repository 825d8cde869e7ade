"""From a file of word vectors to a pipeline. Small files are read into memory; large ones once into the cache folder.

What is kept there is a folder like any that is saved: the next time it is mapped, and loads in an instant. Its memory
is the system's to take back. A kept folder goes when its file is gone or has changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from clearhead import files, hub
from clearhead.errors import CheckpointError
from clearhead.hub.assign import assign
from clearhead.messages import say
from clearhead.models.word_vectors import FAMILY, PUBLISHED, TABLE, WordVectorsConfig
from clearhead.pipeline.word_vectors import WordVectors
from clearhead.text.word_vectors import VectorFile, Words, look

log = logging.getLogger("clearhead")
LARGE = 96 * 2**20  # bytes of a file that is read by way of the cache
_HEADER_BYTES = 256  # of model.safetensors, its eight bytes of length included: rows begin at a round place
_SOURCE = "source.json"
_VERSION = 1


def load_vectors(path: Path, name: str, dtype: torch.dtype | None = None, device: Any = None) -> WordVectors:
    file = look(path)
    if file is None:
        key = "loading.no_vectors" if path.stat().st_size else "loading.empty_file"
        raise CheckpointError(say(key, name=name, config=hub.config.CONFIG))
    folder = _kept(file) if path.stat().st_size > LARGE else None
    if folder is not None:
        model = hub.load_model(folder, dtype=dtype, device=device)
        return WordVectors.from_folder(folder, model, name)
    blocks = list(file.blocks())
    words = Words(b"".join(words for words, _ in blocks))
    table = np.concatenate([values for _, values in blocks]) if len(blocks) > 1 else np.array(blocks[0][1])
    again = _repeated(path, words)
    if len(again):
        words, table = words.without(again), np.delete(table, again, axis=0)
    return pipeline_of(words, torch.from_numpy(table).to(device=device, dtype=dtype), name)


def pipeline_of(words: Words, table: torch.Tensor, name: str = "") -> WordVectors:
    """Around a table that is in memory: (words, width)."""
    config = WordVectorsConfig(vocab_size=table.shape[0], hidden_size=table.shape[1])
    model = FAMILY.make(config, device="meta")
    assign(model, TABLE, table)
    return WordVectors(model, words, name)


def _repeated(path: Path, words: Words) -> np.ndarray:
    again = words.repeated()
    if len(again):
        few = hub.weights.first_few([repr(words[row]) for row in again.tolist()], 3)
        log.warning("%s has words more than once (%s): the first vector of each is kept.", path, few)
    return again


# ---- large files


def _kept(file: VectorFile) -> Path | None:
    """The folder that holds what is in the file, made now if need be; None where nothing can be kept."""
    source = _source(file.path)
    try:
        cache = files.cache_folder("vectors")
        cache.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    folder = cache / hashlib.sha256(json.dumps(source).encode()).hexdigest()[:32]
    if not folder.is_dir():
        _sweep(cache)
        if shutil.disk_usage(cache).free < 2 * file.path.stat().st_size:
            return None
        try:
            with files.atomic_folder(folder) as part:
                _write_folder(file, part)
                (part / _SOURCE).write_text(json.dumps(source), encoding="utf-8")
        except CheckpointError:
            raise
        except OSError as error:
            log.warning("%s is not kept for the next time: %s.", file.path, error.strerror or error)
            return None
    return folder


def _source(path: Path) -> list[Any]:
    facts = path.stat()
    return [_VERSION, str(path.resolve()), facts.st_size, facts.st_mtime_ns]


def _sweep(cache: Path) -> None:
    """What was read from files that are gone, or are others now."""
    for folder in cache.iterdir():
        with suppress(OSError, ValueError, KeyError, IndexError):
            kept = json.loads((folder / _SOURCE).read_text(encoding="utf-8"))
            path = Path(kept[1])
            if not path.exists() or _source(path) != kept:
                shutil.rmtree(folder, ignore_errors=True)


def _write_folder(file: VectorFile, folder: Path) -> None:
    """config.json, model.safetensors and words.txt, the rows written as they are read."""
    weights = folder / "model.safetensors"
    with weights.open("wb") as out:
        words = Words(b"".join(_written(file, out)))
    again = _repeated(file.path, words)
    if len(again):
        _drop(weights, len(words), file.width, again)
        words = words.without(again)
    with weights.open("r+b") as out:
        out.write(_header(len(words), file.width))
    config = WordVectorsConfig(vocab_size=len(words), hidden_size=file.width)
    hub.write_description(folder, FAMILY.make(config, device="meta"), words)


def _written(file: VectorFile, out: IO[bytes]) -> Iterator[bytes]:
    """The words, while their rows are written behind the place of the header."""
    out.write(bytes(_HEADER_BYTES))
    for words, values in file.blocks():
        out.write(np.ascontiguousarray(values, "<f4").data)
        yield words


def _drop(weights: Path, rows: int, width: int, again: np.ndarray) -> None:
    """Close the gaps of rows that are left out, a few at a time: what is moved never lies behind where it goes."""
    table = np.memmap(weights, "<f4", "r+", _HEADER_BYTES, (rows, width))
    kept = np.delete(np.arange(rows), again)
    for first in range(0, len(kept), 4096):
        some = kept[first : first + 4096]
        table[first : first + len(some)] = table[some]
    table.flush()
    del table
    with weights.open("r+b") as file:
        file.truncate(_HEADER_BYTES + len(kept) * width * 4)


def _header(rows: int, width: int) -> bytes:
    """How a safetensors file begins: the length of what follows, and the names, types and places of its tensors."""
    end = rows * width * 4
    table = {"dtype": "F32", "shape": [rows, width], "data_offsets": [0, end]}
    facts = {PUBLISHED: table, "__metadata__": {"format": "pt"}}
    text = json.dumps(facts).encode().ljust(_HEADER_BYTES - 8)
    return struct.pack("<Q", len(text)) + text
