"""LoRA in training: the model is frozen, and narrow detours around some of its matrices learn (nn/lora.py).

A (rank, in) starts random and B (out, rank) at zero, so that at first nothing changes. Only A and B learn: a
ten-thousandth of the model at times, with as little optimiser state.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError, InputError
from clearhead.models import Model
from clearhead.nn.linear import Linear
from clearhead.nn.lora import adapted, attach_adapters, lora_state
from clearhead.nn.tracing import compile_pattern
from clearhead.train.engine.optim import check_names

# The paper's choice: queries and values. Where q, k and v are one matrix (GPT-2), all of it, as PEFT has it.
QUERY_VALUE = ("attention|cross_attention.query|value|qkv|key_value",)


def add_lora(
    model: Model,
    rank: int = 8,
    alpha: float = 16.0,
    dropout: float = 0.0,
    targets: Sequence[str] = QUERY_VALUE,
    modules_to_save: Sequence[str] = (),
) -> Model:
    """Freeze the model and give some of its matrices a detour that learns; in place.

    targets           names of Linear modules, as in a trace: `*` inside one part, `**` across parts, `a|b` either. The
                      beginning may be left out: "layers.*.feedforward.up" or "attention.query"
    modules_to_save   names of modules that learn whole, such as "head": a new head has nothing worth keeping
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
    trained_fully = [module for _, module in _matching(model, modules_to_save)]
    if modules_to_save and not trained_fully:
        raise InputError(f"No module is called {' or '.join(modules_to_save)}, to learn whole. A head is 'head'.")
    tables = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
    for name, module in chosen.items():
        if module.weight in tables:
            raise InputError(f"{name} is the token table too, which is not a matrix to go around. Leave it out.")
    factors: dict[Tensor, tuple[Tensor, Tensor]] = {}
    for module in chosen.values():
        if module.weight not in factors:  # layers that share a matrix (ALBERT) share its detour
            factors[module.weight] = _init_factors(module, rank)
    attach_adapters(model, chosen, factors, alpha / rank, dropout)
    for part in trained_fully:
        part.requires_grad_(True)
    return model


def _init_factors(module: Linear, rank: int) -> tuple[Tensor, Tensor]:
    """A as torch draws a Linear (Kaiming), B zero; in fp32, whatever the base is stored in."""
    device = module.weight.device
    a = torch.empty(rank, module.in_features, device=device)
    nn.init.kaiming_uniform_(a, a=math.sqrt(5))
    return a, torch.zeros(module.out_features, rank, device=device)


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


def _matching(model: nn.Module, patterns: Sequence[str]) -> Iterator[tuple[str, nn.Module]]:
    """The modules whose name ends as one of the patterns says."""
    compiled = [compile_pattern(pattern) for pattern in patterns]
    for name, module in model.named_modules():
        suffixes = [name, *(name[m.end() :] for m in re.finditer(r"\.", name))]
        if any(pattern.fullmatch(suffix) for pattern in compiled for suffix in suffixes):
            yield name, module
