"""GPT-3: GPT-2 made larger, with every other layer seeing only a band of recent positions.

The paper (Brown et al. 2020, table 2.1) gives the sizes. It does not give the width of the band; the default here is
the stride of 128 that the Sparse Transformer it cites used for text. For the 1.3 B model the table says 24 heads of
128, which does not fit its width of 2,048 nor its parameter count; 16 heads of 128 fits both and is used.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from clearhead.errors import ConfigError
from clearhead.models import gpt2
from clearhead.models.family import Family
from clearhead.models.stack_model import TokenModel


@dataclass(kw_only=True)
class GPT3Config(gpt2.GPT2Config):
    family: ClassVar[str] = "gpt3"
    published: ClassVar[dict[str, str]] = {**gpt2.GPT2Config.published, "head_dim": "d_head"}

    max_position_embeddings: int = 2048
    head_dim: int | None = None  # hidden_size / num_attention_heads
    band: int | None = 128  # how far the banded layers see; None: every layer is dense

    def _divides(self, width: int, heads: int) -> None:
        if self.head_dim is None:
            super()._divides(width, heads)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "band", "head_dim")
        if self.add_cross_attention:
            raise ConfigError("GPT-3 has no cross-attention.")


def build(config: GPT3Config, task: str) -> TokenModel:
    blocks = [
        gpt2.block(config, n, window=config.band if n % 2 else None, head_dim=config.head_dim)
        for n in range(config.num_hidden_layers)
    ]
    return gpt2.assemble(config, blocks, gpt2.head(config, task))


def _size(layers: int, width: int, heads: int, head_dim: int) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "head_dim": head_dim,
    }


FAMILY = Family(
    name="gpt3",
    title="GPT-3",
    config=GPT3Config,
    build=build,
    init=gpt2.init,
    checkpoint_map=gpt2.checkpoint_map,
    architectures={"causal-lm": "GPT3LMHeadModel", "features": "GPT3Model"},
    default_task="causal-lm",
    parent="gpt2",
    own_format=True,
    presets={
        "gpt3-small": _size(12, 768, 12, 64),
        "gpt3-medium": _size(24, 1024, 16, 64),
        "gpt3-large": _size(24, 1536, 16, 96),
        "gpt3-xl": _size(24, 2048, 16, 128),
        "gpt3-2.7b": _size(32, 2560, 32, 80),
        "gpt3-6.7b": _size(32, 4096, 32, 128),
        "gpt3-13b": _size(40, 5140, 40, 128),
        "gpt3-175b": _size(96, 12288, 96, 128),
    },
)
