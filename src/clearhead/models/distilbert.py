"""DistilBERT: half of BERT's layers, taught by BERT; no segments, no pooler, and names of its own for everything."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from clearhead.models.bert import word_entries
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, linear, one
from clearhead.models.family import Family
from clearhead.models.heads import (
    ChoiceHead,
    FeaturesHead,
    Head,
    LanguageHead,
    SequenceHead,
    SpanHead,
    Summary,
    TokenHead,
    WordTransform,
)
from clearhead.models.stack_model import TokenModel
from clearhead.models.token_config import TokenConfig
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, LearnedPositions, Stack, TokenEmbedder, sinusoidal
from clearhead.nn.init import init_normal

EPS = 1e-12  # of every norm; no option


@dataclass(kw_only=True)
class DistilBertConfig(TokenConfig):
    family: ClassVar[str] = "distilbert"
    published: ClassVar[dict[str, str]] = {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    }
    # tie_weights_ is an early spelling that every published file sets to true.
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {
        "tie_weights_": (True,),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 6
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    qa_dropout: float = 0.1
    seq_classif_dropout: float = 0.2
    max_position_embeddings: int = 512
    sinusoidal_pos_embds: bool = False  # what the position table starts as; it is stored and learns like any other
    initializer_range: float = 0.02
    pad_token_id: int | None = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "intermediate_size", "max_position_embeddings")
        self._probabilities("hidden_dropout_prob", "attention_probs_dropout_prob", "qa_dropout", "seq_classif_dropout")
        self._divides(self.hidden_size, self.num_attention_heads)
        self._padding_within(self.vocab_size)


def block(config: DistilBertConfig) -> Block:
    width = config.hidden_size
    return Block(
        Attention(width, config.num_attention_heads, dropout=config.attention_probs_dropout_prob),
        FeedForward(width, config.intermediate_size, config.hidden_act),
        attention_norm=LayerNorm(width, eps=EPS),
        feedforward_norm=LayerNorm(width, eps=EPS),
        placement="post",
        dropout=config.hidden_dropout_prob,
    )


def build(config: DistilBertConfig, task: str) -> TokenModel:
    width = config.hidden_size
    embed = TokenEmbedder(
        nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id),
        LearnedPositions(config.max_position_embeddings, width),
        norm=LayerNorm(width, eps=EPS),
        dropout=config.hidden_dropout_prob,
    )
    stack = Stack(embed, [block(config) for _ in range(config.num_hidden_layers)], causal=False)
    return TokenModel(config, stack, head(config, task))


def head(config: DistilBertConfig, task: str) -> Head:
    width = config.hidden_size
    if task == "masked-lm":
        transform = WordTransform(width, config.hidden_act, EPS)
        return LanguageHead(width, config.vocab_size, bias=True, shift=False, transform=transform)
    if task == "sequence-classification":
        return SequenceHead(config, Summary(config, activation="relu"), config.seq_classif_dropout)
    if task == "multiple-choice":
        return ChoiceHead(Summary(config, activation="relu"), width, config.seq_classif_dropout)
    if task == "token-classification":
        return TokenHead(width, config.num_labels, config.hidden_dropout_prob)
    if task == "question-answering":
        return SpanHead(width, config.qa_dropout)
    return FeaturesHead()


def init(config: DistilBertConfig, module: nn.Module) -> None:
    init_normal(module, config.initializer_range)
    if config.sinusoidal_pos_embds:
        for part in module.modules():
            if isinstance(part, LearnedPositions):
                with torch.no_grad():
                    part.weight.copy_(sinusoidal(part.length, config.hidden_size))


def checkpoint_map(config: DistilBertConfig, task: str) -> CheckpointMap:
    return CheckpointMap(
        tuple(_entries(config, task)), prefix="distilbert.", skipped=(r"(distilbert\.)?embeddings\.position_ids",)
    )


def _entries(config: DistilBertConfig, task: str) -> Iterator[Entry]:
    ours, theirs = "stack.layers.{n}", "transformer.layer.{n}"
    layer = [
        *linear(f"{ours}.attention.query", f"{theirs}.attention.q_lin"),
        *linear(f"{ours}.attention.key", f"{theirs}.attention.k_lin"),
        *linear(f"{ours}.attention.value", f"{theirs}.attention.v_lin"),
        *linear(f"{ours}.attention.output", f"{theirs}.attention.out_lin"),
        *linear(f"{ours}.attention_norm", f"{theirs}.sa_layer_norm"),
        *linear(f"{ours}.feedforward.up", f"{theirs}.ffn.lin1"),
        *linear(f"{ours}.feedforward.down", f"{theirs}.ffn.lin2"),
        *linear(f"{ours}.feedforward_norm", f"{theirs}.output_layer_norm"),
    ]
    yield one("stack.embed.tokens.weight", "embeddings.word_embeddings.weight")
    yield one("stack.embed.positions.weight", "embeddings.position_embeddings.weight")
    yield from linear("stack.embed.norm", "embeddings.LayerNorm")
    yield from layers(config.num_hidden_layers, layer)

    if task == "masked-lm":
        yield from word_entries(
            config, "head", dense="vocab_transform", norm="vocab_layer_norm", decoder="vocab_projector"
        )
    if task in ("sequence-classification", "multiple-choice"):
        yield from linear("head.pooler.dense", "pre_classifier", in_body=False)
    if task in ("sequence-classification", "multiple-choice", "token-classification"):
        yield from linear("head.output", "classifier", in_body=False)
    if task == "question-answering":
        yield from linear("head.output", "qa_outputs", in_body=False)


FAMILY = Family(
    name="distilbert",
    title="DistilBERT",
    config=DistilBertConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "masked-lm": "DistilBertForMaskedLM",
        "sequence-classification": "DistilBertForSequenceClassification",
        "token-classification": "DistilBertForTokenClassification",
        "question-answering": "DistilBertForQuestionAnswering",
        "multiple-choice": "DistilBertForMultipleChoice",
        "features": "DistilBertModel",
    },
    default_task="masked-lm",
    parent="bert",
    presets={
        "distilbert-base-uncased": {},
        "distilbert-base-cased": {"vocab_size": 28996},
        "distilbert-base-multilingual-cased": {"vocab_size": 119547},
    },
)
