"""XLM against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .reference import Reference


def draw_xlm(rng: random.Random, task: str) -> dict[str, Any]:
    heads = rng.choice([1, 2, 3, 4])
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "emb_dim": heads * rng.choice([4, 6, 8]),
        "n_heads": heads,
        "n_layers": rng.choice([1, 2, 3]),
        "gelu_activation": rng.choice([True, False]),
        "sinusoidal_embeddings": rng.choice([True, False]),
        "n_langs": rng.choice([1, 3]),
        "use_lang_emb": rng.choice([True, True, False]),
        "max_position_embeddings": rng.choice([24, 33]),
        "layer_norm_eps": rng.choice([1e-12, 1e-5, 1e-3]),
        "summary_activation": rng.choice([None, "tanh", "gelu"]),
        "summary_last_dropout": 0.3,
        "tie_word_embeddings": rng.choice([True, False]),
        "num_labels": 2 if task == "question-answering" else rng.choice([2, 5]),
    }


REFERENCE = Reference(
    "xlm",
    {
        "masked-lm": transformers.XLMWithLMHeadModel,
        "sequence-classification": transformers.XLMForSequenceClassification,
        "token-classification": transformers.XLMForTokenClassification,
        "question-answering": transformers.XLMForQuestionAnsweringSimple,
        "multiple-choice": transformers.XLMForMultipleChoice,
        "features": transformers.XLMModel,
    },
    draw_xlm,
    transformers.XLMConfig,
)
