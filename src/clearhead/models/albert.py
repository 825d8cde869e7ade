"""ALBERT: BERT with a narrow embedding and layers that share their weights, taught the order of sentences."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from clearhead.errors import ConfigError
from clearhead.models import bert
from clearhead.models.checkpoint import CheckpointMap, Entry, linear, one
from clearhead.models.family import Family
from clearhead.models.heads import Head, LanguageHead, NextSentenceHead, PretrainingHead, Summary, WordTransform
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Block, Stack
from clearhead.nn.linear import Linear


@dataclass(kw_only=True)
class AlbertConfig(bert.BertConfig):
    family: ClassVar[str] = "albert"
    published: ClassVar[dict[str, str]] = {"classifier_dropout": "classifier_dropout_prob"}
    # Plans that Google's files carry and no published ALBERT uses.
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {
        "net_structure_type": (0,),
        "gap_size": (0,),
        "num_memory_blocks": (0,),
        "down_scale_factor": (1,),
        "layers_to_keep": ([],),
    }

    vocab_size: int = 30000
    embedding_size: int = 128
    hidden_size: int = 4096
    num_attention_heads: int = 64
    num_hidden_groups: int = 1  # layers of one group share their weights
    inner_group_num: int = 1  # how many layers, each with weights of its own, a group repeats
    intermediate_size: int = 16384
    hidden_act: str = "gelu_new"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout: float | None = 0.1
    bos_token_id: int | None = 2
    eos_token_id: int | list[int] | None = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "embedding_size", "num_hidden_groups", "inner_group_num")
        if self.is_decoder:
            raise ConfigError("is_decoder is true; ALBERT is an encoder only.")
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ConfigError(
                f"num_hidden_groups is {self.num_hidden_groups}, but there are only {self.num_hidden_layers} layers "
                "to put in groups."
            )


def plan(config: AlbertConfig) -> list[tuple[int, int]]:
    """(group, layer within the group) for every layer, in the order in which they run."""
    per_group = config.num_hidden_layers / config.num_hidden_groups
    groups = [int(n / per_group) for n in range(config.num_hidden_layers)]
    return [(group, inner) for group in groups for inner in range(config.inner_group_num)]


def shared_blocks(config: AlbertConfig) -> list[Block]:
    """A module for every layer, so that each has its own name; layers of the same weights share the parameters."""
    first: dict[tuple[int, int], Block] = {}
    blocks = []
    for place in plan(config):
        if place in first:
            kept = {id(p): p for p in first[place].parameters()}  # what deepcopy takes as copied already
            blocks.append(copy.deepcopy(first[place], kept))
        else:
            blocks.append(first.setdefault(place, bert.block(config)))
    return blocks


def build(config: AlbertConfig, task: str) -> TokenModel:
    narrow = config.embedding_size
    embed = bert.embed(config, narrow, project=Linear(narrow, config.hidden_size))
    return TokenModel(config, Stack(embed, shared_blocks(config), causal=False), head(config, task))


def head(config: AlbertConfig, task: str) -> Head:
    narrow, width = config.embedding_size, config.hidden_size

    def words() -> LanguageHead:
        transform = WordTransform(width, config.hidden_act, config.layer_norm_eps, out_width=narrow)
        return LanguageHead(narrow, config.vocab_size, bias=True, shift=False, transform=transform)

    if task == "masked-lm":
        return words()
    if task == "pretraining":
        dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        return PretrainingHead(words(), NextSentenceHead(Summary(config), width, dropout))
    return bert.head(config, task)


def checkpoint_map(config: AlbertConfig, task: str) -> CheckpointMap:
    return bert.map_of(config, _entries(config, task), prefix="albert.")


def _entries(config: AlbertConfig, task: str) -> Iterator[Entry]:
    yield from bert.embed_entries(config)
    yield from linear("stack.embed.project", "encoder.embedding_hidden_mapping_in")
    places = plan(config)
    for group, inner in dict.fromkeys(places):
        ours = f"stack.layers.{places.index((group, inner))}"
        theirs = f"encoder.albert_layer_groups.{group}.albert_layers.{inner}"
        for part in ("query", "key", "value"):
            yield from linear(f"{ours}.attention.{part}", f"{theirs}.attention.{part}")
        yield from linear(f"{ours}.attention.output", f"{theirs}.attention.dense")
        if config.position_embedding_type != "absolute":
            yield one(f"{ours}.attention.relative.table.weight", f"{theirs}.attention.distance_embedding.weight")
        yield from linear(f"{ours}.attention_norm", f"{theirs}.attention.LayerNorm")
        yield from linear(f"{ours}.feedforward.up", f"{theirs}.ffn")
        yield from linear(f"{ours}.feedforward.down", f"{theirs}.ffn_output")
        yield from linear(f"{ours}.feedforward_norm", f"{theirs}.full_layer_layer_norm")

    follows = "head.next_sentence" if task == "pretraining" else "head"
    if task in ("pretraining", "sequence-classification", "multiple-choice", "features"):
        yield from linear(f"{follows}.pooler.dense", "pooler")
    if task == "pretraining":
        yield from linear(f"{follows}.output", "sop_classifier.classifier", in_body=False)
    if task in ("masked-lm", "pretraining"):
        yield from bert.word_entries(
            config,
            "head.words" if task == "pretraining" else "head",
            dense="predictions.dense",
            norm="predictions.LayerNorm",
            decoder="predictions.decoder",
            bias="predictions.bias",
        )
    if task in ("sequence-classification", "token-classification", "multiple-choice"):
        yield from linear("head.output", "classifier", in_body=False)
    if task == "question-answering":
        yield from linear("head.output", "qa_outputs", in_body=False)


def _size(width: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        **more,
    }


# The first version trained with dropout (but for its largest model) and the exact gelu.
V1: dict[str, Any] = {"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}

FAMILY = Family(
    name="albert",
    title="ALBERT",
    config=AlbertConfig,
    build=build,
    init=bert.init,
    checkpoint_map=checkpoint_map,
    architectures={
        "masked-lm": "AlbertForMaskedLM",
        "pretraining": "AlbertForPreTraining",
        "sequence-classification": "AlbertForSequenceClassification",
        "token-classification": "AlbertForTokenClassification",
        "question-answering": "AlbertForQuestionAnswering",
        "multiple-choice": "AlbertForMultipleChoice",
        "features": "AlbertModel",
    },
    default_task="masked-lm",
    parent="bert",
    presets={
        "albert-base-v1": _size(768, 12, 12, **V1),
        "albert-large-v1": _size(1024, 24, 16, **V1),
        "albert-xlarge-v1": _size(2048, 24, 16, **V1),
        "albert-xxlarge-v1": _size(4096, 12, 64, hidden_act="gelu"),
        "albert-base-v2": _size(768, 12, 12),
        "albert-large-v2": _size(1024, 24, 16),
        "albert-xlarge-v2": _size(2048, 24, 16),
        "albert-xxlarge-v2": _size(4096, 12, 64),
    },
)
