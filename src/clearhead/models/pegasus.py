"""Pegasus: summaries, learned by writing the sentences that were taken out. Norm first, sinusoidal positions."""

from dataclasses import dataclass
from typing import ClassVar

from clearhead.models import seq2seq
from clearhead.models.family import Family
from clearhead.models.seq2seq import Seq2SeqConfig


@dataclass(kw_only=True)
class PegasusConfig(Seq2SeqConfig):
    family: ClassVar[str] = "pegasus"
    final_norm = True
    scales_vectors = True

    bos_token_id: int | None = None
    pad_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    decoder_start_token_id: int | None = 0
    forced_eos_token_id: int | list[int] | None = 1


_LARGE = {
    "vocab_size": 96103,
    "num_hidden_layers": 16,
    "decoder_layers": 16,
    "activation_function": "relu",
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "scale_embedding": True,
}

FAMILY = Family(
    name="pegasus",
    title="Pegasus",
    config=PegasusConfig,
    build=seq2seq.build,
    init=seq2seq.init,
    checkpoint_map=seq2seq.checkpoint_map,
    architectures={
        "seq2seq-lm": "PegasusForConditionalGeneration",
        "causal-lm": "PegasusForCausalLM",
        "features": "PegasusModel",
    },
    default_task="seq2seq-lm",
    parent="bart",
    presets={
        "pegasus-large": _LARGE,
        "pegasus-cnn_dailymail": _LARGE,
        "pegasus-xsum": {**_LARGE, "max_position_embeddings": 512},
    },
)
