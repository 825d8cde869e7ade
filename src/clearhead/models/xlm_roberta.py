"""XLM-RoBERTa: RoBERTa with a vocabulary for a hundred languages."""

from dataclasses import dataclass
from typing import ClassVar

from clearhead.models import bert, roberta
from clearhead.models.family import Family


@dataclass(kw_only=True)
class XLMRobertaConfig(roberta.RobertaConfig):
    family: ClassVar[str] = "xlm-roberta"

    vocab_size: int = 30522


FAMILY = Family(
    name="xlm-roberta",
    title="XLM-RoBERTa",
    config=XLMRobertaConfig,
    build=roberta.build,
    init=bert.init,
    checkpoint_map=roberta.checkpoint_map,
    architectures=roberta.architectures("XLMRoberta"),
    default_task="masked-lm",
    parent="roberta",
    presets={
        "xlm-roberta-base": {**roberta.PUBLISHED, "vocab_size": 250002},
        "xlm-roberta-large": {**roberta.LARGE, "vocab_size": 250002},
    },
)
