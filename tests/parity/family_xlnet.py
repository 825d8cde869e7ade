"""XLNet against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .reference import Reference


def draw_xlnet(rng: random.Random, task: str) -> dict[str, Any]:
    heads = rng.choice([1, 2, 3, 4])
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "d_model": heads * rng.choice([4, 6, 8]),
        "n_head": heads,
        "n_layer": rng.choice([1, 2, 3]),
        "d_inner": rng.choice([16, 37, 64]),
        "ff_activation": rng.choice(["gelu", "relu", "silu", "gelu_new"]),
        "attn_type": "bi",  # the reference cannot mask a batch that reads one way: see test_xlnet.py
        "layer_norm_eps": rng.choice([1e-12, 1e-5, 1e-3]),
        "clamp_len": rng.choice([-1, 0, 3]),
        "same_length": rng.choice([True, False]),
        "mem_len": rng.choice([None, 0, 4, 50]),
        "reuse_len": rng.choice([None, 0, 5]),
        "use_mems_eval": rng.choice([True, False]),
        "summary_type": rng.choice(["last", "first", "mean", "cls_index"]),
        "summary_use_proj": rng.choice([True, True, False]),
        "summary_activation": rng.choice(["tanh", "relu", ""]),
        "tie_word_embeddings": rng.choice([True, False]),
        "num_labels": 2 if task == "question-answering" else rng.choice([1, 2, 5]),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


REFERENCE = Reference(
    "xlnet",
    {
        "permutation-lm": transformers.XLNetLMHeadModel,
        "sequence-classification": transformers.XLNetForSequenceClassification,
        "token-classification": transformers.XLNetForTokenClassification,
        "question-answering": transformers.XLNetForQuestionAnsweringSimple,
        "multiple-choice": transformers.XLNetForMultipleChoice,
        "features": transformers.XLNetModel,
    },
    draw_xlnet,
    transformers.XLNetConfig,
    takes_positions=False,
)
