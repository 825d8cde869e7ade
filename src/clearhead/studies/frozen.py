"""A model as it is, its weights untouched: what its layers say about texts, computed once and kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.files import atomic_paths, cache_folder
from clearhead.models import Model
from clearhead.pipeline import TextPipeline
from clearhead.studies.study import OnProgress, silent
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.sequence import SequenceObjective

# From the embedding and every layer's output, each (rows, time, width), and the batch: rows of vectors under names.
# A row of the batch may give one vector, (width,), or several, (words, width).
Keep = Callable[[tuple[Tensor, ...], Batch], dict[str, list[Tensor]]]


@dataclass(frozen=True)
class Frozen:
    """vectors   name -> for each example one vector, or several      cached   they were on disk already"""

    vectors: dict[str, list[np.ndarray]]
    cached: bool

    def __getitem__(self, name: str) -> np.ndarray:
        """All vectors of a name: (examples or words, width)."""
        rows = self.vectors[name]
        return np.stack(rows) if rows[0].ndim == 1 else np.concatenate(rows)


def encoder(pipe: TextPipeline) -> Model:
    """The pipeline's model, if it has one stack to look into."""
    if pipe.model.is_encoder_decoder:
        raise InputError("An encoder–decoder has no single stack to take features from. Load an encoder.")
    return pipe.model


def longest(pipe: TextPipeline) -> int:
    """How many tokens the model can read."""
    own = pipe.sentence.max_seq_length if pipe.sentence is not None else None
    return min(v for v in (own, pipe.tokenizer.model_max_length, encoder(pipe).max_length) if v)


@torch.no_grad()
def frozen(
    pipe: TextPipeline,
    objective: SequenceObjective,
    examples: Sequence[Example],
    keep: Keep,
    kept: str,
    *,
    batch_size: int = 32,
    cache: str | os.PathLike[str] | None = None,
    on_progress: OnProgress = silent,
) -> Frozen:
    """What `keep` takes from the model's layers, for every example in order.

    kept    says what `keep` takes: vectors on disk are found by it, the weights and the examples
    cache   a folder for them; None: nothing is written
    """
    model = encoder(pipe)
    place = None if cache is None else Path(cache) / f"{_key(model, examples, kept)}.npz"
    if place is not None and (there := _read(place)) is not None:
        return Frozen(there, cached=True)
    objective.training_module(model)
    order = sorted(range(len(examples)), key=lambda n: -len(examples[n]["input_ids"]))  # of one length: little padding
    vectors: dict[str, list[np.ndarray]] = {}
    training = model.training
    model.eval()
    on_progress("Reading", 0, len(examples))
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        batch = objective.collate([examples[n] for n in chosen]).to(model.device)
        inputs = {name: tensor for name, tensor in objective.model_inputs(batch).items() if name != "labels"}
        states = model(**inputs, output_hidden_states=True).hidden_states
        for name, rows in keep(states, batch).items():
            column = vectors.setdefault(name, [np.zeros(0)] * len(examples))
            for n, row in zip(chosen, rows, strict=True):
                column[n] = row.float().cpu().numpy()
        on_progress("Reading", start + len(chosen), len(examples))
    model.train(training)
    if place is not None:
        _write(place, vectors)
    return Frozen(vectors, cached=False)


def default_cache() -> Path:
    """Where features are kept unless somebody says another place."""
    return cache_folder("features")


# ---- on disk


def _key(model: Model, examples: Sequence[Example], what_is_kept: str) -> str:
    """Changes with anything the vectors depend on: the configuration, every weight, every token, what is kept."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([what_is_kept, model.config.to_dict()], sort_keys=True, default=str).encode())
    for name, weight in model.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    for example in examples:
        for name, numbers in sorted(example.items()):
            digest.update(f"{name} {np.asarray(numbers).shape}".encode())
            digest.update(np.ascontiguousarray(numbers).data)
    return digest.hexdigest()


def _read(path: Path) -> dict[str, list[np.ndarray]] | None:
    """The vectors of a file; None where there is none, or not a whole one."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    ends = arrays.pop("ends", None)
    return {
        name: list(rows) if ends is None else np.split(rows, ends.tolist()) for name, rows in arrays.items()
    } or None  # fmt: skip


def _write(path: Path, vectors: dict[str, list[np.ndarray]]) -> None:
    """Atomically: a reader finds the old file or the new one."""
    rows = next(iter(vectors.values()))
    columns = {name: np.stack(v) if v[0].ndim == 1 else np.concatenate(v) for name, v in vectors.items()}
    if rows[0].ndim > 1:
        columns["ends"] = np.cumsum([len(row) for row in rows])[:-1]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_paths(path) as [part], part.open("wb") as file:
            np.savez(file, **columns)  # type: ignore[arg-type]
    except OSError as error:
        raise InputError(f"Features cannot be kept in {path.parent}: {error.strerror}. Choose another cache.") from None
