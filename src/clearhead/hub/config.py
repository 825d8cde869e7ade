"""What the JSON files of a checkpoint say: config.json through its family, and generation_config.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from clearhead import files, models
from clearhead.errors import CheckpointError, ConfigError
from clearhead.generation_options import CONFIG_KEYS
from clearhead.models import Config, Family

CONFIG, GENERATION = "config.json", "generation_config.json"
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
    folder: Path, ignore_options: Iterable[str] = (), configure: Configure | None = None
) -> tuple[Family, Config, dict[str, Any]]:
    """The family, its configuration, and config.json as it is.

    configure   makes another configuration of it (as a table of published keys)
    """
    raw = read_options(folder / CONFIG)
    name = raw.get("model_type")
    if not isinstance(name, str):
        known = ", ".join(sorted(models.FAMILIES))
        raise ConfigError(f"{folder / CONFIG} does not say its family (model_type). Known: {known}.")
    family = models.family(name)
    options, generation = dict(raw), read_generation(folder)
    if generation.get("decoder_start_token_id") is not None:
        options["decoder_start_token_id"] = generation["decoder_start_token_id"]
    if generation:  # it has the only word on what is forced and forbidden
        options |= {key: generation.get(key) for key in ("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids")}
        options.pop("force_bos_token_to_be_generated", None)
    if configure is not None:
        options = configure(options)
    return family, family.config.from_dict(options, ignore_options), raw


def read_generation(folder: Path, config: dict[str, Any] | None = None) -> dict[str, Any]:
    """What `generate` does unless it is told otherwise: generation_config.json, or, where there is no such file, what
    the `config` says of it, as older checkpoints do."""
    path = folder / GENERATION
    if not path.is_file():
        return {k: v for k, v in (config or {}).items() if k in CONFIG_KEYS and v is not None}
    return {key: value for key, value in read_options(path).items() if not key.startswith("_")}
