"""ALBERT against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .family_bert import draw_bert
from .family_roberta import classes
from .reference import Reference


def draw_albert(rng: random.Random, task: str) -> dict[str, Any]:
    values = draw_bert(rng, task)
    layers = rng.choice([1, 2, 3, 5])
    del values["is_decoder"], values["add_cross_attention"], values["classifier_dropout"]
    return values | {
        "embedding_size": rng.choice([5, 12, values["hidden_size"]]),
        "num_hidden_layers": layers,
        "num_hidden_groups": rng.choice([1, min(2, layers), layers]),
        "inner_group_num": rng.choice([1, 1, 2]),
        "classifier_dropout_prob": rng.choice([0.0, 0.2]),
        "num_labels": 2 if task in ("pretraining", "question-answering") else rng.choice([2, 5]),
    }


CLASSES = {"pretraining": transformers.AlbertForPreTraining, **classes("Albert", without="causal-lm")}

REFERENCE = Reference("albert", CLASSES, draw_albert, transformers.AlbertConfig)
