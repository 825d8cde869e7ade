"""Folders of several parts, as diffusers lays them out: `model_index.json` names them, each has a folder of its own.

{"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "UNet2DConditionModel"], "requires_…": true, …}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearhead.errors import CheckpointError, ConfigError
from clearhead.files import write_json
from clearhead.hub.config import read_options

INDEX = "model_index.json"


@dataclass(frozen=True)
class ModelIndex:
    """What model_index.json says."""

    class_name: str  # of the pipeline that the parts make up
    parts: dict[str, tuple[str, str]]  # name, which is the folder's too → (library, class)
    settings: dict[str, Any] = field(default_factory=dict)  # of the pipeline itself


def has_parts(folder: Path) -> bool:
    return (folder / INDEX).is_file()


def read_index(folder: Path) -> ModelIndex:
    """The parts of a folder, in order. One that was left out when the folder was saved ([null, null]) is none."""
    path = folder / INDEX
    raw = read_options(path)
    if not isinstance(raw.get("_class_name"), str):
        raise ConfigError(f"{path} does not name its pipeline (_class_name).")
    parts: dict[str, tuple[str, str]] = {}
    settings: dict[str, Any] = {}
    for name, value in raw.items():
        match value:
            case [str(library), str(class_name)]:
                parts[_plain(name, path)] = library, class_name
            case [None, None]:
                pass
            case _ if not name.startswith("_"):
                settings[name] = value
    if not parts:
        raise ConfigError(f"{path} names no parts.")
    return ModelIndex(raw["_class_name"], parts, settings)


def part_folders(folder: Path, known: Iterable[str], skipped: Iterable[str] = ()) -> dict[str, Path]:
    """Where each part lies.

    known     parts that the caller can read; another one is an error that names it
    skipped   parts that nobody needs
    """
    index = read_index(folder)
    known, skipped = list(known), set(skipped)
    unknown = [f"{name} ({'.'.join(index.parts[name])})" for name in index.parts if name not in {*known, *skipped}]
    if unknown:
        raise ConfigError(
            f"{folder / INDEX} names parts that are not known here: {', '.join(unknown)}. Known: {', '.join(known)}."
        )
    folders = {name: folder / name for name in index.parts if name not in skipped}
    missing = [name for name, path in folders.items() if not path.is_dir()]
    if missing:
        raise CheckpointError(f"{folder} lacks {', '.join(missing)}, named in {INDEX}. Is the download complete?")
    for name, path in folders.items():
        if not path.resolve().is_relative_to(folder.resolve()):
            raise CheckpointError(
                f"{path} is a link to {path.resolve()}, outside its folder. Put the files of {name} there themselves."
            )
    return folders


def write_index(folder: Path, index: ModelIndex) -> None:
    """Beside the parts, which are there already."""
    path = folder / INDEX
    missing = [name for name in index.parts if not (folder / _plain(name, path)).is_dir()]
    if missing:
        raise CheckpointError(f"{folder} lacks {', '.join(missing)}: save the parts before their index.")
    data = {"_class_name": index.class_name, **index.settings, **{name: list(p) for name, p in index.parts.items()}}
    write_json(path, data, CheckpointError)


def _plain(name: str, path: Path) -> str:
    """A part's name, which is the name of a folder beside the index and leads nowhere else."""
    if name in ("", ".", "..") or any(sign in name for sign in "/\\\0:"):
        raise CheckpointError(f"{path} names a part {name!r}, which is not the plain name of a folder beside it.")
    return name
