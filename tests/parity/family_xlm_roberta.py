"""XLM-RoBERTa against transformers."""

import transformers

from .family_roberta import classes, draw_roberta
from .reference import Reference

REFERENCE = Reference(
    "xlm-roberta", classes("XLMRoberta"), draw_roberta, transformers.XLMRobertaConfig, generates=("causal-lm",)
)
