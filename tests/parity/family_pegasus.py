"""Pegasus against transformers."""

from __future__ import annotations

import transformers

from .family_bart import Seq2SeqReference, draw_seq2seq

REFERENCE = Seq2SeqReference(
    "pegasus",
    {
        "seq2seq-lm": transformers.PegasusForConditionalGeneration,
        "causal-lm": transformers.PegasusForCausalLM,
        "features": transformers.PegasusModel,
    },
    draw_seq2seq,
    transformers.PegasusConfig,
    takes_positions=False,
    generates=("seq2seq-lm",),
)
