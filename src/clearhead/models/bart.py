"""BART: reads a spoilt text both ways and writes it anew. Learned positions, norms after each sublayer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from clearhead.models import seq2seq
from clearhead.models.family import Family
from clearhead.models.seq2seq import Seq2SeqConfig
from clearhead.nn.block import Placement


@dataclass(kw_only=True)
class BartConfig(Seq2SeqConfig):
    family: ClassVar[str] = "bart"
    placement: ClassVar[Placement] = "post"
    embedding_norm = True
    positions = "learned"
    target_is_source = True

    classifier_dropout: float = 0.0
    forced_eos_token_id: int | list[int] | None = 2
    id2label: dict[int, str] = field(default_factory=lambda: {n: f"LABEL_{n}" for n in range(3)})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._probabilities("classifier_dropout")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], ignore: Iterable[str] = (), strict: bool = False) -> Self:
        raw = dict(raw)
        older = raw.pop("classif_dropout", None)  # the older name, which many files still carry beside the newer
        if raw.get("classifier_dropout") is None and older is not None:
            raw["classifier_dropout"] = older
        if raw.get("id2label") is None and raw.get("num_labels") is None:
            raw["num_labels"] = cls().num_labels
        return super().from_dict(raw, ignore, strict)


_BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 6,
    "decoder_layers": 6,
    "num_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
}

FAMILY = Family(
    name="bart",
    title="BART",
    config=BartConfig,
    build=seq2seq.build,
    init=seq2seq.init,
    checkpoint_map=seq2seq.checkpoint_map,
    architectures={
        "seq2seq-lm": "BartForConditionalGeneration",
        "sequence-classification": "BartForSequenceClassification",
        "question-answering": "BartForQuestionAnswering",
        "causal-lm": "BartForCausalLM",
        "features": "BartModel",
    },
    default_task="seq2seq-lm",
    parent="transformer",
    presets={
        "bart-base": _BASE,
        "bart-large": {},
        "bart-large-cnn": {"vocab_size": 50264, "forced_bos_token_id": 0},
        "bart-large-xsum": {"vocab_size": 50264, "forced_bos_token_id": 0},
    },
)
