"""Everything a model can be taught here, by the names that recipes use."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection, Mapping
from typing import Any, get_type_hints

from clearhead.errors import ConfigError, did_you_mean
from clearhead.schema import field_of
from clearhead.train.data.types import Batch, Example, Record
from clearhead.train.objectives.base import Objective

# name -> module and class; a module is read when it is asked for
OBJECTIVES = {
    "causal-lm": "causal:CausalLM",
    "recurrent-lm": "recurrent_lm:RecurrentLM",
    "retrieval-lm": "retrieval_lm:RetrievalLM",
    "masked-lm": "masked:MaskedLM",
    "bidirectional-lm": "bidirectional:BidirectionalLM",
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
    "word-vectors": "word_vectors:WordVectorTraining",
    "distillation": "distillation:Distillation",
    "classification-distillation": "distillation:ClassificationDistillation",
    "sentence-softmax": "sentence_pairs:SentenceSoftmax",
    "sentence-similarity": "sentence_pairs:SentenceSimilarity",
    "sentence-contrastive": "sentence_pairs:SentenceContrastive",
    "sentence-triplet": "sentence_pairs:SentenceTriplet",
    "image-text-contrastive": "image_text:ImageTextContrastive",
}
LOADED = ("source_tokenizer", "teacher")  # options that a recipe names, and that are loaded from there


def objective_class(name: str) -> type[Objective]:
    if name not in OBJECTIVES:
        raise ConfigError(
            f"There is no objective {name!r}.{did_you_mean(name, OBJECTIVES)} There are: {', '.join(OBJECTIVES)}."
        )
    module, _, class_name = OBJECTIVES[name].partition(":")
    kind: type[Objective] = getattr(importlib.import_module(f"clearhead.train.objectives.{module}"), class_name)
    return kind


def make_objective(name: str, codec: Any, length: int, **options: Any) -> Objective:
    """An objective by its name, with the options of its class."""
    kind = objective_class(name)
    check_options(kind, options)
    return kind(codec, length, **options)


def check_options(kind: type[Objective], options: Collection[str]) -> None:
    known = options_of(kind)
    for name in options:
        if name not in known:
            has = f"It has: {', '.join(known)}." if known else "It has none."
            raise ConfigError(f"The objective {kind.name} has no option {name!r}.{did_you_mean(name, known)} {has}")
    for name, option in known.items():
        if option.default is option.empty and name not in options:
            raise ConfigError(f"The objective {kind.name} cannot do without {name!r}: set objective.{name}.")


def typed_options(kind: type[Objective], options: Mapping[str, Any]) -> dict[str, Any]:
    """What a recipe says of an objective, in the types of its class: 1e-1 is a number, "maybe" is not true or false."""
    check_options(kind, options)
    types = {name: option.annotation for name, option in options_of(kind).items()} | dict.fromkeys(LOADED, str | None)

    def error(sentence: str) -> ConfigError:
        return ConfigError(f"the objective {kind.name}: {sentence}")

    return {key: field_of(key, types[key]).check(value, spelled=True, error=error) for key, value in options.items()}


def options_of(kind: type[Objective]) -> dict[str, inspect.Parameter]:
    """What a recipe may set: the keyword arguments of the class, and of its parents where it hands them on."""
    known: dict[str, inspect.Parameter] = {}
    for cls in kind.__mro__:
        if "__init__" not in cls.__dict__ or cls is object:
            continue
        parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
        types = get_type_hints(cls.__init__, include_extras=True)  # type: ignore[misc]
        keyword_only = [p.replace(annotation=types[p.name]) for p in parameters if p.kind is p.KEYWORD_ONLY]
        known |= {p.name: p for p in keyword_only if p.name not in known}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return known


__all__ = [
    "OBJECTIVES", "Batch", "Example", "Objective", "Record", "check_options", "make_objective", "objective_class",
    "options_of", "typed_options",
]  # fmt: skip
