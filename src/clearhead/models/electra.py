"""ELECTRA: two BERTs, one that fills masked words in and one that tells which words were replaced."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from clearhead.models import bert
from clearhead.models.checkpoint import CheckpointMap, Entry, linear
from clearhead.models.family import Family
from clearhead.models.heads import (
    ChoiceHead,
    FeaturesHead,
    Head,
    LanguageHead,
    ReplacedHead,
    SequenceHead,
    Summary,
    WordTransform,
)
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Stack
from clearhead.nn.linear import Linear


@dataclass(kw_only=True)
class ElectraConfig(bert.BertConfig):
    family: ClassVar[str] = "electra"
    # how large the other of the two models was
    inert: ClassVar[frozenset[str]] = bert.BertConfig.inert | {"generator_size"}
    # A projection to labels would not fit the multiple-choice head that follows it.
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {"summary_proj_to_labels": (False, None)}

    embedding_size: int = 128  # where it differs from hidden_size, a matrix leads from one to the other
    hidden_size: int = 256
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    # the summary_* options shape the multiple-choice head; "cls_index" without an index is the last position
    summary_type: Literal["first", "last", "mean", "cls_index"] = "first"
    summary_use_proj: bool = True
    summary_activation: str | None = "gelu"
    summary_first_dropout: float = 0.0
    summary_last_dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "embedding_size")
        self._probabilities("summary_first_dropout", "summary_last_dropout")


def build(config: ElectraConfig, task: str) -> TokenModel:
    narrow, width = config.embedding_size, config.hidden_size
    embed = bert.embed(config, narrow, project=Linear(narrow, width) if narrow != width else None)
    blocks = [bert.block(config) for _ in range(config.num_hidden_layers)]
    return TokenModel(config, Stack(embed, blocks, causal=config.is_decoder), head(config, task))


def head(config: ElectraConfig, task: str) -> Head:
    narrow, width = config.embedding_size, config.hidden_size
    if task in ("masked-lm", "causal-lm"):  # always gelu, whatever the layers use
        transform = WordTransform(width, "gelu", config.layer_norm_eps, out_width=narrow)
        return LanguageHead(narrow, config.vocab_size, bias=True, shift=task == "causal-lm", transform=transform)
    if task == "replaced-token":
        return ReplacedHead(width, config.hidden_act)
    if task == "sequence-classification":
        dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        return SequenceHead(config, Summary(config, activation="gelu", dropout=dropout), dropout)
    if task == "multiple-choice":
        summary = Summary(
            config,
            config.summary_type if config.summary_type in ("first", "mean") else "final",
            activation=config.summary_activation or "linear",
            dropout=config.summary_first_dropout,
            matrix=config.summary_use_proj,
        )
        return ChoiceHead(summary, width, config.summary_last_dropout)
    if task == "features":
        return FeaturesHead()
    return bert.head(config, task)


def checkpoint_map(config: ElectraConfig, task: str) -> CheckpointMap:
    return bert.map_of(config, _entries(config, task), prefix="electra.")


def _entries(config: ElectraConfig, task: str) -> Iterator[Entry]:
    yield from bert.body_entries(config)
    if config.embedding_size != config.hidden_size:
        yield from linear("stack.embed.project", "embeddings_project")
    if task in ("masked-lm", "causal-lm"):
        yield from bert.word_entries(
            config,
            "head",
            dense="generator_predictions.dense",
            norm="generator_predictions.LayerNorm",
            decoder="generator_lm_head",
        )
    elif task == "replaced-token":
        yield from linear("head.dense", "discriminator_predictions.dense", in_body=False)
        yield from linear("head.output", "discriminator_predictions.dense_prediction", in_body=False)
    elif task == "sequence-classification":
        yield from linear("head.pooler.dense", "classifier.dense", in_body=False)
        yield from linear("head.output", "classifier.out_proj", in_body=False)
    elif task == "multiple-choice":
        if config.summary_use_proj:
            yield from linear("head.pooler.dense", "sequence_summary.summary", in_body=False)
        yield from linear("head.output", "classifier", in_body=False)
    elif task != "features":
        yield from bert.head_entries(config, task)


BASE: dict[str, Any] = {
    "embedding_size": 768,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
LARGE: dict[str, Any] = {
    "embedding_size": 1024,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}

FAMILY = Family(
    name="electra",
    title="ELECTRA",
    config=ElectraConfig,
    build=build,
    init=bert.init,
    checkpoint_map=checkpoint_map,
    architectures={
        "replaced-token": "ElectraForPreTraining",
        "masked-lm": "ElectraForMaskedLM",
        "causal-lm": "ElectraForCausalLM",
        "sequence-classification": "ElectraForSequenceClassification",
        "token-classification": "ElectraForTokenClassification",
        "question-answering": "ElectraForQuestionAnswering",
        "multiple-choice": "ElectraForMultipleChoice",
        "features": "ElectraModel",
    },
    default_task="replaced-token",
    parent="bert",
    presets={
        "electra-small-discriminator": {},
        "electra-small-generator": {},
        "electra-base-discriminator": BASE,
        "electra-base-generator": {"embedding_size": 768},
        "electra-large-discriminator": LARGE,
        "electra-large-generator": {"embedding_size": 1024, "num_hidden_layers": 24},
    },
)
