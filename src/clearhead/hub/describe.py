"""What a model is made of, computed from its configuration alone: no weight is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from clearhead.models.config import Config
from clearhead.models.family import Family
from clearhead.models.model import Model
from clearhead.nn import Block, LayerNorm, RMSNorm, Stack
from clearhead.nn.bidirectional_stack import BidirectionalLayer
from clearhead.nn.multiply_adds import multiply_adds
from clearhead.nn.recurrent_stack import RecurrentLayer

RECURRENT = (RecurrentLayer, BidirectionalLayer)
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "int4": 0.5}


@dataclass(frozen=True)
class Part:
    """One line of the table: `count` equal tensors of `shape`. A shared tensor counts where it is first met."""

    name: str
    shape: tuple[int, ...]
    count: int
    parameters: int  # of all `count` together; 0 where it is shared with a part above


@dataclass(frozen=True)
class Training:
    """What one token costs in training, in sequences of `length`: AdamW in fp32, products in bf16 (autocast), attention
    that keeps no square, the loss in stretches, as a recipe has it on a GPU by default."""

    parameters: int
    length: int
    flops_per_token: int  # forward and backward: 6 for every weight of a matrix, 12 for each width · position attended
    activation_bytes: int  # per token, kept from the forward pass for the backward pass
    checkpointed_bytes: int  # the same with gradient checkpointing, where layers keep only their input
    layer_bytes: int  # per token, of the largest layer: what recomputing it needs meanwhile

    @property
    def state_bytes(self) -> int:
        """Weights, gradients and AdamW's two averages: four numbers of 4 bytes for every parameter."""
        return 16 * self.parameters

    def tokens_per_second(self, gpus: int, peak: float, mfu: float) -> float:
        """peak: FLOP per second of one GPU; mfu: model FLOPs utilisation, the part of it that training reaches"""
        return gpus * peak * mfu / self.flops_per_token


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
    training: Training

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
            2 * layer.attention.kv_heads * layer.attention.head_dim
            for stack in causal
            for layer in stack.blocks
            if not isinstance(layer, RECURRENT)
        ),
        training=_training(model, stacks, positions),
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
    scores = 0
    for stack in stacks:
        for layer in stack.blocks:
            if isinstance(layer, RECURRENT):
                continue
            seen = min(positions, layer.window or positions)
            for module in (layer.attention, layer.cross_attention):
                scores += 0 if module is None else 4 * module.heads * module.head_dim * seen
    return 2 * multiply_adds(model) + scores


def _training(model: Model, stacks: list[Stack], length: int) -> Training:
    layers = [layer for stack in stacks for layer in stack.blocks]
    inside = {id(module) for layer in layers for module in layer.modules()}
    outside = [module for module in model.modules() if id(module) not in inside]
    rest = sum(_norm_bytes(module) for module in outside)
    projection = model.language_head.output if model.language_head is not None else None
    if isinstance(projection, nn.Linear):
        rest += 2 * projection.in_features  # the loss in stretches keeps the gradient of its input
    kept = [_layer_bytes(layer) for layer in layers]
    # What runs from layer to layer is bf16; a norm that stands at the end of a layer gives fp32.
    inputs = sum(_input_bytes(layer) for layer in layers)
    return Training(
        parameters=model.num_parameters(),
        length=length,
        flops_per_token=3 * _flops(model, stacks, length),  # the backward pass takes two products for each one
        activation_bytes=rest + sum(kept),
        checkpointed_bytes=rest + inputs,
        layer_bytes=max(kept, default=0),
    )


def _input_bytes(layer: Block | RecurrentLayer | BidirectionalLayer) -> int:
    if isinstance(layer, RECURRENT):
        return 2 * layer.input_size
    return (4 if layer.placement == "post" else 2) * layer.attention.output.out_features


def _layer_bytes(layer: Block | RecurrentLayer | BidirectionalLayer) -> int:
    """What autograd keeps of a token in a layer:

    each norm         its input, which autocast makes fp32 on a GPU    4 · width
    each matrix       its input, in bf16                               2 · in
    attention         query, key and value (its output is the input of the output matrix)
    feed-forward      what goes into the activation (ReLU knows its own output); gated, both factors too
    dropout           a byte for each number
    recurrent layer   its input, its gates and its states, in bf16
    """
    if isinstance(layer, RECURRENT):
        return 2 * (layer.input_size + layer.gates_and_states) + (layer.width if layer.dropout else 0)
    kept = sum(_norm_bytes(m) for m in layer.modules())
    kept += sum(2 * m.in_features for m in layer.modules() if isinstance(m, nn.Linear))
    for attention in (layer.attention, layer.cross_attention):
        if attention is not None:
            kept += 2 * (attention.heads + 2 * attention.kv_heads) * attention.head_dim
    feedforward = layer.feedforward
    hidden = feedforward.down.in_features
    kept += 0 if feedforward.activation.name == "relu" else 2 * hidden
    kept += 4 * hidden if feedforward.gate is not None else 0
    residuals = 2 if layer.cross_attention is None else 3
    kept += residuals * feedforward.down.out_features if layer.dropout else 0
    return kept + (hidden if feedforward.dropout else 0)


def _norm_bytes(module: nn.Module) -> int:
    """Its input; RMSNorm, made of small steps, keeps that once more, scaled."""
    if isinstance(module, RMSNorm):
        return 8 * module.weight.numel()
    return 4 * module.normalized_shape[0] if isinstance(module, LayerNorm) else 0
