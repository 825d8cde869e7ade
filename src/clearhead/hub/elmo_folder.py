"""ELMo as it is published: a folder with options.json and weights.hdf5, or with longer names that end so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clearhead import files
from clearhead.errors import CheckpointError, ConfigError
from clearhead.hub.hdf5 import HDF5File

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"


def is_elmo_folder(folder: Path) -> bool:
    """Whether the files of an ELMo lie here, and no config.json that says otherwise."""
    return not (folder / "config.json").is_file() and bool(_found(folder, OPTIONS)) and bool(_found(folder, WEIGHTS))


def refuse_half(folder: Path) -> None:
    """Say which of the two files is not there, where one is."""
    if _found(folder, OPTIONS) or _found(folder, WEIGHTS):
        _only(folder, OPTIONS)
        _only(folder, WEIGHTS)


def weights_file(folder: Path) -> Path:
    return _only(folder, WEIGHTS)


def read_elmo_config(folder: Path) -> dict[str, Any]:
    """The options as a configuration. Two matrices are there or not, which the options do not say: the file does."""
    path = _only(folder, OPTIONS)
    options = files.read_json(path, ConfigError)
    for key in ("lstm", "char_cnn"):
        if not isinstance(options, dict) or not isinstance(options.get(key), dict):
            whole_words = " Without it a model reads whole words, which Clearhead does not." * (key == "char_cnn")
            raise ConfigError(f"{path} must hold a table of options with {key!r} in it, as ELMo's has.{whole_words}")
    names = HDF5File(weights_file(folder)).keys()
    states = any(name.endswith("/W_P_0") for name in names)
    return options | {
        "model_type": "elmo",
        "lstm": options["lstm"] | {"project_states": states},
        "char_cnn": options["char_cnn"] | {"project_words": "CNN_proj/W_proj" in names},
    }


def _found(folder: Path, name: str) -> list[Path]:
    if (folder / name).is_file():
        return [folder / name]
    return sorted(path for path in folder.glob(f"*_{name}") if path.is_file())


def _only(folder: Path, name: str) -> Path:
    found = _found(folder, name)
    if len(found) != 1:
        listing = ", ".join(path.name for path in found)
        what = f"several of them: {listing}. Keep one." if found else "none. Is the download complete?"
        raise CheckpointError(f"An ELMo folder has one {name}, and {folder} has {what}")
    return found[0]
