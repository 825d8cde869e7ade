"""Saving a model as a folder that other libraries open: whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from clearhead.codec import Codec
from clearhead.errors import CheckpointError, InputError
from clearhead.files import atomic_folder, write_json
from clearhead.hub.assign import published_tensors
from clearhead.hub.config import CONFIG, GENERATION
from clearhead.hub.elmo_folder import OPTIONS, WEIGHTS, is_elmo_folder
from clearhead.hub.hdf5 import h5py, write_hdf5
from clearhead.hub.parts import INDEX
from clearhead.hub.sentence import SentenceModules, write_sentence
from clearhead.hub.weights import write_weights
from clearhead.image.settings import PREPROCESSOR, PROCESSOR
from clearhead.models import Model
from clearhead.models.elmo import ElmoConfig
from clearhead.text import Tokenizer
from clearhead.text.characters import VOCABULARY
from clearhead.text.files import TARGET_FOLDER, TOKENIZER_FILES

# what a configuration and a generation_config.json both say
IN_BOTH_FILES = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "bad_words_ids",
)


# said in config.json, where a reader of the folder looks first
OWN_FORMAT = (
    "A folder in Clearhead's own format: transformers does not know this family. Where another family has the same "
    'layers, pipe.save(folder, format="transformers") writes the model as that one.'
)


def save_model(
    model: Model,
    folder: str | os.PathLike[str],
    codec: Codec | None = None,
    *,
    sentence: SentenceModules | None = None,
    overwrite: bool = False,
    max_shard_size: int = 5 * 2**30,
) -> Path:
    """Write config.json, model.safetensors and the codec's files: all of them, or (on any failure) none."""
    with saved_folder(model, folder, overwrite) as (target, temporary):
        _write_model(temporary, model, codec, sentence, max_shard_size)
        _carry_over(target, temporary, codec is not None)
    return target


def save_elmo(model: Model, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write options.json and weights.hdf5, as ELMo is published. A softmax has no place there."""
    config = model.config
    if not isinstance(config, ElmoConfig):
        raise InputError(f"options.json and weights.hdf5 are ELMo's files; this is a {model.family.title}.")
    h5py()  # a missing package is told before anything is written
    with saved_folder(model, folder, overwrite) as (target, temporary):
        write_json(temporary / OPTIONS, config.to_options(), CheckpointError)
        tensors = published_tensors(model)
        write_hdf5(temporary / WEIGHTS, ((name, t) for name, t in tensors if not name.startswith("softmax/")))
        _carry_over(target, temporary, with_tokenizer=True)
    return target


@contextmanager
def saved_folder(model: Model, folder: str | os.PathLike[str], overwrite: bool) -> Iterator[tuple[Path, Path]]:
    """Where the model is to be, and a new folder to write meanwhile, which appears there when the block ends well."""
    if not isinstance(folder, str | os.PathLike):
        raise InputError(f"A model is saved to a folder's name or path, not to {type(folder).__name__}.")
    if model.quantized:
        raise InputError(
            f"This model was rounded to {model.quantized} when it was loaded; saved, the rounding would pass for its "
            "weights. Load it without quantize= and save that."
        )
    target = Path(folder).expanduser().absolute()
    try:
        _check_target(target, overwrite)
        target.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        why = getattr(error, "strerror", None) or error
        raise CheckpointError(f"Cannot write to {str(target)[:200]!r}: {why}.") from None
    try:
        with atomic_folder(target) as temporary:
            yield target, temporary
    except (OSError, SafetensorError) as error:  # a full disk is either of them
        why = getattr(error, "strerror", None) or error
        raise CheckpointError(f"The model was not saved to {target}: {why}.") from None


def _write_model(
    folder: Path,
    model: Model,
    codec: Codec | None,
    sentence: SentenceModules | None,
    max_shard_size: int,
) -> None:
    write_description(folder, model, codec)
    write_weights(folder, published_tensors(model), max_shard_size)
    if sentence is not None:
        write_sentence(folder, sentence, model.config.hidden_size)


def write_description(folder: Path, model: Model, codec: Codec | None) -> None:
    """All but the weights: what the model is made of, how it generates, its codec."""
    write_json(folder / CONFIG, published_config(model), CheckpointError, sort_keys=True)
    if model.generation:
        # where this file is, nothing of it is taken from config.json
        shared = {key: getattr(model.config, key, None) for key in IN_BOTH_FILES}
        shared = {key: value for key, value in shared.items() if value is not None}
        write_json(folder / GENERATION, shared | model.generation, CheckpointError, sort_keys=True)
    if codec is not None:
        (_within_positions(codec, model) if isinstance(codec, Tokenizer) else codec).save(folder)


def published_config(model: Model) -> dict[str, Any]:
    """config.json, as every library reads it."""
    raw = {
        "model_type": model.family.name,
        "architectures": [model.family.architectures[model.task]],
        **model.config.to_dict(),
        "dtype": str(model.dtype).removeprefix("torch."),
    }
    if model.is_encoder_decoder:
        raw["is_encoder_decoder"] = True
    if model.family.own_format:
        raw["_note"] = OWN_FORMAT
    return raw


def _within_positions(tokenizer: Tokenizer, model: Model) -> Tokenizer:
    """The tokenizer as it is saved: truncation cuts texts to what the model can read, here and in `transformers`."""
    limits = [stack.embed.max_length for stack in model.stacks.values()]  # the encoder's first
    return tokenizer.limited_to(limits[0], limits[-1])


def _check_target(target: Path, overwrite: bool) -> None:
    if target.is_file():
        raise CheckpointError(f"{target} is a file; a model is saved as a folder. Choose another name.")
    if not target.is_dir():
        return
    files = sorted(p.name for p in target.iterdir())
    if files and not overwrite:
        raise CheckpointError(
            f"{target} is not empty (it holds {', '.join(files[:5])}). Choose a new folder, or pass overwrite=True "
            "to replace a model that was saved there."
        )
    if files and not {CONFIG, INDEX} & set(files) and not is_elmo_folder(target):
        raise CheckpointError(f"{target} holds files but no {CONFIG}: it is no saved model, so it is not replaced.")
    if not os.access(target, os.W_OK):
        raise CheckpointError(f"Cannot write to {target}: permission denied.")


def _carry_over(target: Path, temporary: Path, with_tokenizer: bool) -> None:
    """What stands in the old folder and is no part of the model it held (notes, logs, cards) comes along."""
    replaced: tuple[str, ...] = (CONFIG, "model*.safetensors", "model.safetensors.index.json", "pytorch_model*")
    replaced += (f"*{OPTIONS}", f"*{WEIGHTS}") if is_elmo_folder(target) else ()
    replaced += (*TOKENIZER_FILES, TARGET_FOLDER, VOCABULARY, PREPROCESSOR, PROCESSOR) if with_tokenizer else ()
    for path in sorted(target.iterdir()) if target.is_dir() else ():
        if (temporary / path.name).exists() or any(path.match(pattern) for pattern in replaced):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, temporary / path.name, symlinks=True)
        else:
            shutil.copy2(path, temporary / path.name, follow_symlinks=False)
