"""Marian: the translation models of the OPUS project, the 2017 Transformer with one or two vocabularies."""

from dataclasses import dataclass
from typing import Any, ClassVar

from clearhead.errors import ConfigError
from clearhead.models import seq2seq
from clearhead.models.family import Family
from clearhead.models.seq2seq import Seq2SeqConfig


@dataclass(kw_only=True)
class MarianConfig(Seq2SeqConfig):
    """`vocab_size` is the source's."""

    family: ClassVar[str] = "marian"
    placement = "post"
    scales_vectors = True

    vocab_size: int = 58101
    decoder_vocab_size: int | None = None  # vocab_size
    share_encoder_decoder_embeddings: bool = True
    bos_token_id: int | None = None
    pad_token_id: int | None = 58100
    eos_token_id: int | list[int] | None = 0
    decoder_start_token_id: int | None = 58100
    forced_eos_token_id: int | list[int] | None = 0

    def __post_init__(self) -> None:
        self.decoder_vocab_size = self.decoder_vocab_size or self.vocab_size
        super().__post_init__()
        if self.share_encoder_decoder_embeddings and self.decoder_vocab_size != self.vocab_size:
            raise ConfigError(
                f"share_encoder_decoder_embeddings is true, but the vocabularies differ: {self.vocab_size} words for "
                f"the source, {self.decoder_vocab_size} for the target. Set it to false."
            )

    @property
    def target_size(self) -> int:
        return self.decoder_vocab_size or self.vocab_size

    @property
    def one_table(self) -> bool:
        return self.tie_word_embeddings and self.share_encoder_decoder_embeddings


def _opus(words: int) -> dict[str, Any]:
    """The usual size of an OPUS model; the last word is padding, and is never written."""
    return {
        "vocab_size": words,
        "hidden_size": 512,
        "num_hidden_layers": 6,
        "decoder_layers": 6,
        "num_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048,
        "activation_function": "swish",
        "max_position_embeddings": 512,
        "scale_embedding": True,
        "pad_token_id": words - 1,
        "decoder_start_token_id": words - 1,
        "bad_words_ids": [[words - 1]],
    }


FAMILY = Family(
    name="marian",
    title="Marian",
    config=MarianConfig,
    build=seq2seq.build,
    init=seq2seq.init,
    checkpoint_map=seq2seq.checkpoint_map,
    architectures={"seq2seq-lm": "MarianMTModel", "causal-lm": "MarianForCausalLM", "features": "MarianModel"},
    default_task="seq2seq-lm",
    parent="bart",
    presets={
        "opus-mt-en-de": _opus(58101),
        "opus-mt-de-en": _opus(58101),
        "opus-mt-en-fr": _opus(59514),
        "opus-mt-fr-en": _opus(59514),
    },
)
