"""mT5 against transformers."""

from __future__ import annotations

import transformers

from .family_t5 import T5Reference, draw_t5

REFERENCE = T5Reference(
    "mt5",
    {
        "seq2seq-lm": transformers.MT5ForConditionalGeneration,
        "sequence-classification": transformers.MT5ForSequenceClassification,
        "token-classification": transformers.MT5ForTokenClassification,
        "question-answering": transformers.MT5ForQuestionAnswering,
        "features": transformers.MT5Model,
        "encoder-features": transformers.MT5EncoderModel,
    },
    draw_t5,
    transformers.MT5Config,
    generates=("seq2seq-lm",),
)
