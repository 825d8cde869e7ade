"""ELECTRA against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .family_bert import draw_bert
from .family_roberta import classes
from .reference import Reference


def draw_electra(rng: random.Random, task: str) -> dict[str, Any]:
    values = draw_bert(rng, task)
    return values | {
        "embedding_size": rng.choice([5, 12, values["hidden_size"]]),
        "summary_type": rng.choice(["first", "last", "mean", "cls_index"]),
        "summary_use_proj": rng.choice([True, True, False]),
        "summary_activation": rng.choice(["gelu", "tanh", "linear"]),
        "summary_last_dropout": rng.choice([0.0, 0.2]),
    }


REFERENCE = Reference(
    "electra",
    {"replaced-token": transformers.ElectraForPreTraining, **classes("Electra")},
    draw_electra,
    transformers.ElectraConfig,
    generates=("causal-lm",),
)
