"""OpenAI's first GPT: a causal stack with the norm after each sublayer, and so no final norm; GPT-2's elder."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from clearhead.models import gpt2
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, one
from clearhead.models.family import Family
from clearhead.models.gpt_neo import init
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, LearnedPositions, Stack, TokenEmbedder


@dataclass(kw_only=True)
class OpenAIGPTConfig(gpt2.SummaryConfig):
    family: ClassVar[str] = "openai-gpt"
    published: ClassVar[dict[str, str]] = {**gpt2.SummaryConfig.published, "activation_function": "afn"}

    vocab_size: int = 40478
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    max_position_embeddings: int = 512
    activation_function: Literal["gelu", "relu", "silu", "swish"] = "gelu"  # its gelu is the tanh approximation
    attn_pdrop: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._probabilities("attn_pdrop")


def block(config: OpenAIGPTConfig) -> Block:
    width, eps = config.hidden_size, config.layer_norm_epsilon
    activation = "gelu_new" if config.activation_function == "gelu" else config.activation_function
    return Block(
        Attention(width, config.num_attention_heads, fused=True, dropout=config.attn_pdrop),
        FeedForward(width, 4 * width, activation),
        attention_norm=LayerNorm(width, eps=eps),
        feedforward_norm=LayerNorm(width, eps=eps),
        placement="post",
        dropout=config.resid_pdrop,
    )


def build(config: OpenAIGPTConfig, task: str) -> TokenModel:
    width = config.hidden_size
    stack = Stack(
        TokenEmbedder(
            nn.Embedding(config.vocab_size, width),
            LearnedPositions(config.max_position_embeddings, width),
            segments="tokens",
            dropout=config.embd_pdrop,
        ),
        [block(config) for _ in range(config.num_hidden_layers)],
        causal=True,
    )
    return TokenModel(config, stack, gpt2.head(config, task))


def checkpoint_map(config: OpenAIGPTConfig, task: str) -> CheckpointMap:
    return CheckpointMap(
        (*_entries(config), *gpt2.head_entries(config, task)),
        prefix="transformer.",
        legacy=gpt2.LEGACY,
        skipped=(r"(transformer\.)?(h\.\d+\.attn\.bias|position_ids)",),
    )


def _entries(config: OpenAIGPTConfig) -> Iterator[Entry]:
    yield one("stack.embed.tokens.weight", "tokens_embed.weight")
    yield one("stack.embed.positions.weight", "positions_embed.weight")
    yield from layers(config.num_hidden_layers, gpt2.layer_entries("stack.layers.{n}", "h.{n}"))


FAMILY = Family(
    name="openai-gpt",
    title="GPT",
    config=OpenAIGPTConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "causal-lm": "OpenAIGPTLMHeadModel",
        "sequence-classification": "OpenAIGPTForSequenceClassification",
        "multiple-choice": "OpenAIGPTDoubleHeadsModel",
        "features": "OpenAIGPTModel",
    },
    default_task="causal-lm",
    parent="transformer",
    presets={"openai-gpt": {}},
)
