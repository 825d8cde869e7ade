"""Load, save and describe a checkpoint: a folder, a hub id or a shipped name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from clearhead import models
from clearhead.errors import ConfigError, InputError, did_you_mean
from clearhead.generation_options import CONFIG_KEYS
from clearhead.hub.assign import fill
from clearhead.hub.locate import CONFIG, GENERATION, locate, user_path
from clearhead.hub.packed import open_packed
from clearhead.hub.precision import apply as apply_precision
from clearhead.hub.precision import check_quantize
from clearhead.hub.save import save_model
from clearhead.hub.sentence import Sentence, is_sentence_folder, read_sentence, transformer_folder
from clearhead.hub.weights import FLOATS, open_weights
from clearhead.models import Config, Family, Model

Configure = Callable[[dict[str, Any]], dict[str, Any]]


def read_config(
    folder: Path, ignore_options: Iterable[str] = (), configure: Configure | None = None
) -> tuple[Family, Config, dict[str, Any]]:
    """The family, its configuration, and config.json as it is.

    configure   makes another configuration of it (as a table of published keys)
    """
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
    said = read_generation(folder)
    asked = dict(raw)
    if said.get("decoder_start_token_id") is not None:
        asked["decoder_start_token_id"] = said["decoder_start_token_id"]
    if said:  # it has the only word on what is forced and forbidden
        asked |= {key: said.get(key) for key in ("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids")}
        asked.pop("force_bos_token_to_be_generated", None)
    if configure is not None:
        asked = configure(asked)
    return family, family.config.from_dict(asked, ignore_options), raw


def read_generation(folder: Path, config: dict[str, Any] | None = None) -> dict[str, Any]:
    """What `generate` does unless it is told otherwise: generation_config.json, or, where there is no such file, what
    the `config` says of it, as older checkpoints do."""
    path = folder / GENERATION
    if not path.is_file():
        return {k: v for k, v in (config or {}).items() if k in CONFIG_KEYS and v is not None}
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(said, dict):
        raise ConfigError(f"{path} must hold a table of options, not {type(said).__name__}.")
    return {key: value for key, value in said.items() if not key.startswith("_")}


def load_model(
    folder: Path,
    task: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    ignore_options: Iterable[str] = (),
    quantize: str | None = None,
    configure: Configure | None = None,
) -> Model:
    """A model with the folder's weights, contiguous: mapped from disk where they lie so in the file, else copied one
    matrix at a time, so memory is the model's own size. From then on nobody but their owner touches them.

    quantize    "int8", "int4" or "auto": the mapped weights are rounded matrix by matrix, so that only the small ones
                are ever in memory (see hub/precision.py)
    configure   changes config.json before the model is built, to train it for something else. What no longer fits in
                the head (another number of labels) starts from random values
    """
    family, config, raw = read_config(folder, ignore_options, configure)
    stored = _stored_task(family, raw)
    if task is None:
        task = stored
        if task is None:
            named = ", ".join(raw.get("architectures") or []) or "no architecture"
            raise ConfigError(
                f"The checkpoint names {named}, whose head Clearhead does not have. "
                f"Say which part to load with task=: {', '.join(family.architectures)}."
            )
    place, kind = as_device(device), as_dtype(dtype)
    check_quantize(quantize, kind, place)
    family.check_task(task)
    weights = open_packed(folder) or open_weights(folder)
    # whatever is called layers, of an encoder or a decoder, and ALBERT's groups of them: blocks that will be built
    counts = {name: n for name, n in vars(config).items() if name.endswith(("layers", "group_num"))}
    layers = max(n for n in counts.values() if isinstance(n, int))
    if layers > max(1000, len(weights)):
        raise ConfigError(
            f"The configuration asks for {layers:,} layers, but the weights hold {len(weights):,} "
            "tensors in all. Do config.json and the weight file belong together?"
        )
    try:
        model = family.make(config, task, device="meta")
    except (RuntimeError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"The configuration describes a model that cannot be built: {reason}") from None
    other = configure is not None
    fill(
        model,
        weights,
        new_head=task != stored or other,
        refit=other,
        dtype=None if quantize else kind,
        device=place,
        contiguous=quantize is None,  # what will be rounded is read from the file once, in any order
    )
    model.generation = read_generation(folder, raw)
    return model if quantize is None else apply_precision(model, quantize)


def _stored_task(family: Family, raw: dict[str, Any]) -> str | None:
    """What the checkpoint's own head is for; None if it is one we do not have."""
    named = raw.get("architectures")
    if not isinstance(named, list) or not named:
        return family.default_task
    return family.task_of(str(named[0]))


def as_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """One of the floating types a model can run in; None stays None."""
    known = {str(d).removeprefix("torch."): d for d in FLOATS}
    name = str(dtype).removeprefix("torch.")
    if dtype is None or name in known:
        return known.get(name)
    raise InputError(f"A model cannot have the dtype {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}.")


def as_device(device: torch.device | str | None) -> torch.device:
    """A device that is really there; None is the CPU."""
    try:
        place = torch.device("cpu" if device is None else device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        if reason.startswith("Expected one of"):  # a long list, of kinds that hardly anybody has
            reason = "devices are called cpu, cuda, cuda:1 or mps"
    else:
        if place.type != "meta":
            return place
        reason = "it holds shapes and no numbers"
    raise InputError(f"The device {device!r} cannot be used here: {reason}. The CPU always can: device='cpu'.")


__all__ = [
    "Sentence",
    "apply_precision",
    "as_device",
    "as_dtype",
    "check_quantize",
    "is_sentence_folder",
    "load_model",
    "locate",
    "read_config",
    "read_sentence",
    "save_model",
    "transformer_folder",
    "user_path",
]
