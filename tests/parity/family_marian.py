"""Marian against transformers: one vocabulary, or two of different sizes."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .family_bart import Seq2SeqReference, draw_seq2seq
from .reference import older_than


def draw_marian(rng: random.Random, task: str) -> dict[str, Any]:
    drawn = draw_seq2seq(rng, task)
    shared = task == "causal-lm" or rng.choice([True, False])
    shared = shared or older_than("5.18")  # its beam search took the source's vocabulary for the target's
    return {
        **drawn,
        "share_encoder_decoder_embeddings": shared,
        "decoder_vocab_size": rng.choice([None, drawn["vocab_size"]]) if shared else rng.choice([29, 83]),
        "decoder_start_token_id": 0,
        "bad_words_ids": rng.choice([None, [[0]], [[0], [4, 5], [2]]]),
    }


REFERENCE = Seq2SeqReference(
    "marian",
    {
        "seq2seq-lm": transformers.MarianMTModel,
        "causal-lm": transformers.MarianForCausalLM,
        "features": transformers.MarianModel,
    },
    draw_marian,
    transformers.MarianConfig,
    takes_positions=False,
    generates=("seq2seq-lm",),
)
