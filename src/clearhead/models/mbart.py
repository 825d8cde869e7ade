"""mBART: BART for many languages. The norm comes first, and a text carries the code of its language."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.models import seq2seq
from clearhead.models.bart import BartConfig
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.family import Family
from clearhead.models.model import Model


@dataclass(kw_only=True)
class MBartConfig(BartConfig):
    family: ClassVar[str] = "mbart"
    placement = "pre"
    final_norm = True

    decoder_start_token_id: int | None = None  # the code of the target language
    id2label: dict[int, str] = field(default_factory=lambda: {0: "LABEL_0", 1: "LABEL_1"})


class MBartModel(EncoderDecoderModel):
    """A target ends with the code of its language, and that is what its decoder starts from."""

    def shift_right(self, labels: Tensor) -> Tensor:
        pad = self.config.pad_token_id
        if pad is None:
            raise InputError("To learn from labels the config needs pad_token_id.")
        target = labels.masked_fill(labels == -100, pad)
        last = (target != pad).sum(1, keepdim=True) - 1  # padding is on the right
        return torch.cat([target.gather(1, last.clamp(min=0)), target[:, :-1]], dim=1)


def build(config: MBartConfig, task: str) -> Model:
    return seq2seq.build(config, task, MBartModel)


FAMILY = Family(
    name="mbart",
    title="mBART",
    config=MBartConfig,
    build=build,
    init=seq2seq.init,
    checkpoint_map=seq2seq.checkpoint_map,
    architectures={
        "seq2seq-lm": "MBartForConditionalGeneration",
        "sequence-classification": "MBartForSequenceClassification",
        "question-answering": "MBartForQuestionAnswering",
        "causal-lm": "MBartForCausalLM",
        "features": "MBartModel",
    },
    default_task="seq2seq-lm",
    parent="bart",
    presets={
        "mbart-large-cc25": {"vocab_size": 250027, "scale_embedding": True},
        "mbart-large-50": {"vocab_size": 250054, "scale_embedding": True, "decoder_start_token_id": 2},
    },
)
