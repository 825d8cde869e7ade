"""BigBird against transformers, on short texts, which both give full attention. Long ones: test_block_sparse.py."""

from __future__ import annotations

import random
from typing import Any

import torch
import transformers
from torch import nn

from tests.tiny import shake

from .reference import Reference


def draw_big_bird(rng: random.Random, task: str) -> dict[str, Any]:
    heads = rng.choice([1, 2, 3, 4])
    return {
        "vocab_size": rng.choice([31, 50, 77]),
        "hidden_size": heads * rng.choice([4, 6, 8]),
        "num_attention_heads": heads,
        "num_hidden_layers": rng.choice([1, 2, 3]),
        "intermediate_size": rng.choice([16, 37, 64]),
        "hidden_act": rng.choice(["gelu_new", "gelu", "relu", "silu"]),
        "max_position_embeddings": rng.choice([24, 33]),
        "type_vocab_size": rng.choice([1, 2, 3]),
        "layer_norm_eps": rng.choice([1e-12, 1e-5, 1e-3]),
        "classifier_dropout": rng.choice([None, 0.2]),
        "attention_type": rng.choice(["block_sparse", "original_full"]),
        "block_size": rng.choice([2, 4, 64]),
        "num_random_blocks": rng.choice([1, 3]),
        "use_bias": rng.choice([True, False]),
        "rescale_embeddings": rng.choice([True, False]),
        "tie_word_embeddings": rng.choice([True, False]),
        "is_decoder": task == "causal-lm",
        "num_labels": 2 if task == "question-answering" else rng.choice([2, 5]),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "sep_token_id": 2,  # never in the texts: a question's scores of -1e6 would hide all differences
    }


def looks_ahead() -> bool:
    """Whether the reference's decoder sees words that are not written yet: does the last one move the first's scores?

    transformers 5.17 gave a decoder the mask of an encoder; from 5.18 on it is causal again.
    """
    config = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1}
    decoder = transformers.BigBirdConfig(**config, attention_type="original_full", is_decoder=True)
    with torch.random.fork_rng():
        model = shake(transformers.BigBirdForCausalLM(decoder))
    with torch.no_grad():
        one, other = model(torch.tensor([[3, 4, 5], [3, 4, 6]])).logits[:, 0]
    return not torch.allclose(one, other)


class BigBirdReference(Reference):
    def build(self, config: Any, task: str) -> nn.Module:
        """The reference turns to full attention at its first short text, and shows its attention only from then on."""
        model = super().build(config, task)
        ids = torch.ones(1, 1, 4, dtype=torch.long) if task == "multiple-choice" else torch.ones(1, 4, dtype=torch.long)
        with torch.no_grad():
            model(ids)
        return model


REFERENCE = BigBirdReference(
    "big_bird",
    {
        "masked-lm": transformers.BigBirdForMaskedLM,
        "pretraining": transformers.BigBirdForPreTraining,
        "sequence-classification": transformers.BigBirdForSequenceClassification,
        "token-classification": transformers.BigBirdForTokenClassification,
        "question-answering": transformers.BigBirdForQuestionAnswering,
        "multiple-choice": transformers.BigBirdForMultipleChoice,
        "causal-lm": transformers.BigBirdForCausalLM,
        "features": transformers.BigBirdModel,
    },
    draw_big_bird,
    transformers.BigBirdConfig,
    generates=("causal-lm",),
    faults={"causal-lm": "BigBird's decoder looks ahead"} if looks_ahead() else {},
)
