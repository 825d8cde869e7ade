"""DeBERTa against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .reference import Reference, older_than


def draw_disentangled(rng: random.Random, task: str) -> dict[str, Any]:
    """What both versions have."""
    heads = rng.choice([1, 2, 3, 4])
    width = heads * rng.choice([4, 6, 8])
    legacy = rng.choice([True, False]) or older_than("5.20")  # it could not open a newer head that is tied, as all are
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_hidden_layers": rng.choice([1, 2, 3]),
        "intermediate_size": rng.choice([16, 37, 64]),
        "hidden_act": rng.choice(["gelu", "gelu_new", "relu", "silu"]),
        "max_position_embeddings": rng.choice([24, 33]),
        "type_vocab_size": rng.choice([0, 0, 2, 3]),
        "layer_norm_eps": rng.choice([1e-7, 1e-5, 1e-3]),
        "embedding_size": width if not legacy and task == "masked-lm" else rng.choice([width, 5]),
        "position_biased_input": rng.choice([True, False]),
        "relative_attention": rng.choice([True, True, True, False]),
        "pos_att_type": rng.choice([["c2p", "p2c"], "p2c|c2p", ["c2p"], ["p2c"], [], None]),
        "max_relative_positions": rng.choice([-1, 6, 40]),
        "pooler_hidden_act": rng.choice(["gelu", "tanh"]),
        "legacy": legacy,
        "tie_word_embeddings": rng.choice([True, False]),
        "num_labels": 2 if task == "question-answering" else rng.choice([2, 5]),
        "pad_token_id": 0,
    }


REFERENCE = Reference(
    "deberta",
    {
        "masked-lm": transformers.DebertaForMaskedLM,
        "sequence-classification": transformers.DebertaForSequenceClassification,
        "token-classification": transformers.DebertaForTokenClassification,
        "question-answering": transformers.DebertaForQuestionAnswering,
        "features": transformers.DebertaModel,
    },
    draw_disentangled,
    transformers.DebertaConfig,
)
