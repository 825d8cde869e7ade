"""What the JSON files of a checkpoint say: config.json through its family, and generation_config.json."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from clearhead import files, models
from clearhead.errors import CheckpointError, ConfigError
from clearhead.generation_options import CONFIG_KEYS
from clearhead.hub.elmo_folder import is_elmo_folder, read_elmo_config
from clearhead.hub.guess import guess_family
from clearhead.hub.weights import open_weights
from clearhead.models import Config, Family
from clearhead.schema import shown

log = logging.getLogger("clearhead")
CONFIG, GENERATION, ADAPTER = "config.json", "generation_config.json", "adapter_config.json"
Configure = Callable[[dict[str, Any]], dict[str, Any]]


def read_json(path: Path) -> Any:
    """What a JSON file of a checkpoint holds."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing. Is the download complete?")
    return files.read_json(path, ConfigError)


def read_options(path: Path) -> dict[str, Any]:
    """The same, where it has to be a table."""
    options = read_json(path)
    if not isinstance(options, dict):
        raise ConfigError(f"{path} must hold a table of options, not {type(options).__name__}.")
    return options


def read_config(
    folder: Path, ignore_options: Iterable[str] = (), configure: Configure | None = None, strict: bool = False
) -> tuple[Family, Config, dict[str, Any]]:
    """The family, its configuration, and config.json as it is.

    configure   makes another configuration of it (as a table of published keys)
    strict      refuse what is not known or not said, which is otherwise named in a warning or guessed
    """
    raw = read_elmo_config(folder) if is_elmo_folder(folder) else read_options(folder / CONFIG)
    family = _family_of(raw, folder, strict)
    _check_dtype(raw)
    options, generation = dict(raw), read_generation(folder)
    if generation.get("decoder_start_token_id") is not None:
        options["decoder_start_token_id"] = generation["decoder_start_token_id"]
    if generation:  # it has the only word on what is forced and forbidden
        options |= {key: generation.get(key) for key in ("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids")}
        options.pop("force_bos_token_to_be_generated", None)
    if configure is not None:
        options = configure(options)
    return family, family.config.from_dict(options, ignore_options, strict), raw


def _family_of(raw: dict[str, Any], folder: Path, strict: bool) -> Family:
    name = raw.get("model_type")
    if isinstance(name, str):
        return models.family(name)
    known = ", ".join(sorted(models.FAMILIES))
    if name is not None or strict:
        raise ConfigError(f"{folder / CONFIG} does not say its family (model_type). Known: {known}.")
    try:
        names = list(open_weights(folder))
    except CheckpointError:  # a configuration alone
        names = []
    family = guess_family(raw, architecture_of(raw), names)
    if family is None:
        raise ConfigError(
            f"{folder / CONFIG} does not say its family (model_type), and neither its keys nor the tensors beside it "
            f"are those of one. Known: {known}."
        )
    log.warning(
        '%s does not say its family (model_type); by what it holds it is read as %s. Add "model_type": "%s" to it if '
        "that is right.",
        CONFIG,
        family.title,
        family.name,
    )
    return family


def architecture_of(raw: dict[str, Any]) -> str | None:
    """The class that config.json names; None where it names none."""
    named = raw.get("architectures")
    first = named[0] if isinstance(named, list) and named else named or None
    if first is not None and not isinstance(first, str):
        raise ConfigError(f"architectures is {shown(named)}; it must be a list of class names.")
    return first


def _check_dtype(raw: dict[str, Any]) -> None:
    """The weights have a dtype of their own; but what is written down and cannot be is not passed over in silence."""
    for key in ("dtype", "torch_dtype"):
        name = raw.get(key)
        known = isinstance(name, str) and isinstance(getattr(torch, name.removeprefix("torch."), None), torch.dtype)
        if name not in (None, "auto") and not known:
            log.warning("%s has %s = %s, which is no dtype: the weights keep their own.", CONFIG, key, shown(name))


def read_generation(folder: Path, config: dict[str, Any] | None = None) -> dict[str, Any]:
    """What `generate` does unless it is told otherwise: generation_config.json, or, where there is no such file, what
    the `config` says of it, as older checkpoints do."""
    path = folder / GENERATION
    if not path.is_file():
        return {k: v for k, v in (config or {}).items() if k in CONFIG_KEYS and v is not None}
    return {key: value for key, value in read_options(path).items() if not key.startswith("_")}
