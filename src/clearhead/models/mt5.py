"""mT5: T5 1.1 for a hundred languages. The network is T5's; the vocabulary is eight times as large."""

from dataclasses import dataclass
from typing import ClassVar

from clearhead.models import t5
from clearhead.models.family import Family


@dataclass(kw_only=True)
class MT5Config(t5.T5Config):
    """Defaults are mt5-small's.

    The hidden states are not scaled before the output matrix unless scale_decoder_outputs says so. Here T5's rule (as
    tie_word_embeddings) would be wrong: transformers 5 writes tie_word_embeddings: true for models that are not tied.
    """

    family: ClassVar[str] = "mt5"

    vocab_size: int = 250112
    intermediate_size: int = 1024
    num_hidden_layers: int = 8
    num_attention_heads: int = 6
    feed_forward_proj: str = "gated-gelu"
    tie_word_embeddings: bool = False
    scale_decoder_outputs: bool | None = False


FAMILY = Family(
    name="mt5",
    title="mT5",
    config=MT5Config,
    build=t5.build,
    init=t5.init,
    checkpoint_map=t5.checkpoint_map,
    architectures=t5.architectures("MT5"),
    default_task="seq2seq-lm",
    parent="t5",
    presets={
        "mt5-small": {},
        "mt5-base": t5.size(12, 768, 2048, 12),
        "mt5-large": t5.size(24, 1024, 2816, 16),
        "mt5-xl": t5.size(24, 2048, 5120, 32),
        "mt5-xxl": t5.size(24, 4096, 10240, 64),
    },
)
