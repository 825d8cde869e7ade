"""XLM-RoBERTa-XL against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .family_roberta import classes, draw_roberta
from .reference import Reference


def draw_xl(rng: random.Random, task: str) -> dict[str, Any]:
    values = draw_roberta(rng, task)
    # Norms before each sublayer, over four numbers, are too rough a thing for the check in bf16.
    return values | {"hidden_size": values["num_attention_heads"] * rng.choice([8, 10, 12])}


REFERENCE = Reference(
    "xlm-roberta-xl", classes("XLMRobertaXL"), draw_xl, transformers.XLMRobertaXLConfig, generates=("causal-lm",)
)
