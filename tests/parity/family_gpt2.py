"""GPT-2 against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .double_heads import GPT2DoubleHeadsModel, draw_summary
from .reference import Reference


def draw_gpt2(rng: random.Random, task: str) -> dict[str, Any]:
    heads = rng.choice([1, 2, 3, 4])
    vocab = rng.choice([31, 50, 77])
    return {
        "vocab_size": vocab,
        "n_embd": heads * rng.choice([4, 6, 8]),
        "n_head": heads,
        "n_layer": rng.choice([1, 2, 3]),
        "n_positions": rng.choice([24, 33]),
        "n_inner": rng.choice([None, 17, 40]),
        "activation_function": rng.choice(["gelu_new", "gelu", "relu", "silu", "tanh", "gelu_fast", "quick_gelu"]),
        "layer_norm_epsilon": rng.choice([1e-5, 1e-3]),
        "scale_attn_weights": rng.choice([True, True, False]),
        "scale_attn_by_inverse_layer_idx": rng.choice([True, False]),
        "reorder_and_upcast_attn": rng.choice([True, False]),
        "tie_word_embeddings": rng.choice([True, False]),
        "add_cross_attention": task in ("causal-lm", "features") and rng.choice([True, False]),
        "num_labels": rng.choice([1, 2, 5]) if task == "sequence-classification" else rng.choice([2, 5]),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        **(draw_summary(rng) if task == "multiple-choice" else {}),
    }


REFERENCE = Reference(
    "gpt2",
    {
        "causal-lm": transformers.GPT2LMHeadModel,
        "sequence-classification": transformers.GPT2ForSequenceClassification,
        "token-classification": transformers.GPT2ForTokenClassification,
        "question-answering": transformers.GPT2ForQuestionAnswering,
        "multiple-choice": GPT2DoubleHeadsModel,
        "features": transformers.GPT2Model,
    },
    draw_gpt2,
    transformers.GPT2Config,
    generates=("causal-lm",),
)
