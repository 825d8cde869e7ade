"""What a model is made of, computed from its configuration alone: no weight is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from clearhead.models.config import Config
from clearhead.models.family import Family
from clearhead.models.model import Model
from clearhead.nn import Stack

BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "int4": 0.5}


@dataclass(frozen=True)
class Part:
    """One line of the table: `count` equal tensors of `shape`. A shared tensor counts where it is first met."""

    name: str
    shape: tuple[int, ...]
    count: int
    parameters: int  # of all `count` together; 0 where it is shared with a part above


@dataclass(frozen=True)
class Description:
    name: str
    family: str
    task: str
    config: Config
    parts: tuple[Part, ...]
    parameters: int
    context: int | None
    flops_per_token: int  # one forward step, at the end of a full context (or of 1,024 positions)
    flops_context: int
    cache_values_per_token: int  # keys and values over all layers; 0 where there is nothing to cache

    def memory(self, dtype: str) -> int:
        return int(self.parameters * BYTES[dtype])

    def cache_bytes_per_token(self, dtype: str) -> int:
        return int(self.cache_values_per_token * BYTES[dtype])


def describe(name: str, family: Family, config: Config, task: str | None = None) -> Description:
    model = family.make(config, task, device="meta")
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    context = getattr(config, "max_position_embeddings", None)
    if context is not None:  # RoBERTa's table has rows that no token uses
        context -= stacks[0].embed.first_position
    positions = context or 1024
    causal = [stack for stack in stacks if stack.causal]
    return Description(
        name=name,
        family=family.title,
        task=model.task,
        config=config,
        parts=tuple(_parts(model)),
        parameters=model.num_parameters(),
        context=context,
        flops_per_token=_flops(model, stacks, positions),
        flops_context=positions,
        cache_values_per_token=sum(
            2 * layer.attention.kv_heads * layer.attention.head_dim for stack in causal for layer in stack.blocks
        ),
    )


def _parts(model: Model) -> list[Part]:
    """Tensors from the bottom up, with the layers of a stack folded into one line each."""
    tensors = [(name.removeprefix("stack."), p) for name, p in model.named_parameters(remove_duplicate=False)]
    tensors.sort(key=lambda item: item[0].startswith("head."))  # torch lists the head first
    seen: set[int] = set()
    rows: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for name, p in tensors:
        folded = ".".join("*" if part.isdigit() else part for part in name.split("."))
        row = rows.setdefault((folded, tuple(p.shape)), [0, 0])
        row[0] += 1
        row[1] += p.numel() if id(p) not in seen else 0
        seen.add(id(p))
    return [Part(name, shape, count, parameters) for (name, shape), (count, parameters) in rows.items()]


def _flops(model: nn.Module, stacks: list[Stack], positions: int) -> int:
    """2 per multiply-add: every matrix once, plus q·k and weights·v of each head against the positions it sees."""
    matrices = sum(2 * m.in_features * m.out_features for m in model.modules() if isinstance(m, nn.Linear))
    scores = 0
    for stack in stacks:
        for layer in stack.blocks:
            seen = min(positions, layer.window or positions)
            for module in (layer.attention, layer.cross_attention):
                scores += 0 if module is None else 4 * module.heads * module.head_dim * seen
    return matrices + scores
