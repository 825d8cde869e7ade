"""LoRA (Hu et al. 2021): a matrix W stays as it is and learns a narrow detour, W + alpha/rank · B A.

A (rank, in) starts random and B (out, rank) at zero, so that at first nothing changes. Only A and B learn: a
ten-thousandth of the model at times, with as little optimiser state. `merge` adds the detour to W, and the model is
a plain one again. Adapters are stored as PEFT stores them, under the names of the published checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from clearhead.errors import CheckpointError, InputError
from clearhead.files import atomic_paths
from clearhead.hub.weights import write_tensors
from clearhead.models import Model
from clearhead.models.checkpoint import Entry
from clearhead.nn.linear import Linear
from clearhead.nn.tracing import compile_pattern
from clearhead.train.engine.optim import check_names

# The paper's choice: queries and values. Where q, k and v are one matrix (GPT-2), all of it, as PEFT has it.
QUERY_VALUE = ("attention|cross_attention.query|value|qkv|key_value",)
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FROZEN = "frozen_by_lora"  # where a model keeps the names of the parameters that learnt before
PREFIX = "base_model.model."
TASKS = {
    "causal-lm": "CAUSAL_LM",
    "seq2seq-lm": "SEQ_2_SEQ_LM",
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "question-answering": "QUESTION_ANS",
    "features": "FEATURE_EXTRACTION",
}


class LoRALinear(Linear):
    """Stands where a Linear stood, with its very weight and bias under their names, and a detour beside them."""

    def __init__(self, plain: Linear, a: nn.Parameter, b: nn.Parameter, scale: float, dropout: float) -> None:
        with torch.device("meta"):
            super().__init__(plain.in_features, plain.out_features, bias=plain.bias is not None)
        self.weight, self.bias = plain.weight, plain.bias
        self.lora_a, self.lora_b = a, b  # (rank, in), (out, rank)
        self.scale, self.dropout = scale, dropout
        self.train(plain.training)

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        narrow = F.linear(F.dropout(x.to(self.lora_a.dtype), self.dropout, self.training), self.lora_a)
        return y + (F.linear(narrow, self.lora_b) * self.scale).to(y.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={len(self.lora_a)}, scale={self.scale:g}"


def add_lora(
    model: Model,
    rank: int = 8,
    alpha: float = 16.0,
    dropout: float = 0.0,
    targets: Sequence[str] = QUERY_VALUE,
    also: Sequence[str] = (),
) -> Model:
    """Freeze the model and give some of its matrices a detour that learns; in place.

    targets   names of Linear modules, as in a trace: `*` inside one part, `**` across parts, `a|b` either. The
              beginning may be left out: "layers.*.feedforward.up" or "attention.query"
    also      names of modules that learn whole, such as "head": a new head has nothing worth keeping
    """
    if rank < 1 or alpha <= 0 or not 0 <= dropout < 1:
        raise InputError(f"LoRA takes rank >= 1, alpha > 0 and 0 <= dropout < 1, not {rank}, {alpha} and {dropout}.")
    if any(True for _ in adapted(model)):
        raise InputError("The model has LoRA adapters already: merge them first.")
    if model.quantized:
        raise InputError(f"LoRA needs whole weights, and these are {model.quantized}. Load it without quantize=.")
    chosen = {name: m for name, m in _matching(model, targets) if isinstance(m, Linear)}
    if not chosen:
        names = sorted({re.sub(r"\.\d+\.", ".*.", n) for n, m in model.named_modules() if isinstance(m, Linear)})
        raise InputError(f"No matrix is called {' or '.join(targets)}. There are: {', '.join(names[:20])}.")
    trained_fully = [module for _, module in _matching(model, also)]
    if also and not trained_fully:
        raise InputError(f"No module is called {' or '.join(also)}, to learn whole. A head is called 'head'.")
    tables = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
    for name, module in chosen.items():
        if module.weight in tables:
            raise InputError(f"{name} is the token table too, which is not a matrix to go around. Leave it out.")
    factors: dict[Tensor, tuple[Tensor, Tensor]] = {}
    for module in chosen.values():
        if module.weight not in factors:  # layers that share a matrix (ALBERT) share its detour
            factors[module.weight] = _drawn(module, rank)
    _put(model, chosen, factors, alpha / rank, dropout)
    for part in trained_fully:
        part.requires_grad_(True)
    return model


def _drawn(module: Linear, rank: int) -> tuple[Tensor, Tensor]:
    """A as torch draws a Linear (Kaiming), B zero; in fp32, whatever the base is stored in."""
    place = module.weight.device
    a = torch.empty(rank, module.in_features, device=place)
    nn.init.kaiming_uniform_(a, a=math.sqrt(5))
    return a, torch.zeros(module.out_features, rank, device=place)


def _put(
    model: Model,
    chosen: Mapping[str, Linear],
    factors: Mapping[Tensor, tuple[Tensor, Tensor]],
    scale: float,
    dropout: float,
) -> None:
    """Freeze the model, remembering what did learn, then put the detours in place."""
    model.__dict__[FROZEN] = [name for name, p in model.named_parameters() if p.requires_grad]
    model.requires_grad_(False)
    learning = {weight: (nn.Parameter(a), nn.Parameter(b)) for weight, (a, b) in factors.items()}
    for name, module in chosen.items():
        _replace(model, name, LoRALinear(module, *learning[module.weight], scale, dropout))


@torch.no_grad()
def merge(model: Model) -> Model:
    """Add every detour to its matrix: the plain model again, with the same outputs, learning as before; in place."""
    merged: dict[Tensor, nn.Parameter] = {}
    for name, module in list(adapted(model)):
        if module.weight not in merged:
            detour = (module.lora_b.float() @ module.lora_a.float()) * module.scale
            merged[module.weight] = nn.Parameter((module.weight.float() + detour).to(module.weight.dtype), False)
        with torch.device("meta"):
            plain = Linear(module.in_features, module.out_features, bias=module.bias is not None)
        plain.weight, plain.bias = merged[module.weight], module.bias
        _replace(model, name, plain.train(module.training))
    for name in model.__dict__.pop(FROZEN, ()):
        model.get_parameter(name).requires_grad_(True)
    return model


def adapted(model: nn.Module) -> Iterator[tuple[str, LoRALinear]]:
    """The matrices with a detour, by name."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoRALinear))


