"""Sentence-BERT folders: `modules.json` and what it names, read and written as sentence-transformers does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead.errors import CheckpointError, ConfigError
from clearhead.files import write_json
from clearhead.hub.config import CONFIG, read_json
from clearhead.hub.weights import open_weights, write_weights
from clearhead.models.sentence import Dense, Normalize, Pooling, SentenceHead

MODULES, SETTINGS, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
# how a module's class name in modules.json ends -> what we build; Dropout does nothing outside training
_KNOWN = ("Transformer", "Pooling", "Dense", "Normalize", "Dropout")
_ACTIVATIONS = {
    "Tanh": "tanh",
    "Identity": "linear",
    "ReLU": "relu",
    "GELU": "gelu",
    "Sigmoid": "sigmoid",
    "SiLU": "silu",
}


@dataclass
class SentenceModules:
    """What a Sentence-BERT folder adds to its transformer."""

    head: SentenceHead
    max_seq_length: int | None = None
    do_lower_case: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """(kind, path inside the folder) of each module, in order."""
    raw = read_json(folder / MODULES)
    modules = []
    for entry in raw if isinstance(raw, list) else []:
        kind, path = str(entry.get("type", "")).rsplit(".", 1)[-1], str(entry.get("path", ""))
        if kind not in _KNOWN:
            raise ConfigError(f"{folder / MODULES} names a module that Clearhead does not have: {entry.get('type')}.")
        if path in (".", "..") or (path and Path(path).name != path):
            raise CheckpointError(f"{folder / MODULES} points to {path!r}, which is not a folder beside it.")
        modules.append((kind, path))
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds.count("Transformer") > 1 or kinds.count("Pooling") > 1:
        raise ConfigError(f"{folder / MODULES} must begin with a Transformer and a Pooling; it has {', '.join(kinds)}.")
    return modules


def is_sentence_folder(folder: Path) -> bool:
    return (folder / MODULES).is_file()


def transformer_folder(folder: Path) -> Path:
    """Where the transformer itself is: the folder, or the one its modules.json names."""
    return folder / read_modules(folder)[0][1] if is_sentence_folder(folder) else folder


def read_sentence(folder: Path, dtype: torch.dtype, device: torch.device) -> SentenceModules | None:
    """The sentence head of a folder; None if it is a plain model."""
    if not is_sentence_folder(folder):
        return None
    pooling = Pooling()
    steps: list[nn.Module] = []
    for kind, path in read_modules(folder):
        if kind == "Pooling":
            pooling = Pooling(_pooling_modes(read_json(folder / path / CONFIG)))
        elif kind == "Dense":
            steps.append(_dense(folder / path, dtype, device))
        elif kind == "Normalize":
            steps.append(Normalize())
    inner = transformer_folder(folder)
    settings = read_json(inner / SETTINGS) if (inner / SETTINGS).is_file() else {}
    prompts = read_json(folder / PROMPTS) if (folder / PROMPTS).is_file() else {}
    return SentenceModules(
        SentenceHead(pooling, steps).eval(),
        settings.get("max_seq_length"),
        bool(settings.get("do_lower_case", False)),
        dict(prompts.get("prompts") or {}),
        prompts.get("default_prompt_name"),
    )


def write_sentence(folder: Path, sentence: SentenceModules, width: int) -> None:
    """Beside a saved model in `folder`: modules.json and a folder for each step."""
    kinds = ["Transformer", "Pooling", *(type(step).__name__ for step in sentence.head.steps)]
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    modes = sentence.head.pooling.modes
    for module in modules[1:]:
        (folder / str(module["path"])).mkdir()
    pooling: dict[str, Any] = {"word_embedding_dimension": width, "include_prompt": True}
    if modes == tuple(mode for mode in _MODE_KEYS if mode in modes):  # the older spelling, which every version reads
        pooling |= {key: mode in modes for mode, key in _MODE_KEYS.items()}
    else:
        pooling["pooling_mode"] = list(modes)
    write_json(folder / "1_Pooling" / CONFIG, pooling, CheckpointError)
    for n, step in enumerate(sentence.head.steps, start=2):
        if isinstance(step, Dense):
            _write_dense(folder / str(modules[n]["path"]), step)
    write_json(folder / MODULES, modules, CheckpointError)
    settings = {"max_seq_length": sentence.max_seq_length, "do_lower_case": sentence.do_lower_case}
    write_json(folder / SETTINGS, settings, CheckpointError)
    prompts = {"prompts": sentence.prompts, "default_prompt_name": sentence.default_prompt_name}
    write_json(folder / PROMPTS, prompts, CheckpointError)


_MODE_KEYS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}


def _pooling_modes(config: dict[str, Any]) -> tuple[str, ...]:
    known = {"word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt", *_MODE_KEYS.values()}
    for key in config:
        if key not in known:
            raise ConfigError(f"The pooling configuration has an option that Clearhead does not know: {key}.")
    if config.get("include_prompt") is False:
        raise ConfigError("include_prompt = false (leaving the prompt out of the pooling) is not implemented.")
    modes = config.get("pooling_mode")
    if modes is not None:
        return (modes,) if isinstance(modes, str) else tuple(modes)
    return tuple(mode for mode, key in _MODE_KEYS.items() if config.get(key)) or ("mean",)


def _dense(folder: Path, dtype: torch.dtype, device: torch.device) -> Dense:
    config = read_json(folder / CONFIG)
    known = {"in_features", "out_features", "bias", "activation_function", "use_residual"}
    names = {"module_input_name", "module_output_name"}
    for key, value in config.items():
        if key not in known and not (key in names and value == "sentence_embedding"):
            raise ConfigError(f"{folder} sets {key} = {value!r}, which Clearhead does not implement.")
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rsplit(".", 1)[-1]
    if name not in _ACTIVATIONS:
        raise ConfigError(f"{folder} uses the activation {name}, which Clearhead does not know here.")
    residual = bool(config.get("use_residual", False))
    dense = Dense(config["in_features"], config["out_features"], _ACTIVATIONS[name], config.get("bias", True), residual)
    weights = open_weights(folder)
    dense.load_state_dict({name: weights[name] for name in weights})
    return dense.to(dtype=dtype, device=device)


def _write_dense(folder: Path, step: Dense) -> None:
    names = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    module = "linear" if step.activation.name == "linear" else "activation"
    config = {
        "in_features": step.linear.in_features,
        "out_features": step.linear.out_features,
        "bias": step.linear.bias is not None,
        "activation_function": f"torch.nn.modules.{module}.{names[step.activation.name]}",
        **({"use_residual": True} if step.adds_input else {}),
    }
    write_json(folder / CONFIG, config, CheckpointError)
    write_weights(folder, iter(step.state_dict().items()), max_shard_bytes=2**40)
