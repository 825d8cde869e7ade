"""From a folder to a model: built without memory on the meta device, then given its weights."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import torch

from clearhead.errors import ConfigError, InputError, did_you_mean
from clearhead.hub.assign import assign_weights
from clearhead.hub.config import CONFIG, Configure, architecture_of, read_config, read_generation
from clearhead.hub.guess import guess_task
from clearhead.hub.matching import check_layers
from clearhead.hub.packed import open_packed
from clearhead.hub.parts import has_parts, read_index
from clearhead.hub.precision import apply as apply_precision
from clearhead.hub.precision import check_quantize
from clearhead.hub.run_folder import open_checkpoint
from clearhead.hub.weights import FLOATS, Weights, open_weights
from clearhead.messages import say
from clearhead.models import Config, Family, Model

log = logging.getLogger("clearhead")
MOST_COMPUTED = 2**30  # numbers in a computed table


def load_model(
    folder: Path,
    task: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    ignore_options: Iterable[str] = (),
    quantize: str | None = None,
    configure: Configure | None = None,
    strict: bool = False,
) -> Model:
    """A model with the folder's weights, contiguous: mapped from disk where they lie so in the file, else copied one
    matrix at a time, so memory is the model's own size. From then on nobody but their owner touches them.

    quantize    "int8", "int4" or "auto": the mapped weights are rounded matrix by matrix, so that only the small ones
                are ever in memory (see hub/precision.py)
    configure   changes config.json before the model is built, to train it for something else. What no longer fits in
                the head (another number of labels) starts from random values
    strict      refuse what would otherwise be named in a warning: options that are not known, tensors of somebody's own
                head, a class or family that has to be guessed
    """
    _check_one_part(folder)
    family, config, raw = read_config(folder, ignore_options, configure, strict)
    architecture = architecture_of(raw)
    stored_task = family.default_task if architecture is None else family.task_of(architecture)
    if task is not None:
        family.check_task(task)
    torch_device, torch_dtype = as_device(device), as_dtype(dtype)
    check_quantize(quantize, torch_dtype, torch_device)
    weights = open_packed(folder) or open_checkpoint(folder) or open_weights(folder)
    check_layers(config, len(weights))
    if task is None and (architecture is None or stored_task is None):
        task = _guess_task(family, config, weights, architecture, strict)
        guessed, stored_task = task != stored_task, task
    else:
        guessed, task = False, task or stored_task
    assert task is not None
    try:
        model = family.make(config, task, device="meta")
        _check_tables(model)
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"The configuration describes a model that cannot be built: {reason}") from None
    assign_weights(
        model,
        weights,
        new_head=task != stored_task or configure is not None,
        ignore_mismatched_head=configure is not None,
        dtype=None if quantize else torch_dtype,
        device=torch_device,
        contiguous=quantize is None,  # what will be rounded is read from the file once, in any order
        strict=strict,
        guessed=guessed,
    )
    name_unknown(config)
    model.generation = read_generation(folder, raw)
    return model if quantize is None else apply_precision(model, quantize)


def _check_one_part(folder: Path) -> None:
    if has_parts(folder) and not (folder / CONFIG).is_file():
        index = read_index(folder)
        raise ConfigError(
            f"{folder} is a {index.class_name} of several parts ({', '.join(index.parts)}), each in its own folder. "
            "A model is one of them: give that folder."
        )


def _check_tables(model: Model) -> None:
    """Tables that are computed, such as sinusoids, are in no file that would show how large they are."""
    numbers = max((table.numel() for table in model.buffers()), default=0)
    if numbers > MOST_COMPUTED:
        raise ConfigError(
            f"The configuration asks for a computed table of {numbers:,} numbers; no model has one. Is "
            "max_position_embeddings right?"
        )


def _guess_task(family: Family, config: Config, weights: Weights, architecture: str | None, strict: bool) -> str:
    """What the tensors are for, where config.json names no class, or one that Clearhead does not have."""
    heads = ", ".join(family.architectures)
    if strict and architecture is None:
        return family.default_task
    if strict:
        raise ConfigError(
            f"The checkpoint names {architecture}, whose head Clearhead does not have. "
            f"Say which part to load with task=: {heads}."
        )
    task = guess_task(family, config, weights, prefer_default=architecture is None)
    if architecture is not None or task != family.default_task:
        named = "no class" if architecture is None else f"{architecture[:80]}, which Clearhead does not have"
        log.warning(
            "config.json names %s. By its tensors it is loaded for %s (%s); say task= for another part: %s.",
            named, task, family.architectures[task], heads,
        )  # fmt: skip
    return task


def name_unknown(config: Config) -> None:
    """Options that were neither honoured nor refused are said, all in one warning; and what is odd about the rest."""
    for sentence in config.odd:
        log.warning("config.json: %s", sentence)
    if config.unknown:
        log.warning(
            "config.json has options that Clearhead does not know and does nothing with: %s. The weights fit without "
            "them, and they are kept when it is saved. strict=True refuses them; ignore_options=%s says that they are "
            "harmless.",
            ", ".join(map(config.unknown_option, config.unknown)),
            config.unknown,
        )


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
        torch_device = torch.device("cpu" if device is None else device)
        torch.empty(0, device=torch_device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        if reason.startswith("Expected one of"):  # a long list, of kinds that hardly anybody has
            reason = "devices are called cpu, cuda, cuda:1 or mps"
    else:
        if torch_device.type != "meta":
            return torch_device
        reason = "it holds shapes and no numbers"
    raise InputError(say("loading.device", device=repr(device), reason=reason))
