"""A Stable Diffusion folder: which pipelines are one, where its parts are, and how they are written again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from clearhead.errors import CheckpointError, ConfigError
from clearhead.files import write_json
from clearhead.hub.assign import published_tensors
from clearhead.hub.diffusers_parts import write_part
from clearhead.hub.parts import INDEX, ModelIndex, part_folders, read_index, write_index
from clearhead.hub.save import saved_folder, write_description
from clearhead.hub.weights import write_weights
from clearhead.models import Model
from clearhead.models.picture_part import DIFFUSERS_VERSION, PicturePart
from clearhead.text import Tokenizer

SCHEDULER_CONFIG = "scheduler_config.json"
TEXT, IMAGE_TO_IMAGE, INPAINT = (
    "StableDiffusionPipeline",
    "StableDiffusionImg2ImgPipeline",
    "StableDiffusionInpaintPipeline",
)
PIPELINE_CLASSES = (TEXT, IMAGE_TO_IMAGE, INPAINT, "StableDiffusionInpaintPipelineLegacy")
PARTS = {
    "unet": "UNet2DConditionModel",
    "vae": "AutoencoderKL",
    "text_encoder": "CLIPTextModel",
    "tokenizer": "CLIPTokenizer",
    "scheduler": "",  # one of several
}
SKIPPED = ("safety_checker", "feature_extractor", "image_encoder")


def read_parts(folder: Path) -> tuple[ModelIndex, dict[str, Path]]:
    """What model_index.json says, and where each part is; a pipeline or a part of another kind is refused by name."""
    index = read_index(folder)
    if index.class_name not in PIPELINE_CLASSES:
        raise ConfigError(
            f"{folder} is a {index.class_name}; of diffusers' pipelines Clearhead has Stable Diffusion 1.x and 2.x "
            f"({', '.join(PIPELINE_CLASSES[:3])})."
        )
    missing = [name for name in PARTS if name not in index.parts]
    if missing:
        raise CheckpointError(
            f"{folder / INDEX} names no {', '.join(missing)}: a drawing needs every one of its parts."
        )
    for name, wanted in PARTS.items():
        found = index.parts[name][1].removesuffix("Fast")
        if wanted and found != wanted:
            raise ConfigError(f"{folder / INDEX} names {found} as its {name}; Clearhead has {wanted} there.")
    return index, part_folders(folder, PARTS, SKIPPED)


def save_parts(
    folder: str | os.PathLike[str],
    unet: PicturePart,
    vae: PicturePart,
    text_encoder: Model,
    tokenizer: Tokenizer,
    scheduler: dict[str, Any],
    index: ModelIndex,
    *,
    overwrite: bool = False,
    max_shard_size: int = 5 * 2**30,
) -> Path:
    """Write a folder that diffusers opens: whole, or (on any failure) not at all."""
    with saved_folder(unet, folder, overwrite) as (target, temporary):
        write_part(temporary / "unet", unet, max_shard_size)
        write_part(temporary / "vae", vae, max_shard_size)
        for name in ("text_encoder", "tokenizer", "scheduler"):
            (temporary / name).mkdir()
        write_description(temporary / "text_encoder", text_encoder, None)
        write_weights(temporary / "text_encoder", published_tensors(text_encoder), max_shard_size)
        tokenizer.save(temporary / "tokenizer")
        write_json(temporary / "scheduler" / SCHEDULER_CONFIG, scheduler, CheckpointError)
        write_index(temporary, index)
        _carry_over(target, temporary)
    return target


def index_of(class_name: str, scheduler_class: str, settings: dict[str, Any]) -> ModelIndex:
    """model_index.json of what is saved: without the parts that were skipped, which it says are not there."""
    parts = {
        name: ("transformers", kind) if kind.startswith("CLIP") else ("diffusers", kind) for name, kind in PARTS.items()
    }
    parts["scheduler"] = ("diffusers", scheduler_class)
    absent = {name: [None, None] for name in SKIPPED}
    said = {"_diffusers_version": DIFFUSERS_VERSION, **settings, "requires_safety_checker": False, **absent}
    return ModelIndex(class_name, parts, said)


def _carry_over(target: Path, temporary: Path) -> None:
    """What stands beside the parts in the old folder and is none of them (notes, cards) comes along."""
    for path in sorted(target.iterdir()) if target.is_dir() else ():
        if path.is_file() and not (temporary / path.name).exists():
            shutil.copy2(path, temporary / path.name, follow_symlinks=False)
