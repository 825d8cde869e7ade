"""The families, each in a file of its own: its config, its assembly from clearhead.nn, its checkpoint names."""

from __future__ import annotations

import importlib
from typing import cast

from clearhead.errors import ConfigError, did_you_mean
from clearhead.models.config import Config
from clearhead.models.family import Family
from clearhead.models.model import Model
from clearhead.models.output import Output
from clearhead.schema import shown

# `model_type` in config.json -> the module that holds the family. To add a family, add a line.
FAMILIES = {
    "word-vectors": "clearhead.models.word_vectors",
    "rnn": "clearhead.models.rnn",
    "rnn-seq2seq": "clearhead.models.rnn_seq2seq",
    "elmo": "clearhead.models.elmo",
    "awd-lstm": "clearhead.models.awd_lstm",
    "transformer": "clearhead.models.transformer",
    "bert": "clearhead.models.bert",
    "roberta": "clearhead.models.roberta",
    "xlm-roberta": "clearhead.models.xlm_roberta",
    "xlm-roberta-xl": "clearhead.models.xlm_roberta_xl",
    "mpnet": "clearhead.models.mpnet",
    "distilbert": "clearhead.models.distilbert",
    "electra": "clearhead.models.electra",
    "albert": "clearhead.models.albert",
    "big_bird": "clearhead.models.big_bird",
    "gpt2": "clearhead.models.gpt2",
    "gpt3": "clearhead.models.gpt3",
    "retro": "clearhead.models.retro",
    "gpt_neo": "clearhead.models.gpt_neo",
    "gptj": "clearhead.models.gptj",
    "openai-gpt": "clearhead.models.openai_gpt",
    "ctrl": "clearhead.models.ctrl",
    "deberta": "clearhead.models.deberta",
    "deberta-v2": "clearhead.models.deberta_v2",
    "xlm": "clearhead.models.xlm",
    "bart": "clearhead.models.bart",
    "mbart": "clearhead.models.mbart",
    "m2m_100": "clearhead.models.m2m_100",
    "marian": "clearhead.models.marian",
    "pegasus": "clearhead.models.pegasus",
    "bigbird_pegasus": "clearhead.models.bigbird_pegasus",
    "transfo-xl": "clearhead.models.transfo_xl",
    "xlnet": "clearhead.models.xlnet",
    "t5": "clearhead.models.t5",
    "mt5": "clearhead.models.mt5",
    "umt5": "clearhead.models.umt5",
    "clip": "clearhead.models.clip",
    "clip_vision_model": "clearhead.models.clip_vision",
    "clip_text_model": "clearhead.models.clip_text",
}


def family(name: str) -> Family:
    if name not in FAMILIES:
        raise ConfigError(
            f"Clearhead does not know the family {shown(name)}.{did_you_mean(name[:60], FAMILIES)} "
            f"It knows: {', '.join(sorted(FAMILIES))}."
        )
    module = importlib.import_module(FAMILIES[name])
    return cast(Family, module.FAMILY)


def families() -> list[Family]:
    return [family(name) for name in FAMILIES]


def presets() -> dict[str, Family]:
    """Every published size by name, with the family it belongs to."""
    return {name: fam for fam in families() for name in fam.presets}


__all__ = ["FAMILIES", "Config", "Family", "Model", "Output", "families", "family", "presets"]
