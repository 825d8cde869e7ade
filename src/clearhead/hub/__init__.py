"""Load, save and describe a checkpoint: a folder, a hub id or a shipped name."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clearhead import models
from clearhead.errors import CheckpointError, ConfigError, InputError, did_you_mean
from clearhead.hub.assign import fill, published_tensors
from clearhead.hub.locate import CONFIG, TOKENIZER_FILES, locate
from clearhead.hub.sentence import Sentence, is_sentence_folder, read_sentence, transformer_folder, write_sentence
from clearhead.hub.weights import open_weights, write_weights
from clearhead.models import Config, Family, Model

if TYPE_CHECKING:
    from clearhead.text import Tokenizer

SOURCE_TOKENIZER = "source_tokenizer"  # a folder inside the checkpoint, where the two languages have a tokenizer each
_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}


def read_config(folder: Path, ignore_options: Iterable[str] = ()) -> tuple[Family, Config, dict[str, Any]]:
    """The family, its configuration, and config.json as it is."""
    path = folder / CONFIG
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} must hold a table of options, not {type(raw).__name__}.")
    name = raw.get("model_type")
    if not isinstance(name, str):
        raise ConfigError(f"{path} does not say its family (model_type). Known: {', '.join(sorted(models.FAMILIES))}.")
    family = models.family(name)
    return family, family.config.from_dict(raw, ignore_options), raw


def load_model(
    folder: Path,
    task: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    ignore_options: Iterable[str] = (),
) -> Model:
    """A model with the folder's weights. The weights are mapped from disk, so memory is the model's own size."""
    family, config, raw = read_config(folder, ignore_options)
    stored = _stored_task(family, raw)
    if task is None:
        task = stored
        if task is None:
            named = ", ".join(raw.get("architectures") or []) or "no architecture"
            raise ConfigError(
                f"The checkpoint names {named}, whose head Clearhead does not have. "
                f"Say which part to load with task=: {', '.join(family.architectures)}."
            )
    model = family.make(config, task, device="meta")
    place = torch.device(device or "cpu")
    fill(model, open_weights(folder), new_head=task != stored, dtype=as_dtype(dtype), device=place)
    return model


def _stored_task(family: Family, raw: dict[str, Any]) -> str | None:
    """What the checkpoint's own head is for; None if it is one we do not have."""
    named = raw.get("architectures")
    if not isinstance(named, list) or not named:
        return family.default_task
    return family.task_of(str(named[0]))


def as_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in _DTYPES:
        raise InputError(f"Unknown dtype {dtype!r}.{did_you_mean(dtype, _DTYPES)} Known: {', '.join(_DTYPES)}.")
    return _DTYPES[dtype]


def save_model(
    model: Model,
    folder: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
    source_tokenizer: Tokenizer | None = None,
    *,
    sentence: Sentence | None = None,
    overwrite: bool = False,
    max_shard_size: int = 5 * 2**30,
) -> Path:
    """Write config.json, model.safetensors and tokenizer files: all of them, or (on any failure) none."""
    target = Path(folder).expanduser().absolute()
    _check_target(target, overwrite)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise CheckpointError(f"Cannot write to {target.parent}: {error.strerror or error}.") from None
    try:
        raw = {
            "model_type": model.family.name,
            "architectures": [model.family.architectures[model.task]],
            **model.config.to_dict(),
            "dtype": str(model.dtype).removeprefix("torch."),
        }
        if hasattr(model, "encoder"):
            raw["is_encoder_decoder"] = True
        (work / CONFIG).write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        write_weights(work, published_tensors(model), max_shard_size)
        if tokenizer is not None:
            tokenizer.save(work)
        if source_tokenizer is not None:
            tokenizer_folder = work / SOURCE_TOKENIZER
            tokenizer_folder.mkdir()
            source_tokenizer.save(tokenizer_folder)
        if sentence is not None:
            write_sentence(work, sentence, model.config.hidden_size)
        work.chmod(0o755)  # mkdtemp makes a private folder
        _put_in_place(work, target)
    except OSError as error:
        raise CheckpointError(f"The model was not saved to {target}: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _check_target(target: Path, overwrite: bool) -> None:
    if target.is_file():
        raise CheckpointError(f"{target} is a file; a model is saved as a folder. Choose another name.")
    if not target.is_dir():
        return
    there = sorted(p.name for p in target.iterdir())
    if there and not overwrite:
        raise CheckpointError(
            f"{target} is not empty (it holds {', '.join(there[:5])}). Choose a new folder, or pass overwrite=True "
            "to replace a model that was saved there."
        )
    if there and CONFIG not in there:
        raise CheckpointError(f"{target} holds files but no {CONFIG}: it is no saved model, so it is not replaced.")
    if not os.access(target, os.W_OK):
        raise CheckpointError(f"Cannot write to {target}: permission denied.")


def _put_in_place(work: Path, target: Path) -> None:
    """Renames only, so that a reader finds the old folder or the new one, never a mixture."""
    if not target.exists():
        work.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(old / "was")
    try:
        work.rename(target)
    except OSError:
        (old / "was").rename(target)
        raise
    finally:
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)


__all__ = [
    "SOURCE_TOKENIZER",
    "TOKENIZER_FILES",
    "Sentence",
    "as_dtype",
    "is_sentence_folder",
    "load_model",
    "locate",
    "read_config",
    "read_sentence",
    "save_model",
    "transformer_folder",
]
