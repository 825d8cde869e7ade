"""mBART against transformers."""

from __future__ import annotations

import transformers

from .family_bart import Seq2SeqReference, draw_bart

REFERENCE = Seq2SeqReference(
    "mbart",
    {
        "seq2seq-lm": transformers.MBartForConditionalGeneration,
        "sequence-classification": transformers.MBartForSequenceClassification,
        "question-answering": transformers.MBartForQuestionAnswering,
        "causal-lm": transformers.MBartForCausalLM,
        "features": transformers.MBartModel,
    },
    draw_bart,
    transformers.MBartConfig,
    takes_positions=False,
    generates=("seq2seq-lm",),
)
