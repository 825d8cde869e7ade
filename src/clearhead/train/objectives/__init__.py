"""Everything a model can be taught here, by the names that recipes use."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import Any

from clearhead.errors import ConfigError, did_you_mean
from clearhead.text import Tokenizer
from clearhead.train.objectives.base import Batch, Example, Objective, Record

# name -> module and class; a module is read when it is asked for
OBJECTIVES = {
    "causal-lm": "causal:CausalLM",
    "masked-lm": "masked:MaskedLM",
    "bert-pretraining": "sentences:NextSentence",
    "sentence-order": "sentences:SentenceOrder",
    "translation-lm": "translation_lm:TranslationLM",
    "replaced-token": "replaced:ReplacedTokens",
    "permutation-lm": "permutation:PermutationLM",
    "span-corruption": "spans:SpanCorruption",
    "denoising": "denoising:Denoising",
    "seq2seq": "seq2seq:Seq2Seq",
    "prompted-lm": "seq2seq:PromptedLM",
    "classification": "classification:Classification",
    "tagging": "tagging:Tagging",
    "question-answering": "question_answering:QuestionAnswering",
    "multiple-choice": "multiple_choice:MultipleChoice",
    "gpt-classification": "gpt_tasks:GPTClassification",
    "gpt-entailment": "gpt_tasks:GPTEntailment",
    "gpt-similarity": "gpt_tasks:GPTSimilarity",
    "gpt-multiple-choice": "gpt_tasks:GPTMultipleChoice",
    "distillation": "distillation:Distillation",
    "classification-distillation": "distillation:ClassificationDistillation",
    "sentence-softmax": "sentence_pairs:SentenceSoftmax",
    "sentence-similarity": "sentence_pairs:SentenceSimilarity",
    "sentence-contrastive": "sentence_pairs:SentenceContrastive",
    "sentence-triplet": "sentence_pairs:SentenceTriplet",
}


def objective_class(name: str) -> type[Objective]:
    if name not in OBJECTIVES:
        raise ConfigError(
            f"There is no objective {name!r}.{did_you_mean(name, OBJECTIVES)} There are: {', '.join(OBJECTIVES)}."
        )
    module, _, own = OBJECTIVES[name].partition(":")
    found: type[Objective] = getattr(importlib.import_module(f"clearhead.train.objectives.{module}"), own)
    return found


def objective(name: str, tokenizer: Tokenizer, length: int, **options: Any) -> Objective:
    """An objective by its name, with the options of its class."""
    kind = objective_class(name)
    check_options(kind, options)
    return kind(tokenizer, length, **options)


def check_options(kind: type[Objective], options: Iterable[str]) -> None:
    known = options_of(kind)
    for option in options:
        if option not in known:
            has = f"It has: {', '.join(known)}." if known else "It has none."
            near = did_you_mean(option, known)
            raise ConfigError(f"The objective {kind.name} has no option {option!r}.{near} {has}")


def options_of(kind: type[Objective]) -> list[str]:
    """What a recipe may set: the keyword arguments of the class, and of its parents where it hands them on."""
    known: list[str] = []
    for step in kind.__mro__:
        if "__init__" not in step.__dict__ or step is object:
            continue
        parameters = inspect.signature(step.__init__).parameters.values()  # type: ignore[misc]
        known += [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in known]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return known


__all__ = [
    "OBJECTIVES", "Batch", "Example", "Objective", "Record", "check_options", "objective", "objective_class",
    "options_of",
]  # fmt: skip
