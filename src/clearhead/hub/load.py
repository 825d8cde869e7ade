"""From a folder to a model: built without memory on the meta device, then given its weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from clearhead.errors import ConfigError, InputError, did_you_mean
from clearhead.hub.assign import assign_weights
from clearhead.hub.config import CONFIG, Configure, read_config, read_generation
from clearhead.hub.packed import open_packed
from clearhead.hub.parts import has_parts, read_index
from clearhead.hub.precision import apply as apply_precision
from clearhead.hub.precision import check_quantize
from clearhead.hub.run_folder import open_checkpoint
from clearhead.hub.weights import FLOATS, open_weights
from clearhead.models import Config, Family, Model


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
    _check_one_part(folder)
    family, config, raw = read_config(folder, ignore_options, configure)
    stored_task = _stored_task(family, raw)
    task = task or stored_task
    if task is None:
        architectures = ", ".join(raw.get("architectures") or []) or "no architecture"
        raise ConfigError(
            f"The checkpoint names {architectures}, whose head Clearhead does not have. "
            f"Say which part to load with task=: {', '.join(family.architectures)}."
        )
    torch_device, torch_dtype = as_device(device), as_dtype(dtype)
    check_quantize(quantize, torch_dtype, torch_device)
    family.check_task(task)
    weights = open_packed(folder) or open_checkpoint(folder) or open_weights(folder)
    _check_layers(config, len(weights))
    try:
        model = family.make(config, task, device="meta")
    except (RuntimeError, MemoryError) as error:
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
    )
    model.generation = read_generation(folder, raw)
    return model if quantize is None else apply_precision(model, quantize)


def _check_one_part(folder: Path) -> None:
    if has_parts(folder) and not (folder / CONFIG).is_file():
        index = read_index(folder)
        raise ConfigError(
            f"{folder} is a {index.class_name} of several parts ({', '.join(index.parts)}), each in its own folder. "
            "A model is one of them: give that folder."
        )


def _check_layers(config: Config, tensors: int) -> None:
    """A number of layers that cannot be right is refused before so many are built."""
    # whatever is called layers, of an encoder or a decoder, and ALBERT's groups of them: blocks that will be built
    counts = {name: n for name, n in vars(config).items() if name.endswith(("layers", "group_num"))}
    layers = max(n for n in counts.values() if isinstance(n, int))
    if layers > max(1000, tensors):
        raise ConfigError(
            f"The configuration asks for {layers:,} layers, but the weights hold {tensors:,} "
            "tensors in all. Do config.json and the weight file belong together?"
        )


def _stored_task(family: Family, raw: dict[str, Any]) -> str | None:
    """What the checkpoint's own head is for; None if it is one we do not have."""
    architectures = raw.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        return family.default_task
    return family.task_of(str(architectures[0]))


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
    raise InputError(f"The device {device!r} cannot be used here: {reason}. The CPU always can: device='cpu'.")
