"""RoBERTa: BERT trained longer; positions count from after the padding id, and some heads are its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from clearhead.errors import ConfigError
from clearhead.models import bert
from clearhead.models.checkpoint import CheckpointMap, Entry, linear
from clearhead.models.family import Family
from clearhead.models.heads import ChoiceHead, Head, LanguageHead, SequenceHead, Summary, WordTransform
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Stack


@dataclass(kw_only=True)
class RobertaConfig(bert.BertConfig):
    family: ClassVar[str] = "roberta"

    vocab_size: int = 50265
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pad_token_id is None:
            raise ConfigError(f"There is no pad_token_id; {self.family} counts its positions from it.")
        if self.pad_token_id + 1 >= self.max_position_embeddings:
            raise ConfigError(
                f"max_position_embeddings is {self.max_position_embeddings}: positions start at pad_token_id + 1 = "
                f"{self.pad_token_id + 1}, so no token would have one."
            )


def build(config: RobertaConfig, task: str) -> TokenModel:
    blocks = [bert.block(config) for _ in range(config.num_hidden_layers)]
    embed = bert.embed(config, padding_position=config.pad_token_id)
    return TokenModel(config, Stack(embed, blocks, causal=config.is_decoder), head(config, task))


def head(config: RobertaConfig, task: str) -> Head:
    width = config.hidden_size
    if task in ("masked-lm", "causal-lm"):  # always gelu, whatever the layers use
        transform = WordTransform(width, "gelu", config.layer_norm_eps)
        return LanguageHead(width, config.vocab_size, bias=True, shift=task == "causal-lm", transform=transform)
    if task == "sequence-classification":
        dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        return SequenceHead(config, Summary(config, dropout=dropout), dropout)
    if task == "multiple-choice":
        return ChoiceHead(Summary(config), width, config.hidden_dropout_prob)
    return bert.head(config, task)


def entries(config: RobertaConfig, task: str) -> Iterator[Entry]:
    yield from bert.body_entries(config)
    if task in ("masked-lm", "causal-lm"):
        yield from bert.word_entries(
            config,
            "head",
            dense="lm_head.dense",
            norm="lm_head.layer_norm",
            decoder="lm_head.decoder",
            bias="lm_head.bias",
        )
    elif task == "sequence-classification":
        yield from linear("head.pooler.dense", "classifier.dense", in_body=False)
        yield from linear("head.output", "classifier.out_proj", in_body=False)
    else:
        yield from bert.head_entries(config, task)


def checkpoint_map(config: RobertaConfig, task: str) -> CheckpointMap:
    return bert.map_of(config, entries(config, task), prefix="roberta.")


def architectures(prefix: str) -> dict[str, str]:
    return {
        "masked-lm": f"{prefix}ForMaskedLM",
        "causal-lm": f"{prefix}ForCausalLM",
        "sequence-classification": f"{prefix}ForSequenceClassification",
        "token-classification": f"{prefix}ForTokenClassification",
        "question-answering": f"{prefix}ForQuestionAnswering",
        "multiple-choice": f"{prefix}ForMultipleChoice",
        "features": f"{prefix}Model",
    }


PUBLISHED: dict[str, Any] = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
LARGE: dict[str, Any] = {
    **PUBLISHED,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}

FAMILY = Family(
    name="roberta",
    title="RoBERTa",
    config=RobertaConfig,
    build=build,
    init=bert.init,
    checkpoint_map=checkpoint_map,
    architectures=architectures("Roberta"),
    default_task="masked-lm",
    parent="bert",
    presets={"roberta-base": PUBLISHED, "roberta-large": LARGE},
)
