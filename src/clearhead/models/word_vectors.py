"""Word vectors (word2vec 2013, GloVe 2014): a table with a row for each word, and no layer above it.

What every model here begins with, alone: the same word has the same vector wherever it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clearhead.models.checkpoint import CheckpointMap, one
from clearhead.models.config import Config
from clearhead.models.family import Family
from clearhead.models.heads import FeaturesHead, HeadInputs
from clearhead.models.output import Output
from clearhead.models.stack_model import StackModel
from clearhead.nn.embedding import TokenEmbedder
from clearhead.nn.stack import Stack, shape_of

TABLE, PUBLISHED = "stack.embed.tokens.weight", "vectors"  # the one tensor: our name, and its name in a file


@dataclass(kw_only=True)
class WordVectorsConfig(Config):
    family: ClassVar[str] = "word-vectors"
    num_hidden_layers: ClassVar[int] = 0
    tie_word_embeddings: ClassVar[bool] = False

    vocab_size: int = 400_000
    hidden_size: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "vocab_size", "hidden_size")


class WordVectorModel(StackModel):
    """Looks words up, each for itself."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,  # (batch, time)
        attention_mask: Tensor | None = None,  # words do not see each other: it hides nothing
        inputs_embeds: Tensor | None = None,
    ) -> Output:
        _, time, device = shape_of(input_ids, inputs_embeds)
        places = torch.arange(time, device=device)[None]
        vectors = self.stack.embed(input_ids, places, None, inputs_embeds)
        out: Output = self.head(vectors, HeadInputs(input_ids))
        return out


def build(config: WordVectorsConfig, task: str) -> WordVectorModel:
    embed = TokenEmbedder(nn.Embedding(config.vocab_size, config.hidden_size))
    layers: Sequence[nn.Module] = ()
    return WordVectorModel(config, Stack(embed, layers, causal=False), FeaturesHead())  # type: ignore[arg-type]


def init(config: WordVectorsConfig, module: nn.Module) -> None:
    """As word2vec begins: small numbers, the more of them the smaller."""
    for table in (m for m in module.modules() if isinstance(m, nn.Embedding)):
        nn.init.uniform_(table.weight, -0.5 / config.hidden_size, 0.5 / config.hidden_size)


def checkpoint_map(config: WordVectorsConfig, task: str) -> CheckpointMap:
    return CheckpointMap((one(TABLE, PUBLISHED),))


FAMILY = Family(
    name="word-vectors",
    title="Word vectors",
    config=WordVectorsConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={"features": "WordVectors", "word-vectors": "WordVectors"},  # which are one and the same
    default_task="word-vectors",
    modality="word-vectors",
    presets={
        **{f"glove-6b-{width}d": {"vocab_size": 400_000, "hidden_size": width} for width in (50, 100, 200, 300)},
        "glove-840b-300d": {"vocab_size": 2_196_017, "hidden_size": 300},
        "word2vec-google-news-300": {"vocab_size": 3_000_000, "hidden_size": 300},
    },
    own_format=True,
)
