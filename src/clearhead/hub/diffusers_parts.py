"""The parts of a diffusers folder as models, each in a folder of its own: config.json and its weights."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import torch

from clearhead.errors import CheckpointError, ConfigError
from clearhead.files import write_json
from clearhead.hub.assign import assign_weights, published_tensors
from clearhead.hub.config import CONFIG, read_options
from clearhead.hub.load import name_unknown
from clearhead.hub.weights import Weights, open_weights, write_weights
from clearhead.models import autoencoder_kl, unet
from clearhead.models.family import Family
from clearhead.models.picture_part import PartConfig, PicturePart

log = logging.getLogger("clearhead")
WEIGHTS_STEM = "diffusion_pytorch_model"

# class in model_index.json and config.json -> the family
PART_FAMILIES: dict[str, Family] = {
    family.config.class_name: family  # type: ignore[attr-defined]
    for family in (unet.FAMILY, autoencoder_kl.FAMILY)
}


def read_part_config(
    folder: Path, class_name: str, ignore_options: Iterable[str] = (), strict: bool = False
) -> PartConfig:
    """config.json of a part, which must be of this class."""
    raw = read_options(folder / CONFIG)
    named = raw.get("_class_name", class_name)
    if named != class_name:
        raise ConfigError(f"{folder / CONFIG} describes {named!r}; a {class_name} is needed here.")
    config = PART_FAMILIES[class_name].config.from_dict(raw, ignore_options, strict)
    assert isinstance(config, PartConfig)
    return config


def load_part(
    folder: Path,
    class_name: str,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    ignore_options: Iterable[str] = (),
    strict: bool = False,
) -> PicturePart:
    """A UNet or an autoencoder from its folder."""
    config = read_part_config(folder, class_name, ignore_options, strict)
    return make_part(config, open_weights(folder), dtype, device, strict)


def make_part(
    config: PartConfig,
    weights: Weights,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    strict: bool = False,
) -> PicturePart:
    """The model that a configuration describes, with these weights under diffusers' names."""
    family = PART_FAMILIES[config.class_name]
    try:
        model = family.make(config, device="meta")
    except (RuntimeError, MemoryError, OverflowError, TypeError, IndexError, ZeroDivisionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"The configuration describes a {family.title} that cannot be built: {reason}") from None
    assign_weights(model, weights, new_head=False, dtype=dtype, device=device or torch.device("cpu"), strict=strict)
    name_unknown(config)
    assert isinstance(model, PicturePart)
    return model


def write_part(folder: Path, model: PicturePart, max_shard_size: int) -> None:
    """config.json and diffusion_pytorch_model.safetensors (or its shards) in a new folder."""
    folder.mkdir()
    write_json(folder / CONFIG, model.config.to_dict(), CheckpointError)
    write_weights(folder, published_tensors(model), max_shard_size, stem=WEIGHTS_STEM)
