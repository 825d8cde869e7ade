"""The "double heads" of GPT and GPT-2 as a reference for the task multiple-choice.

Published: `logits` are the words', `mc_logits` the choices'; here `logits` are what the task asks for. The classes keep
their published names, which go into the saved config.
"""

from __future__ import annotations

import random
from typing import Any

import transformers
from transformers.utils import ModelOutput


class _Choosing:
    """Masks and positions flat, as the published forward wants them; hidden states flat, as the harness compares."""

    def forward(self, *, labels=None, lm_labels=None, **given):
        for name in ("attention_mask", "position_ids"):
            if name in given:
                given[name] = given[name].flatten(0, 1)
        out = super().forward(mc_labels=labels, labels=lm_labels, **given)
        states = out.hidden_states and tuple(state.flatten(0, -3) for state in out.hidden_states)
        losses = [loss for loss in (out.loss, out.mc_loss) if loss is not None]
        return ModelOutput(
            loss=sum(losses) if losses else None,
            logits=out.mc_logits,
            lm_logits=out.logits,
            hidden_states=states,
            attentions=out.attentions,
        )


class GPT2DoubleHeadsModel(_Choosing, transformers.GPT2DoubleHeadsModel):
    pass


class OpenAIGPTDoubleHeadsModel(_Choosing, transformers.OpenAIGPTDoubleHeadsModel):
    pass


def draw_summary(rng: random.Random) -> dict[str, Any]:
    return {
        # the other types, which take a choice for a token when there are several: see test_double_heads.py
        "summary_type": "cls_index",
        "summary_activation": rng.choice([None, "tanh", "relu"]),
        "summary_first_dropout": rng.choice([0.0, 0.1]),
        "num_labels": 1,
    }
