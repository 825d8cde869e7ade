"""UMT5 against transformers."""

from __future__ import annotations

import transformers

from .family_t5 import T5Reference, draw_t5

REFERENCE = T5Reference(
    "umt5",
    {
        "seq2seq-lm": transformers.UMT5ForConditionalGeneration,
        "sequence-classification": transformers.UMT5ForSequenceClassification,
        "token-classification": transformers.UMT5ForTokenClassification,
        "question-answering": transformers.UMT5ForQuestionAnswering,
        "features": transformers.UMT5Model,
        "encoder-features": transformers.UMT5EncoderModel,
    },
    draw_t5,
    transformers.UMT5Config,
    generates=("seq2seq-lm",),
)
