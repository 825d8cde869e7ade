"""T5 against transformers."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from .reference import Reference


@dataclass
class T5Reference(Reference):
    """transformers 5 ties the output matrix of every model it makes; the published ones of version 1.1 are not tied.

    So an untied reference is one whose matrix is put in afterwards, and that says so in config.json as they do.
    """

    takes_positions: bool = False

    def config(self, rng: random.Random, task: str) -> Any:
        values = self.draw(rng, task)
        config = self.config_class(**values)
        config.drawn_tied = values["tie_word_embeddings"]
        return config

    def build(self, config: Any, task: str) -> nn.Module:
        tied = config.__dict__.pop("drawn_tied")
        model = super().build(config, task)
        with torch.no_grad():  # no score is divided by √d, so queries are narrower by it, as T5 draws them
            for module in model.modules():
                if isinstance(getattr(module, "q", None), nn.Linear):
                    module.q.weight.mul_(config.d_kv**-0.5)
        config.tie_word_embeddings = tied
        model.config.tie_word_embeddings = tied
        if task == "seq2seq-lm" and not tied:
            untie(model)
        return model

    def open(self, folder: Path, task: str) -> nn.Module:
        model = super().open(folder, task)
        model.config.tie_word_embeddings = json.loads((folder / "config.json").read_text())["tie_word_embeddings"]
        return model


def untie(model: Any) -> None:
    weight = model.lm_head.weight
    model.lm_head.weight = nn.Parameter(weight.detach() + torch.randn_like(weight))


def draw_t5(rng: random.Random, task: str) -> dict[str, Any]:
    layers, decoder_layers = rng.choice([1, 2, 3]), rng.choice([None, 1, 2, 3])
    if task == "seq2seq-lm" and decoder_layers is not None:
        # the reference's cache has room for as many layers as the encoder has; the other tasks draw deeper decoders
        decoder_layers = min(layers, decoder_layers)
    draw = {
        "vocab_size": rng.choice([31, 50, 77]),
        "d_model": rng.choice([8, 12, 15]),
        "d_kv": rng.choice([3, 4, 8]),
        "d_ff": rng.choice([16, 37]),
        "num_layers": layers,
        "num_decoder_layers": decoder_layers,
        "num_heads": rng.choice([1, 2, 3, 4]),
        "relative_attention_num_buckets": rng.choice([4, 8, 32]),
        "relative_attention_max_distance": rng.choice([20, 128]),
        "feed_forward_proj": rng.choice(["relu", "gelu", "gated-gelu", "gated-silu", "gated-relu"]),
        "layer_norm_epsilon": rng.choice([1e-6, 1e-3]),
        "dropout_rate": rng.choice([0.0, 0.1]),
        "classifier_dropout": rng.choice([0.0, 0.2]),
        "tie_word_embeddings": rng.choice([True, False]),
        "num_labels": 2 if task == "question-answering" else rng.choice([2, 5]),
        "pad_token_id": 0,
        "eos_token_id": rng.choice([1, 2]),
        "decoder_start_token_id": rng.choice([0, 0, 3]),
    }
    if rng.random() < 0.25:  # as a file may say, against what feed_forward_proj names
        draw["dense_act_fn"] = "tanh"
    return draw


REFERENCE = T5Reference(
    "t5",
    {
        "seq2seq-lm": transformers.T5ForConditionalGeneration,
        "sequence-classification": transformers.T5ForSequenceClassification,
        "token-classification": transformers.T5ForTokenClassification,
        "question-answering": transformers.T5ForQuestionAnswering,
        "features": transformers.T5Model,
        "encoder-features": transformers.T5EncoderModel,
    },
    draw_t5,
    transformers.T5Config,
    generates=("seq2seq-lm",),
)
