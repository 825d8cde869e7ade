"""OpenAI's first GPT against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .double_heads import OpenAIGPTDoubleHeadsModel, draw_summary
from .reference import Reference


def draw_openai_gpt(rng: random.Random, task: str) -> dict[str, Any]:
    heads = rng.choice([1, 2, 3])
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "n_embd": heads * rng.choice([4, 6, 7]),
        "n_head": heads,
        "n_layer": rng.choice([1, 2, 3]),
        "n_positions": rng.choice([24, 33]),
        "afn": rng.choice(["gelu", "gelu", "relu", "silu", "swish"]),
        "layer_norm_epsilon": rng.choice([1e-5, 1e-3]),
        "tie_word_embeddings": rng.choice([True, False]),
        "num_labels": rng.choice([1, 2, 5]) if task == "sequence-classification" else 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        **(draw_summary(rng) if task == "multiple-choice" else {}),
    }


REFERENCE = Reference(
    "openai-gpt",
    {
        "causal-lm": transformers.OpenAIGPTLMHeadModel,
        "sequence-classification": transformers.OpenAIGPTForSequenceClassification,
        "multiple-choice": OpenAIGPTDoubleHeadsModel,
        "features": transformers.OpenAIGPTModel,
    },
    draw_openai_gpt,
    transformers.OpenAIGPTConfig,
    generates=("causal-lm",),
)
