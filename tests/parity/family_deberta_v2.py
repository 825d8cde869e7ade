"""DeBERTa v2 and v3 against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .family_deberta import draw_disentangled
from .reference import Reference


def draw_deberta_v2(rng: random.Random, task: str) -> dict[str, Any]:
    drawn = draw_disentangled(rng, task)
    reach = drawn["max_relative_positions"]
    reach = reach if reach > 0 else drawn["max_position_embeddings"]
    return drawn | {
        "position_buckets": rng.choice([-1, 4, 5, reach]),
        "share_att_key": rng.choice([True, False]),
        "norm_rel_ebd": rng.choice(["none", "layer_norm"]),
        "conv_kernel_size": rng.choice([0, 1, 3, 5]),
        "conv_groups": rng.choice([1, drawn["num_attention_heads"]]),
        "conv_act": rng.choice(["tanh", "gelu"]),
    }


REFERENCE = Reference(
    "deberta-v2",
    {
        "masked-lm": transformers.DebertaV2ForMaskedLM,
        "sequence-classification": transformers.DebertaV2ForSequenceClassification,
        "token-classification": transformers.DebertaV2ForTokenClassification,
        "question-answering": transformers.DebertaV2ForQuestionAnswering,
        "multiple-choice": transformers.DebertaV2ForMultipleChoice,
        "features": transformers.DebertaV2Model,
    },
    draw_deberta_v2,
    transformers.DebertaV2Config,
)
