"""BigBird-Pegasus against transformers, on short texts. Long ones: test_block_sparse.py."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .family_bart import Seq2SeqReference, draw_seq2seq


def draw_bigbird_pegasus(rng: random.Random, task: str) -> dict[str, Any]:
    return {
        **draw_seq2seq(rng, task),
        "classifier_dropout": rng.choice([0.0, 0.2]),
        "attention_type": rng.choice(["block_sparse", "original_full"]),
        "block_size": rng.choice([2, 4, 64]),
        "num_random_blocks": rng.choice([1, 3]),
        "use_bias": rng.choice([True, False]),
    }


REFERENCE = Seq2SeqReference(
    "bigbird_pegasus",
    {
        "seq2seq-lm": transformers.BigBirdPegasusForConditionalGeneration,
        "sequence-classification": transformers.BigBirdPegasusForSequenceClassification,
        "question-answering": transformers.BigBirdPegasusForQuestionAnswering,
        "causal-lm": transformers.BigBirdPegasusForCausalLM,
        "features": transformers.BigBirdPegasusModel,
    },
    draw_bigbird_pegasus,
    transformers.BigBirdPegasusConfig,
    takes_positions=False,
    generates=("seq2seq-lm",),
)
