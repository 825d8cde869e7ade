"""GPT-J against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .reference import Reference


def draw_gptj(rng: random.Random, task: str) -> dict[str, Any]:
    heads, head_dim = rng.choice([1, 2, 3]), rng.choice([4, 6, 9])
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "n_embd": heads * head_dim,
        "n_head": heads,
        "n_layer": rng.choice([1, 2, 3]),
        "n_positions": rng.choice([24, 33]),
        "rotary_dim": rng.choice([2, 4, head_dim // 2 * 2]),
        "n_inner": rng.choice([None, 17, 40]),
        "activation_function": rng.choice(["gelu_new", "gelu", "relu", "silu"]),
        "layer_norm_epsilon": rng.choice([1e-5, 1e-3]),
        "tie_word_embeddings": rng.choice([True, False]),
        # the published head for answers has as many outputs as there are labels, and needs two
        "num_labels": rng.choice([1, 2, 5]) if task == "sequence-classification" else 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


REFERENCE = Reference(
    "gptj",
    {
        "causal-lm": transformers.GPTJForCausalLM,
        "sequence-classification": transformers.GPTJForSequenceClassification,
        "question-answering": transformers.GPTJForQuestionAnswering,
        "features": transformers.GPTJModel,
    },
    draw_gptj,
    transformers.GPTJConfig,
    generates=("causal-lm",),
)
