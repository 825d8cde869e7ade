"""BART against transformers, and what the references of its relatives share with it."""

from __future__ import annotations

import random
from typing import Any

import transformers
from torch import nn

from .reference import Reference


class Seq2SeqReference(Reference):
    """Adds noise to the constant that published models add to their scores; it starts at zero and never learns."""

    def build(self, config: Any, task: str) -> nn.Module:
        model = super().build(config, task)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.3)
        return model


def draw_seq2seq(rng: random.Random, task: str) -> dict[str, Any]:
    """What BART's relatives have in common. The two sides differ wherever they can."""
    heads, decoder_heads = rng.choice([(1, 2), (2, 2), (3, 1), (2, 4)])
    width = {(3, 1): 3}.get((heads, decoder_heads), 4) * rng.choice([2, 4, 6])
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "d_model": width,
        # a decoder alone: transformers makes its cache as deep as the encoder that is not there
        "encoder_layers": 3 if task == "causal-lm" else rng.choice([1, 2, 3]),
        "decoder_layers": rng.choice([1, 2, 3]),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": decoder_heads,
        "encoder_ffn_dim": rng.choice([16, 37]),
        "decoder_ffn_dim": rng.choice([19, 40]),
        "activation_function": rng.choice(["gelu", "relu", "swish", "gelu_new"]),
        "max_position_embeddings": rng.choice([24, 33]),
        "scale_embedding": rng.choice([True, False]),
        "tie_word_embeddings": rng.choice([True, True, False]),
        "dropout": rng.choice([0.0, 0.1]),
        "attention_dropout": rng.choice([0.0, 0.2]),
        "activation_dropout": rng.choice([0.0, 0.3]),
        "encoder_layerdrop": rng.choice([0.0, 0.5]),
        "decoder_layerdrop": rng.choice([0.0, 0.5]),
        "init_std": rng.choice([0.02, 0.1]),
        "num_labels": rng.choice([1, 2, 5]) if task == "sequence-classification" else rng.choice([2, 3]),
        "bos_token_id": 1,
        "pad_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": rng.choice([1, 2]),
        "forced_bos_token_id": rng.choice([None, None, 5]),
        "forced_eos_token_id": rng.choice([None, 2]),
    }


def draw_bart(rng: random.Random, task: str) -> dict[str, Any]:
    return {**draw_seq2seq(rng, task), "classifier_dropout": rng.choice([0.0, 0.2])}


REFERENCE = Seq2SeqReference(
    "bart",
    {
        "seq2seq-lm": transformers.BartForConditionalGeneration,
        "sequence-classification": transformers.BartForSequenceClassification,
        "question-answering": transformers.BartForQuestionAnswering,
        "causal-lm": transformers.BartForCausalLM,
        "features": transformers.BartModel,
    },
    draw_bart,
    transformers.BartConfig,
    takes_positions=False,
    generates=("seq2seq-lm",),
)
