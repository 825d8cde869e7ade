"""M2M-100 (and NLLB, which is the same network) against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .family_bart import Seq2SeqReference, draw_seq2seq


def draw_m2m(rng: random.Random, task: str) -> dict[str, Any]:
    return {**draw_seq2seq(rng, task), "pad_token_id": rng.choice([0, 1]), "bos_token_id": 0}


REFERENCE = Seq2SeqReference(
    "m2m_100",
    {
        "seq2seq-lm": transformers.M2M100ForConditionalGeneration,
        "features": transformers.M2M100Model,
    },
    draw_m2m,
    transformers.M2M100Config,
    takes_positions=False,
    generates=("seq2seq-lm",),
)
