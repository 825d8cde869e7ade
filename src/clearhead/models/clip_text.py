"""CLIP's text tower: a causal stack whose state at the end token speaks for the text. Stable Diffusion reads it too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.models.checkpoint import CheckpointMap, Entry, linear, one
from clearhead.models.clip_layers import ClipTowerConfig, ProjectionHead, blocks, init_tower, layer_entries
from clearhead.models.family import Family
from clearhead.models.heads import FeaturesHead, Head, HeadInputs
from clearhead.models.stack_model import TokenModel
from clearhead.models.token_config import VocabularyConfig
from clearhead.nn import LayerNorm, LearnedPositions, Stack, TokenEmbedder

OLD_END = 2  # what early configurations say, whatever the end token is: the largest id is it there


@dataclass(kw_only=True)
class ClipTextConfig(VocabularyConfig, ClipTowerConfig):
    family: ClassVar[str] = "clip_text_model"

    vocab_size: int = 49408
    hidden_size: int = 512
    intermediate_size: int = 2048
    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    max_position_embeddings: int = 77
    pad_token_id: int | None = 1
    bos_token_id: int | None = 49406
    eos_token_id: int | list[int] | None = 49407

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "max_position_embeddings")
        if not isinstance(self.eos_token_id, int):
            raise ConfigError(
                f"eos_token_id is {self.eos_token_id!r}; CLIP reads a text at its end token, which must be one number."
            )


class EndTokenPooler(nn.Module):
    """The state at the end token: the first one, since padding may repeat it; or the largest id (see OLD_END)."""

    def __init__(self, eos_token_id: int) -> None:
        super().__init__()
        self.eos_token_id = eos_token_id

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Tensor:
        ids = inputs.input_ids
        if ids is None:
            raise InputError("CLIP reads a text at its end token: give input_ids, which say where that is.")
        ends = ids if self.eos_token_id == OLD_END else ids == self.eos_token_id
        rows = torch.arange(len(hidden), device=hidden.device)
        return hidden[rows, ends.to(hidden.device, torch.int).argmax(-1)]

    def extra_repr(self) -> str:
        return f"eos_token_id={self.eos_token_id}"


class ClipTextModel(TokenModel):
    """`hidden_states` are those of the layers, the last one before the final norm, as in `transformers`."""

    raw_last_state = True


def tower(config: ClipTextConfig) -> Stack:
    width = config.hidden_size
    return Stack(
        TokenEmbedder(nn.Embedding(config.vocab_size, width), LearnedPositions(config.max_position_embeddings, width)),
        blocks(config),
        LayerNorm(width, eps=config.layer_norm_eps),
        causal=True,
    )


def pooler(config: ClipTextConfig) -> EndTokenPooler:
    assert isinstance(config.eos_token_id, int)
    return EndTokenPooler(config.eos_token_id)


def projection(config: ClipTextConfig, projection_dim: int) -> ProjectionHead:
    return ProjectionHead(pooler(config), config.hidden_size, projection_dim, "text_embeds")


def build(config: ClipTextConfig, task: str) -> ClipTextModel:
    head: Head = FeaturesHead(pooler(config))
    if task == "projection":
        head = projection(config, config.projection_dim)
    return ClipTextModel(config, tower(config), head)


def tower_entries(config: ClipTextConfig, ours: str, theirs: str = "") -> Iterator[Entry]:
    yield one(f"{ours}.embed.tokens.weight", f"{theirs}embeddings.token_embedding.weight")
    yield one(f"{ours}.embed.positions.weight", f"{theirs}embeddings.position_embedding.weight")
    yield from layer_entries(config, ours, theirs)
    yield from linear(f"{ours}.final_norm", f"{theirs}final_layer_norm")


def checkpoint_map(config: ClipTextConfig, task: str) -> CheckpointMap:
    entries = [*tower_entries(config, "stack")]
    if task == "projection":
        entries.append(one("head.output.weight", "text_projection.weight", in_body=False))
    # The bare model has the prefix in all files but those that the newest transformers writes, which reads both.
    return CheckpointMap(
        tuple(entries),
        prefix="text_model.",
        always_prefixed=True,
        skipped=(r"(text_model\.)?embeddings\.position_ids",),
    )


FAMILY = Family(
    name="clip_text_model",
    title="CLIP's text tower",
    config=ClipTextConfig,
    build=build,
    init=init_tower,
    checkpoint_map=checkpoint_map,
    architectures={"features": "CLIPTextModel", "projection": "CLIPTextModelWithProjection"},
    default_task="features",
    parent="gpt2",
)
