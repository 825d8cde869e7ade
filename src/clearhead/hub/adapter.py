"""Adapters (LoRA) as PEFT stores them: under the names of the published checkpoint, apart from the model they adapt."""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from clearhead.errors import CheckpointError, InputError
from clearhead.files import atomic_paths
from clearhead.hub.config import ADAPTER, CONFIG, read_options
from clearhead.hub.load import load_model
from clearhead.hub.save import published_config
from clearhead.hub.weights import WEIGHT_FILES, write_tensors
from clearhead.models import Model, family
from clearhead.models.checkpoint import Entry
from clearhead.nn.linear import Linear
from clearhead.nn.lora import adapted, attach_adapters, lora_state, merge

log = logging.getLogger("clearhead")
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
TASKS = {
    "causal-lm": "CAUSAL_LM",
    "seq2seq-lm": "SEQ_2_SEQ_LM",
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "question-answering": "QUESTION_ANS",
    "features": "FEATURE_EXTRACTION",
}
HEADS = ("classifier.weight", "score.weight", "classifier.out_proj.weight")  # a row for each label


def is_adapter(folder: Path) -> bool:
    """Whether the folder holds an adapter alone, and not all of a model."""
    has_weights = any((folder / name).is_file() for names in WEIGHT_FILES for name in names)
    return (folder / ADAPTER).is_file() and not has_weights


def base_of(folder: Path) -> str:
    """The name or folder of the model that an adapter is for."""
    base = read_options(folder / ADAPTER).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise CheckpointError(
            f"{folder} is an adapter that does not say which model it is for (base_model_name_or_path in {ADAPTER}). "
            "Write it there; or load that model, and give it the adapter: clearhead.hub.adapter.load_adapter(model, …)."
        )
    return base


