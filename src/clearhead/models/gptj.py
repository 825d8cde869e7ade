"""GPT-J: attention and feed-forward side by side after one norm, positions by rotation, an output matrix of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from clearhead.errors import ConfigError
from clearhead.models import gpt2
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, linear, one
from clearhead.models.family import Family
from clearhead.models.gpt_neo import init
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, Rotary, Stack, TokenEmbedder


@dataclass(kw_only=True)
class GPTJConfig(gpt2.CausalConfig):
    family: ClassVar[str] = "gptj"
    inert: ClassVar[frozenset[str]] = gpt2.CausalConfig.inert | gpt2.SUMMARY_KEYS
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {
        **gpt2.CausalConfig.fixed,
        "rotary": (True,),
        "scale_attn_weights": (True,),
    }

    vocab_size: int = 50400
    hidden_size: int = 4096
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    max_position_embeddings: int = 2048
    intermediate_size: int | None = None  # 4 × hidden_size
    activation_function: str = "gelu_new"
    rotary_dim: int | None = 64  # how many dimensions of a head are rotated
    resid_pdrop: float = 0.0
    embd_pdrop: float = 0.0
    attn_pdrop: float = 0.0
    tie_word_embeddings: bool = False
    bos_token_id: int | None = 50256
    eos_token_id: int | list[int] | None = 50256

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "intermediate_size")
        self._probabilities("attn_pdrop")
        head_dim = self.hidden_size // self.num_attention_heads
        if self.rotary_dim is None and self.num_attention_heads > 1:
            raise ConfigError("rotary_dim is null, which the published model can only run with one head.")
        rotated = head_dim if self.rotary_dim is None else self.rotary_dim
        if rotated % 2 or not 0 < rotated <= head_dim:
            raise ConfigError(
                f"rotary_dim is {rotated}; it must be an even number from 2 to the head size, {head_dim}."
            )


def block(config: GPTJConfig) -> Block:
    width = config.hidden_size
    return Block(
        Attention(
            width,
            config.num_attention_heads,
            bias=False,
            dropout=config.attn_pdrop,
            upcast=True,
            rotary=Rotary(width // config.num_attention_heads, config.rotary_dim, pairing="neighbours"),
        ),
        FeedForward(width, config.intermediate_size or 4 * width, config.activation_function),
        attention_norm=LayerNorm(width, eps=config.layer_norm_epsilon),
        placement="parallel",
        dropout=config.resid_pdrop,
    )


def build(config: GPTJConfig, task: str) -> TokenModel:
    width = config.hidden_size
    stack = Stack(
        TokenEmbedder(
            nn.Embedding(config.vocab_size, width),
            segments="tokens",
            dropout=config.embd_pdrop,
            max_positions=config.max_position_embeddings,
        ),
        [block(config) for _ in range(config.num_hidden_layers)],
        LayerNorm(width, eps=config.layer_norm_epsilon),
        causal=True,
    )
    return TokenModel(config, stack, gpt2.head(config, task, bias=True))


def checkpoint_map(config: GPTJConfig, task: str) -> CheckpointMap:
    return CheckpointMap(
        (*_entries(config), *gpt2.head_entries(config, task, bias=True)),
        prefix="transformer.",
        skipped=(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias|embed_positions)",),
    )


def _entries(config: GPTJConfig) -> Iterator[Entry]:
    ours, theirs = "stack.layers.{n}", "h.{n}"
    yield one("stack.embed.tokens.weight", "wte.weight")
    yield from layers(
        config.num_hidden_layers,
        [
            *linear(f"{ours}.attention_norm", f"{theirs}.ln_1"),
            *linear(f"{ours}.attention.query", f"{theirs}.attn.q_proj", bias=False),
            *linear(f"{ours}.attention.key", f"{theirs}.attn.k_proj", bias=False),
            *linear(f"{ours}.attention.value", f"{theirs}.attn.v_proj", bias=False),
            *linear(f"{ours}.attention.output", f"{theirs}.attn.out_proj", bias=False),
            *linear(f"{ours}.feedforward.up", f"{theirs}.mlp.fc_in"),
            *linear(f"{ours}.feedforward.down", f"{theirs}.mlp.fc_out"),
        ],
    )
    yield from linear("stack.final_norm", "ln_f")


FAMILY = Family(
    name="gptj",
    title="GPT-J",
    config=GPTJConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "causal-lm": "GPTJForCausalLM",
        "sequence-classification": "GPTJForSequenceClassification",
        "question-answering": "GPTJForQuestionAnswering",
        "features": "GPTJModel",
    },
    default_task="causal-lm",
    parent="gpt_neo",
    presets={"gpt-j-6b": {}},
)
