"""A tiny image classifier, assembled as a new family would be: config, codec, patch embedder, the existing layers."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from clearhead.models.checkpoint import own_names
from clearhead.models.family import Family
from clearhead.models.heads import SequenceHead, Summary
from clearhead.models.stack_model import StackModel
from clearhead.models.token_config import LayersConfig
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, LearnedPositions, Stack
from clearhead.nn.embedding import Embedder
from clearhead.nn.init import init_normal
from clearhead.nn.tracing import tap


@dataclass(kw_only=True)
class TinyViTConfig(LayersConfig):
    family: ClassVar[str] = "tiny-vit"
    image_size: int = 8
    patch_size: int = 4
    hidden_size: int = 16
    num_hidden_layers: int = 2
    num_attention_heads: int = 2


class PatchEmbedder(Embedder):
    taps = ("patches", "positions", "output")
    content = "patches"

    def __init__(self, config: TinyViTConfig) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, config.hidden_size, config.patch_size, config.patch_size)
        self.positions = LearnedPositions((config.image_size // config.patch_size) ** 2, config.hidden_size)

    def forward(self, pixel_values):  # (batch, 1, height, width) -> (batch, patches, width)
        x = tap(self, "patches", self.patches(pixel_values).flatten(2).transpose(1, 2))
        places = torch.arange(x.shape[1], device=x.device)[None]
        return tap(self, "output", x + tap(self, "positions", self.positions(places)))


class TinyViT(StackModel):
    def forward(self, pixel_values, labels=None, **options):
        return super().forward(pixel_values, labels=labels, **options)


def build(config: TinyViTConfig, task: str) -> TinyViT:
    width = config.hidden_size
    blocks = [
        Block(
            Attention(width, config.num_attention_heads),
            FeedForward(width, 2 * width, "gelu"),
            attention_norm=LayerNorm(width),
            feedforward_norm=LayerNorm(width),
        )
        for _ in range(config.num_hidden_layers)
    ]
    stack = Stack(PatchEmbedder(config), blocks, LayerNorm(width), causal=False)
    return TinyViT(config, stack, SequenceHead(config, Summary(config, "mean", activation=None)))


def init(config: TinyViTConfig, module: nn.Module) -> None:
    init_normal(module, 0.2)
    for convolution in (m for m in module.modules() if isinstance(m, nn.Conv2d)):
        nn.init.normal_(convolution.weight, std=0.2)
        nn.init.zeros_(convolution.bias)


FAMILY = Family(
    name="tiny-vit", title="Tiny ViT", config=TinyViTConfig, build=build, checkpoint_map=own_names(build),
    init=init, modality="tiny-image",
    architectures={"sequence-classification": "TinyViTForImageClassification"}, default_task="sequence-classification",
)  # fmt: skip
