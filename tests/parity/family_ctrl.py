"""CTRL against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .reference import Reference


def draw_ctrl(rng: random.Random, task: str) -> dict[str, Any]:
    heads = rng.choice([1, 2, 3])
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "n_embd": heads * rng.choice([4, 6, 7]),
        "n_head": heads,
        "n_layer": rng.choice([1, 2, 3]),
        "dff": rng.choice([5, 17, 40]),
        "n_positions": rng.choice([24, 33]),
        "layer_norm_epsilon": rng.choice([1e-6, 1e-2]),
        "tie_word_embeddings": rng.choice([True, False]),
        "num_labels": rng.choice([1, 2, 5]),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


REFERENCE = Reference(
    "ctrl",
    {
        "causal-lm": transformers.CTRLLMHeadModel,
        "sequence-classification": transformers.CTRLForSequenceClassification,
        "features": transformers.CTRLModel,
    },
    draw_ctrl,
    transformers.CTRLConfig,
    generates=("causal-lm",),
)
