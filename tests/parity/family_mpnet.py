"""MPNet against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .family_bert import draw_bert
from .family_roberta import classes
from .reference import Reference

NOT_ITS = ("type_vocab_size", "classifier_dropout", "is_decoder", "add_cross_attention")


def draw_mpnet(rng: random.Random, task: str) -> dict[str, Any]:
    values = {key: value for key, value in draw_bert(rng, task).items() if key not in NOT_ITS}
    return values | {"pad_token_id": 1, "bos_token_id": 0}


REFERENCE = Reference("mpnet", classes("MPNet", without="causal-lm"), draw_mpnet, transformers.MPNetConfig)