def task_of(folder: Path) -> str | None:
    """What the adapted model is for; None: what its base is for."""
    raw = read_options(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if isinstance(raw.get("model_type"), str) and raw.get("architectures"):
        return family(raw["model_type"]).task_of(str(raw["architectures"][0]))
    kind = read_options(folder / ADAPTER).get("task_type")
    return next((task for task, theirs in TASKS.items() if theirs == kind), None)


def load_adapted(
    folder: Path,
    base: Path,
    task: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    ignore_options: Iterable[str] = (),
    strict: bool = False,
) -> Model:
    """The model in the folder `base` with the adapter of `folder` added to its weights: a plain model."""
    tensors = _read(folder)[1]
    full_tensors = {key.removeprefix(PREFIX): tensor for key, tensor in tensors.items() if ".lora_" not in key}
    labels = _labels(folder, full_tensors)

    def configure(raw: dict[str, Any]) -> dict[str, Any]:
        return raw | labels

    task = task or task_of(folder)
    with _head_follows(full_tensors):
        model = load_model(base, task, dtype, device, ignore_options, configure=configure, strict=strict)
    return merge(load_adapter(model, folder))


@contextmanager
def _head_follows(full_tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, nothing is said of a head that the base lacks, where the adapter brings it."""

    def is_news(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return "start from random values" not in text or not any(name in text for name in full_tensors)

    log.addFilter(is_news)
    try:
        yield
    finally:
        log.removeFilter(is_news)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """adapter_config.json, and the tensors by PEFT's names."""
    try:
        return json.loads((folder / ADAPTER).read_text(encoding="utf-8")), load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} holds no adapter that can be read ({ADAPTER}, {WEIGHTS}): {error}.") from None


def _labels(folder: Path, full_tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """What the head of the adapted model has in its configuration: from its own file, or by the shapes of the tensors
    that were trained whole."""
    if (folder / CONFIG).is_file():
        raw = read_options(folder / CONFIG)
        return {key: raw[key] for key in ("id2label", "label2id", "num_labels", "problem_type") if key in raw}
    heads = [tensor for name, tensor in full_tensors.items() if name.endswith(HEADS)]
    names = [f"LABEL_{n}" for n in range(len(heads[0]))] if heads else []
    return {"id2label": dict(enumerate(names)), "label2id": None, "num_labels": len(names)} if names else {}


def unnamed_matrix(model: Model) -> str | None:
    """A matrix whose adapter has no name in PEFT's format: published checkpoints hold it otherwise. None: all have."""
    published = _published(model)
    return next((our_name for our_name in map(_matrix_of, lora_state(model)) if our_name not in published), None)


def _matrix_of(name: str) -> str:
    """The weight that a tensor of `lora_state` belongs to: the one it goes around, or itself."""
    stem = name.rpartition(".lora_")[0]
    return f"{stem}.weight" if stem else name


def save_adapter(model: Model, folder: str | os.PathLike[str], base: str | None = None) -> Path:
    """Write adapter_config.json and adapter_model.safetensors, as PEFT reads them, and the adapted model's own
    config.json, which knows its task and its labels; none of them, if one fails.

    base   the name or folder of the model underneath, for whoever loads the adapter
    """
    modules = dict(adapted(model))
    if not modules:
        raise InputError("The model has no LoRA adapters to save: call add_lora before training.")
    published = _published(model)
    tensors: dict[str, Tensor] = {}
    targets, trained_fully, transposed = set(), set(), False
    unnamed = unnamed_matrix(model)
    if unnamed is not None:
        raise InputError(
            f"{unnamed} is not a matrix of its own in published checkpoints, so PEFT's format has no name for its "
            "adapter. Keep it by lora_state, or merge the model and save that."
        )
    for name, tensor in lora_state(model).items():
        stem, _, factor = name.rpartition(".lora_")
        theirs, entry = published[_matrix_of(name)]
        module = theirs.rpartition(".")[0]
        if stem:
            targets.add(module)
            transposed = transposed or entry.transpose
            tensors[f"{PREFIX}{module}.lora_{factor.upper()}.weight"] = tensor
        else:
            trained_fully.add(module)
            tensors[PREFIX + theirs] = entry.to_theirs([tensor])[0]
    first = next(iter(modules.values()))
    config = {
        "peft_type": "LORA",
        "task_type": TASKS.get(model.task),
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": len(first.lora_a),
        "lora_alpha": first.scale * len(first.lora_a),
        "lora_dropout": first.dropout,
        "target_modules": _shortest(targets, {name.rpartition(".")[0] for name, _ in published.values()}),
        "modules_to_save": sorted(trained_fully) or None,
        "fan_in_fan_out": transposed,  # the base's matrices are stored (in, out)
        "bias": "none",
    }
    target = Path(folder).expanduser()
    try:
        target.mkdir(parents=True, exist_ok=True)
        with atomic_paths(target / WEIGHTS, target / ADAPTER, target / CONFIG) as [weights_path, *texts]:
            write_tensors({k: t.cpu().contiguous() for k, t in tensors.items()}, weights_path)
            for path, table in zip(texts, (config, published_config(model)), strict=True):
                path.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"The adapter was not saved to {target}: {error}.") from None
    return target


@torch.no_grad()
def load_adapter(model: Model, folder: str | os.PathLike[str]) -> Model:
    """Give a plain model the adapters of a folder in PEFT's format; in place. `merge` makes it plain again."""
    if model.quantized or any(True for _ in adapted(model)):
        raise InputError("Adapters are put on a plain model: neither quantised nor with adapters already.")
    path = Path(folder).expanduser()
    config, tensors = _read(path)
    rank, scale = _scale(config, path)

    ours: dict[str, tuple[str, Entry]] = {}
    for with_prefix in (False, True):
        ours |= {name: (our_name, entry) for our_name, (name, entry) in _published(model, with_prefix).items()}
    factors: dict[Tensor, dict[str, Tensor]] = {}
    trained_fully: dict[nn.Parameter, Tensor] = {}
    for key, tensor in tensors.items():
        match = re.fullmatch(r"(.+)\.lora_([AB])\.weight", key)
        theirs = (f"{match[1]}.weight" if match else key).removeprefix(PREFIX)
        if theirs not in ours:
            raise CheckpointError(f"{path} has {key}, but this model ({model.family.title}) has nothing of that name.")
        our_name, entry = ours[theirs]
        p = model.get_parameter(our_name)
        out_features, in_features = p.shape if p.ndim == 2 else (0, 0)
        shape = tuple(p.shape)
        if match:
            shape = (rank, in_features) if match[2] == "A" else (out_features, rank)
            factors.setdefault(p, {})[match[2]] = tensor
        else:
            trained_fully[p] = tensor = entry.to_ours([tensor], [p.shape[0]])[0]
        if tuple(tensor.shape) != shape:
            raise CheckpointError(f"{path}: {key} is {tuple(tensor.shape)}, but this model needs {shape}.")
    if not all(len(pair) == 2 for pair in factors.values()) or not factors:
        raise CheckpointError(f"{path}: every adapter needs a lora_A and a lora_B, and there must be one at least.")

    chosen = {name: m for name, m in model.named_modules() if isinstance(m, Linear) and m.weight in factors}
    if {m.weight for m in chosen.values()} != set(factors):
        raise CheckpointError(f"{path} adapts tables of embeddings too; only matrices can be adapted here.")
    pairs = {p: (pair["A"].to(p.device), pair["B"].to(p.device)) for p, pair in factors.items()}
    attach_adapters(model, chosen, pairs, scale, float(config.get("lora_dropout", 0.0)))
    for p, tensor in trained_fully.items():
        p.copy_(tensor)
        p.requires_grad_(True)
    return model


def _scale(config: Mapping[str, Any], path: Path) -> tuple[int, float]:
    """(rank, what multiplies B A); refuses the kinds of adapter that compute something else."""
    if config.get("peft_type") != "LORA":
        raise CheckpointError(f"{path} is an adapter of the kind {config.get('peft_type')!r}; only LORA is read here.")
    plain = {"bias": "none", "use_dora": False, "rank_pattern": {}, "alpha_pattern": {}}
    for key, value in plain.items():
        if config.get(key) not in (None, value):
            raise CheckpointError(f"{path}: {key} is {config[key]!r} in {ADAPTER}; only {value!r} is read here.")
    rank = int(config["r"])
    return rank, float(config["lora_alpha"]) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _published(model: Model, with_prefix: bool | None = None) -> dict[str, tuple[str, Entry]]:
    """Our parameter name -> (its published name, the entry that ties them), where one tensor is one tensor."""
    map_ = model.family.checkpoint_map(model.config, model.task)
    prefix = model.task != "features" if with_prefix is None else with_prefix
    return {
        entry.ours[0]: (map_.published_name(entry.theirs[0], entry, prefix), entry)
        for entry in map_.entries
        if len(entry.ours) == len(entry.theirs) == 1 and not entry.heads
    }


def _shortest(targets: set[str], known: set[str]) -> list[str]:
    """Last parts of the names (c_attn), where no other module has them; PEFT takes both."""
    last = {name.rpartition(".")[2] for name in targets}
    means = {name for name in known if name.rpartition(".")[2] in last}
    return sorted(last if means == targets else targets)
