"""UMT5: mT5 with a table of distances in every layer, not one that all layers share."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from clearhead.models import t5
from clearhead.models.checkpoint import CheckpointMap
from clearhead.models.family import Family
from clearhead.models.model import Model


@dataclass(kw_only=True)
class UMT5Config(t5.T5Config):
    """Defaults are umt5-small's. Scaled before the output matrix where tie_word_embeddings is true, as in T5."""

    family: ClassVar[str] = "umt5"

    vocab_size: int = 256384
    intermediate_size: int = 1024
    num_hidden_layers: int = 8
    num_attention_heads: int = 6
    feed_forward_proj: str = "gated-gelu"
    tie_word_embeddings: bool = False


class LayerBuckets(nn.Module):
    """T5's numbers by distance, as a part of one layer's attention."""

    def __init__(self, config: UMT5Config, decoder: bool) -> None:
        super().__init__()
        self.buckets = t5.buckets(config, decoder=decoder)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """query (…, Q, head_dim), key (…, K, head_dim) -> (1, heads, Q, K)"""
        bias: Tensor = self.buckets(query.shape[-2], key.shape[-2])
        return bias


def build(config: UMT5Config, task: str) -> Model:
    return t5.build(config, task, relative=LayerBuckets)


def checkpoint_map(config: UMT5Config, task: str) -> CheckpointMap:
    return t5.checkpoint_map(config, task, per_layer=True)


FAMILY = Family(
    name="umt5",
    title="UMT5",
    config=UMT5Config,
    build=build,
    init=t5.init,
    checkpoint_map=checkpoint_map,
    architectures=t5.architectures("UMT5"),
    default_task="seq2seq-lm",
    parent="mt5",
    presets={
        "umt5-small": {},
        "umt5-base": t5.size(12, 768, 2048, 12),
        "umt5-xl": t5.size(24, 2048, 5120, 32),
        "umt5-xxl": t5.size(24, 4096, 10240, 64),
    },
)
