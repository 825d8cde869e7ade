"""CTRL: the 2017 decoder as a language model (sinusoidal positions, scaled embeddings), steered by a first word."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from clearhead.models import gpt2
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, linear, one
from clearhead.models.family import Family
from clearhead.models.gpt_neo import init
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, SinusoidalPositions, Stack, TokenEmbedder


@dataclass(kw_only=True)
class CTRLConfig(gpt2.CausalConfig):
    family: ClassVar[str] = "ctrl"
    published: ClassVar[dict[str, str]] = {**gpt2.CausalConfig.published, "intermediate_size": "dff"}
    # attn_pdrop was listed from the start and never used
    inert: ClassVar[frozenset[str]] = gpt2.CausalConfig.inert | gpt2.SUMMARY_KEYS | {"attn_pdrop", "from_tf"}

    vocab_size: int = 246534
    hidden_size: int = 1280
    num_hidden_layers: int = 48
    num_attention_heads: int = 16
    max_position_embeddings: int = 256
    intermediate_size: int = 8192
    layer_norm_epsilon: float = 1e-6  # of the final norm; those of the layers have 1e-6 always

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "intermediate_size")


def block(config: CTRLConfig) -> Block:
    width = config.hidden_size
    return Block(
        Attention(width, config.num_attention_heads),
        FeedForward(width, config.intermediate_size, "relu"),
        attention_norm=LayerNorm(width, eps=1e-6),
        feedforward_norm=LayerNorm(width, eps=1e-6),
        placement="pre",
        dropout=config.resid_pdrop,
    )


def build(config: CTRLConfig, task: str) -> TokenModel:
    width = config.hidden_size
    stack = Stack(
        TokenEmbedder(
            nn.Embedding(config.vocab_size, width),
            SinusoidalPositions(config.max_position_embeddings, width, layout="halves"),
            segments="tokens",
            dropout=config.embd_pdrop,
            scale=width**0.5,
        ),
        [block(config) for _ in range(config.num_hidden_layers)],
        LayerNorm(width, eps=config.layer_norm_epsilon),
        causal=True,
    )
    return TokenModel(config, stack, gpt2.head(config, task, bias=True))


def checkpoint_map(config: CTRLConfig, task: str) -> CheckpointMap:
    return CheckpointMap(
        (*_entries(config), *gpt2.head_entries(config, task, bias=True, score="classifier")),
        prefix="transformer.",
        skipped=(r"(transformer\.)?pos_encoding",),
    )


def _entries(config: CTRLConfig) -> Iterator[Entry]:
    ours, theirs = "stack.layers.{n}", "h.{n}"
    yield one("stack.embed.tokens.weight", "w.weight")
    yield from layers(
        config.num_hidden_layers,
        [
            *linear(f"{ours}.attention_norm", f"{theirs}.layernorm1"),
            *linear(f"{ours}.attention.query", f"{theirs}.multi_head_attention.Wq"),
            *linear(f"{ours}.attention.key", f"{theirs}.multi_head_attention.Wk"),
            *linear(f"{ours}.attention.value", f"{theirs}.multi_head_attention.Wv"),
            *linear(f"{ours}.attention.output", f"{theirs}.multi_head_attention.dense"),
            *linear(f"{ours}.feedforward_norm", f"{theirs}.layernorm2"),
            *linear(f"{ours}.feedforward.up", f"{theirs}.ffn.0"),
            *linear(f"{ours}.feedforward.down", f"{theirs}.ffn.2"),
        ],
    )
    yield from linear("stack.final_norm", "layernorm")


FAMILY = Family(
    name="ctrl",
    title="CTRL",
    config=CTRLConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "causal-lm": "CTRLLMHeadModel",
        "sequence-classification": "CTRLForSequenceClassification",
        "features": "CTRLModel",
    },
    default_task="causal-lm",
    parent="transformer",
    presets={"ctrl": {"max_position_embeddings": 50000}},
)
