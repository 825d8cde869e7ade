"""CLIP's vision tower: a transformer over the patches of a picture, for which its class vector speaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, linear, one
from clearhead.models.clip_layers import ClipTowerConfig, ProjectionHead, blocks, init_tower, layer_entries
from clearhead.models.family import Family
from clearhead.models.heads import FeaturesHead, Head, HeadInputs
from clearhead.models.output import Output
from clearhead.models.stack_model import StackModel
from clearhead.nn import LayerNorm, Stack
from clearhead.nn.patches import PatchEmbedder


@dataclass(kw_only=True)
class ClipVisionConfig(ClipTowerConfig):
    family: ClassVar[str] = "clip_vision_model"

    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_channels: int = 3
    image_size: int = 224
    patch_size: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "num_channels", "image_size", "patch_size")
        if self.patch_size > self.image_size:
            raise ConfigError(
                f"patch_size is {self.patch_size}, larger than image_size = {self.image_size}: no patch fits."
            )


class ClassVectorPooler(nn.Module):
    """The state of the class vector, normalised."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Tensor:
        pooled: Tensor = self.norm(hidden[:, 0])
        return pooled


class PatchMean(nn.Module):
    """The average of the patches, without the class vector."""

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Tensor:
        return hidden[:, 1:].mean(1)


class ClipVisionModel(StackModel):
    def forward(  # type: ignore[override]
        self,
        pixel_values: Tensor,  # (batch, channels, height, width)
        interpolate_pos_encoding: bool = False,
        labels: Tensor | None = None,
        **options: Any,
    ) -> Output:
        return super().forward(pixel_values, labels=labels, interpolate=interpolate_pos_encoding, **options)


def tower(config: ClipVisionConfig) -> Stack:
    norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
    embed = PatchEmbedder(config.num_channels, config.hidden_size, config.image_size, config.patch_size, norm)
    return Stack(embed, blocks(config), causal=False)


def pooler(config: ClipVisionConfig) -> ClassVectorPooler:
    return ClassVectorPooler(LayerNorm(config.hidden_size, eps=config.layer_norm_eps))


def projection(config: ClipVisionConfig, projection_dim: int) -> ProjectionHead:
    return ProjectionHead(pooler(config), config.hidden_size, projection_dim, "image_embeds")


def build(config: ClipVisionConfig, task: str) -> ClipVisionModel:
    head: Head = FeaturesHead(pooler(config))
    if task == "projection":
        head = projection(config, config.projection_dim)
    return ClipVisionModel(config, tower(config), head)


@torch.no_grad()
def init(config: ClipVisionConfig, module: nn.Module) -> None:
    init_tower(config, module)
    for part in module.modules():
        if isinstance(part, PatchEmbedder):
            nn.init.normal_(part.class_vector, std=config.hidden_size**-0.5 * config.initializer_factor)
        elif isinstance(part, nn.Conv2d):
            nn.init.normal_(part.weight, std=config.initializer_range * config.initializer_factor)


def tower_entries(config: ClipVisionConfig, ours: str, theirs: str = "") -> Iterator[Entry]:
    yield one(f"{ours}.embed.class_vector", f"{theirs}embeddings.class_embedding")
    yield one(f"{ours}.embed.patches.weight", f"{theirs}embeddings.patch_embedding.weight")
    yield one(f"{ours}.embed.positions.weight", f"{theirs}embeddings.position_embedding.weight")
    yield from linear(f"{ours}.embed.norm", f"{theirs}pre_layrnorm")  # the published spelling
    yield from layer_entries(config, ours, theirs)


def checkpoint_map(config: ClipVisionConfig, task: str) -> CheckpointMap:
    entries = [*tower_entries(config, "stack"), *linear("head.pooler.norm", "post_layernorm")]
    if task == "projection":
        entries.append(one("head.output.weight", "visual_projection.weight", in_body=False))
    return CheckpointMap(
        tuple(entries),
        prefix="vision_model.",
        always_prefixed=True,
        skipped=(r"(vision_model\.)?embeddings\.position_ids",),
    )


FAMILY = Family(
    name="clip_vision_model",
    title="CLIP's vision tower",
    config=ClipVisionConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={"features": "CLIPVisionModel", "projection": "CLIPVisionModelWithProjection"},
    default_task="features",
    modality="image",
    parent="bert",
)
