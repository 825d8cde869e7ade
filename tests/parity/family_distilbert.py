"""DistilBERT against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .reference import Reference


def draw_distilbert(rng: random.Random, task: str) -> dict[str, Any]:
    heads = rng.choice([1, 2, 3, 4])
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "dim": heads * rng.choice([4, 6, 8]),
        "n_heads": heads,
        "n_layers": rng.choice([1, 2, 3]),
        "hidden_dim": rng.choice([16, 37, 64]),
        "activation": rng.choice(["gelu", "gelu_new", "relu", "silu"]),
        "max_position_embeddings": rng.choice([24, 33]),
        "sinusoidal_pos_embds": rng.choice([True, False]),
        "qa_dropout": rng.choice([0.0, 0.3]),
        "seq_classif_dropout": rng.choice([0.0, 0.3]),
        "tie_word_embeddings": rng.choice([True, False]),
        "num_labels": 2 if task == "question-answering" else rng.choice([2, 5]),
        "pad_token_id": 0,
    }


REFERENCE = Reference(
    "distilbert",
    {
        "masked-lm": transformers.DistilBertForMaskedLM,
        "sequence-classification": transformers.DistilBertForSequenceClassification,
        "token-classification": transformers.DistilBertForTokenClassification,
        "question-answering": transformers.DistilBertForQuestionAnswering,
        "multiple-choice": transformers.DistilBertForMultipleChoice,
        "features": transformers.DistilBertModel,
    },
    draw_distilbert,
    transformers.DistilBertConfig,
)
