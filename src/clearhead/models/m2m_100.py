"""M2M-100 and NLLB: translation between any two of many languages. Positions are waves that skip padding."""

from dataclasses import dataclass
from typing import Any, ClassVar

from clearhead.errors import ConfigError
from clearhead.models import seq2seq
from clearhead.models.family import Family
from clearhead.models.seq2seq import Seq2SeqConfig


@dataclass(kw_only=True)
class M2M100Config(Seq2SeqConfig):
    family: ClassVar[str] = "m2m_100"
    final_norm = True
    logits_bias = False
    positions = "real tokens"

    vocab_size: int = 128112
    activation_function: str = "relu"
    attention_dropout: float = 0.1
    encoder_layerdrop: float = 0.05
    decoder_layerdrop: float = 0.05
    scale_embedding: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pad_token_id is None:
            raise ConfigError("There is no pad_token_id, but this family needs it to number positions.")


def _size(layers: int, hidden: int, **more: Any) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "decoder_layers": layers,
        "encoder_ffn_dim": hidden,
        "decoder_ffn_dim": hidden,
        **more,
    }


_NLLB = {"vocab_size": 256206, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}

FAMILY = Family(
    name="m2m_100",
    title="M2M-100",
    config=M2M100Config,
    build=seq2seq.build,
    init=seq2seq.init,
    checkpoint_map=seq2seq.checkpoint_map,
    architectures={"seq2seq-lm": "M2M100ForConditionalGeneration", "features": "M2M100Model"},
    default_task="seq2seq-lm",
    parent="mbart",
    presets={
        "m2m100_418M": {},
        "m2m100_1.2B": _size(24, 8192),
        "nllb-200-distilled-600M": _NLLB,
        "nllb-200-distilled-1.3B": _size(24, 8192, **_NLLB),
        "nllb-200-1.3B": _size(24, 8192, **_NLLB),
        "nllb-200-3.3B": _size(24, 8192, hidden_size=2048, **_NLLB),
    },
)
