"""RoBERTa against transformers."""

from __future__ import annotations

import random
from typing import Any

import transformers

from .family_bert import draw_bert
from .reference import Reference


def draw_roberta(rng: random.Random, task: str) -> dict[str, Any]:
    pad = rng.choice([0, 1, 2])
    return draw_bert(rng, task) | {
        "pad_token_id": pad,
        "bos_token_id": (pad + 1) % 3,
        "eos_token_id": (pad + 2) % 3,
    }


def classes(prefix: str, without: str | None = None) -> dict[str, Any]:
    names = {
        "masked-lm": "ForMaskedLM",
        "causal-lm": "ForCausalLM",
        "sequence-classification": "ForSequenceClassification",
        "token-classification": "ForTokenClassification",
        "question-answering": "ForQuestionAnswering",
        "multiple-choice": "ForMultipleChoice",
        "features": "Model",
    }
    return {task: getattr(transformers, prefix + name) for task, name in names.items() if task != without}


REFERENCE = Reference("roberta", classes("Roberta"), draw_roberta, transformers.RobertaConfig, generates=("causal-lm",))