def lora_state(model: nn.Module) -> dict[str, Tensor]:
    """What has learnt: the detours, and what learns whole beside them; by our own names, each once."""
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


@torch.no_grad()
def load_lora_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """What `lora_state` gave, into a model prepared by the same `add_lora`."""
    own = lora_state(model)
    check_names("The stored adapter", state, own)
    for name, p in own.items():
        if state[name].shape != p.shape:
            raise CheckpointError(f"{name} is {tuple(state[name].shape)} in the adapter, {tuple(p.shape)} here.")
    for name, p in own.items():
        p.copy_(state[name])


def unnamed_matrix(model: Model) -> str | None:
    """A matrix whose adapter has no name in PEFT's format: published checkpoints hold it otherwise. None: all have."""
    published = _published(model)
    return next((own for own in map(_matrix_of, lora_state(model)) if own not in published), None)


def _matrix_of(name: str) -> str:
    """The weight that a tensor of `lora_state` belongs to: the one it goes around, or itself."""
    stem = name.rpartition(".lora_")[0]
    return f"{stem}.weight" if stem else name


def save_adapter(model: Model, folder: str | os.PathLike[str], base: str | None = None) -> Path:
    """Write adapter_config.json and adapter_model.safetensors, as PEFT reads them; neither, if one of them fails.

    base   the name or folder of the model underneath, for whoever loads the adapter
    """
    modules = dict(adapted(model))
    if not modules:
        raise InputError("The model has no LoRA adapters to save: call add_lora before training.")
    published = _published(model)
    tensors: dict[str, Tensor] = {}
    targets, trained_fully, transposed = set(), set(), False
    wrong = unnamed_matrix(model)
    if wrong is not None:
        raise InputError(
            f"{wrong} is not a matrix of its own in published checkpoints, so PEFT's format has no name for its "
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
        with atomic_paths(target / WEIGHTS, target / CONFIG) as [weights_path, config_path]:
            write_tensors({k: t.cpu().contiguous() for k, t in tensors.items()}, weights_path)
            config_path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"The adapter was not saved to {target}: {error}.") from None
    return target


@torch.no_grad()
def load_adapter(model: Model, folder: str | os.PathLike[str]) -> Model:
    """Give a plain model the adapters of a folder in PEFT's format; in place. `merge` makes it plain again."""
    if model.quantized or any(True for _ in adapted(model)):
        raise InputError("Adapters are put on a plain model: neither quantised nor with adapters already.")
    path = Path(folder).expanduser()
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(path / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{path} holds no adapter that can be read ({CONFIG}, {WEIGHTS}): {error}.") from None
    rank, scale = _scale(config, path)

    ours: dict[str, tuple[str, Entry]] = {}
    for with_prefix in (False, True):
        ours |= {name: (own, entry) for own, (name, entry) in _published(model, with_prefix).items()}
    factors: dict[Tensor, dict[str, Tensor]] = {}
    trained_fully: dict[nn.Parameter, Tensor] = {}
    for key, tensor in tensors.items():
        match = re.fullmatch(r"(.+)\.lora_([AB])\.weight", key)
        theirs = (f"{match[1]}.weight" if match else key).removeprefix(PREFIX)
        if theirs not in ours:
            raise CheckpointError(f"{path} has {key}, but this model ({model.family.title}) has nothing of that name.")
        own, entry = ours[theirs]
        p = model.get_parameter(own)
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
    _put(model, chosen, pairs, scale, float(config.get("lora_dropout", 0.0)))
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
            raise CheckpointError(f"{path}: {key} is {config[key]!r} in {CONFIG}; only {value!r} is read here.")
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


def _matching(model: nn.Module, patterns: Sequence[str]) -> Iterator[tuple[str, nn.Module]]:
    """The modules whose name ends as one of the patterns says."""
    wanted = [compile_pattern(pattern) for pattern in patterns]
    for name, module in model.named_modules():
        ends = [name, *(name[m.end() :] for m in re.finditer(r"\.", name))]
        if any(pattern.fullmatch(end) for pattern in wanted for end in ends):
            yield name, module


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    path, _, own = name.rpartition(".")
    setattr(model.get_submodule(path), own, module)
