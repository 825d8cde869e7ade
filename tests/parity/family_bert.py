"""BERT against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .reference import Reference


def draw_bert(rng: random.Random, task: str) -> dict[str, Any]:
    heads = rng.choice([1, 2, 3, 4])
    decoder = task == "causal-lm"
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "hidden_size": heads * rng.choice([4, 6, 8]),
        "num_attention_heads": heads,
        "num_hidden_layers": rng.choice([1, 2, 3]),
        "intermediate_size": rng.choice([16, 37, 64]),
        "hidden_act": rng.choice(["gelu", "gelu_new", "relu", "silu", "mish", "gelu_10"]),
        "max_position_embeddings": rng.choice([24, 33]),
        "type_vocab_size": rng.choice([1, 2, 3]),
        "layer_norm_eps": rng.choice([1e-12, 1e-5, 1e-3]),
        "classifier_dropout": rng.choice([None, 0.2]),
        "tie_word_embeddings": rng.choice([True, False]),
        "is_decoder": decoder,
        "add_cross_attention": decoder and rng.choice([True, False]),
        "num_labels": 2 if task == "question-answering" else rng.choice([2, 5]),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


REFERENCE = Reference(
    "bert",
    {
        "masked-lm": transformers.BertForMaskedLM,
        "pretraining": transformers.BertForPreTraining,
        "next-sentence": transformers.BertForNextSentencePrediction,
        "sequence-classification": transformers.BertForSequenceClassification,
        "token-classification": transformers.BertForTokenClassification,
        "question-answering": transformers.BertForQuestionAnswering,
        "multiple-choice": transformers.BertForMultipleChoice,
        "causal-lm": transformers.BertLMHeadModel,
        "features": transformers.BertModel,
    },
    draw_bert,
    transformers.BertConfig,
    generates=("causal-lm",),
)
