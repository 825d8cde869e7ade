"""GPT-Neo against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .reference import Reference


def draw_gpt_neo(rng: random.Random, task: str) -> dict[str, Any]:
    heads, layers = rng.choice([1, 2, 3]), rng.choice([1, 2, 3, 4])
    kinds = [rng.choice(["global", "local"]) for _ in range(layers)]
    types = rng.choice([[[kinds, 1]], [[[kind], 1] for kind in kinds], [[kinds[:1], layers]]])
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "hidden_size": heads * rng.choice([4, 6, 7]),
        "num_heads": heads,
        "num_layers": layers,
        "attention_types": types,
        # The texts have 9 tokens: windows up to 4 run in blocks. The loss over answers reads padded positions too; they
        # see something while the window is longer than the padding (those that see nothing are zeros here).
        "window_size": rng.choice([4, 20] if task == "question-answering" else [1, 2, 3, 4, 20]),
        "max_position_embeddings": rng.choice([24, 33]),
        "intermediate_size": rng.choice([None, 17, 40]),
        "activation_function": rng.choice(["gelu_new", "gelu", "relu", "silu"]),
        "layer_norm_epsilon": rng.choice([1e-5, 1e-3]),
        "tie_word_embeddings": rng.choice([True, False]),
        "num_labels": rng.choice([1, 2, 5]) if task == "sequence-classification" else rng.choice([2, 5]),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


REFERENCE = Reference(
    "gpt_neo",
    {
        "causal-lm": transformers.GPTNeoForCausalLM,
        "sequence-classification": transformers.GPTNeoForSequenceClassification,
        "token-classification": transformers.GPTNeoForTokenClassification,
        "question-answering": transformers.GPTNeoForQuestionAnswering,
        "features": transformers.GPTNeoModel,
    },
    draw_gpt_neo,
    transformers.GPTNeoConfig,
    generates=("causal-lm",),
)
