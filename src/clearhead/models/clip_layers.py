"""What CLIP's two towers share: the layers, the options of their configurations, and the published names of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from clearhead.models.checkpoint import Entry, layers, linear
from clearhead.models.heads import Head, HeadInputs
from clearhead.models.output import Output
from clearhead.models.token_config import LayersConfig
from clearhead.nn import Attention, Block, FeedForward, LayerNorm
from clearhead.nn.activations import activation
from clearhead.nn.init import init_normal
from clearhead.nn.linear import Linear
from clearhead.nn.tracing import tap


@dataclass(kw_only=True)
class ClipTowerConfig(LayersConfig):
    # early files have a dropout that no layer ever read
    inert: ClassVar[frozenset[str]] = frozenset({"dropout"})

    intermediate_size: int
    projection_dim: int = 512
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5
    attention_dropout: float = 0.0
    initializer_range: float = 0.02
    initializer_factor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "intermediate_size", "projection_dim")
        self._probabilities("attention_dropout")
        self._divides(self.hidden_size, self.num_attention_heads)
        activation(self.hidden_act)


def blocks(config: ClipTowerConfig) -> list[Block]:
    width, eps = config.hidden_size, config.layer_norm_eps
    return [
        Block(
            Attention(width, config.num_attention_heads, dropout=config.attention_dropout),
            FeedForward(width, config.intermediate_size, config.hidden_act),
            attention_norm=LayerNorm(width, eps=eps),
            feedforward_norm=LayerNorm(width, eps=eps),
        )
        for _ in range(config.num_hidden_layers)
    ]


def layer_entries(config: ClipTowerConfig, ours: str, theirs: str) -> Iterator[Entry]:
    """The layers of the stack that is called `ours` here and `theirs` (with its dot) in the file."""
    here, there = f"{ours}.layers.{{n}}", f"{theirs}encoder.layers.{{n}}"
    each = [
        *linear(f"{here}.attention_norm", f"{there}.layer_norm1"),
        *linear(f"{here}.attention.query", f"{there}.self_attn.q_proj"),
        *linear(f"{here}.attention.key", f"{there}.self_attn.k_proj"),
        *linear(f"{here}.attention.value", f"{there}.self_attn.v_proj"),
        *linear(f"{here}.attention.output", f"{there}.self_attn.out_proj"),
        *linear(f"{here}.feedforward_norm", f"{there}.layer_norm2"),
        *linear(f"{here}.feedforward.up", f"{there}.mlp.fc1"),
        *linear(f"{here}.feedforward.down", f"{there}.mlp.fc2"),
    ]
    yield from layers(config.num_hidden_layers, each)


class ProjectionHead(Head):
    """The pooled vector in the space that texts and pictures share, not yet of unit length.

    gives   what the answer calls it
    """

    taps = ("pooled", "projected")

    def __init__(
        self, pooler: nn.Module, width: int, projection_dim: int, gives: Literal["text_embeds", "image_embeds"]
    ) -> None:
        super().__init__()
        self.pooler = pooler
        self.output = Linear(width, projection_dim, bias=False)
        self.gives = gives

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        pooled = tap(self, "pooled", self.pooler(hidden, inputs))
        projected = tap(self, "projected", self.output(pooled))
        if self.gives == "text_embeds":
            return Output(text_embeds=projected, last_hidden_state=hidden)
        return Output(image_embeds=projected, last_hidden_state=hidden)


@torch.no_grad()
def init_tower(config: ClipTowerConfig, module: nn.Module) -> None:
    """The paper's first weights: narrower where a layer writes into the residual stream, the more so the more layers.

    module   a tower, or any part of one; what has no rule of its own (projections) starts at 1/√width
    """
    factor, width = config.initializer_factor, config.hidden_size
    deep = (2 * config.num_hidden_layers) ** -0.5
    init_normal(module, config.initializer_range * factor)
    for part in module.modules():
        if isinstance(part, Attention):
            for matrix in (part.query, part.key, part.value):
                nn.init.normal_(matrix.weight, std=width**-0.5 * deep * factor)
            nn.init.normal_(part.output.weight, std=width**-0.5 * factor)
        elif isinstance(part, FeedForward):
            nn.init.normal_(part.up.weight, std=(2 * width) ** -0.5 * factor)
            nn.init.normal_(part.down.weight, std=width**-0.5 * deep * factor)
        elif isinstance(part, ProjectionHead):
            nn.init.normal_(part.output.weight, std=width**-0.5 * factor)
