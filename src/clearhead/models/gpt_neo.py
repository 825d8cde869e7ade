"""GPT-Neo: GPT-2 with local layers between the global ones, and scores that are not scaled, in fp32 always."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from clearhead.errors import ConfigError
from clearhead.models import gpt2
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, linear, one
from clearhead.models.family import Family
from clearhead.models.stack_model import TokenModel
from clearhead.models.token_config import MOST_LAYERS
from clearhead.nn import Attention, Block, FeedForward, LayerNorm
from clearhead.nn.init import init_normal


@dataclass(kw_only=True)
class GPTNeoConfig(gpt2.CausalConfig):
    family: ClassVar[str] = "gpt_neo"
    published: ClassVar[dict[str, str]] = {
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "resid_pdrop": "resid_dropout",
        "embd_pdrop": "embed_dropout",
        "attn_pdrop": "attention_dropout",
    }
    inert: ClassVar[frozenset[str]] = gpt2.CausalConfig.inert | gpt2.SUMMARY_KEYS

    vocab_size: int = 50257
    hidden_size: int = 2048
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    max_position_embeddings: int = 2048
    intermediate_size: int | None = None  # 4 × hidden_size
    activation_function: str = "gelu_new"
    attention_types: list[object] | None = None  # [[["global", "local"], 12]]: a pattern and how often it repeats
    attention_layers: list[str] | None = None  # the same, a word for each layer
    window_size: int = 256
    resid_pdrop: float = 0.0
    embd_pdrop: float = 0.0
    attn_pdrop: float = 0.0
    classifier_dropout: float = 0.1
    bos_token_id: int | None = 50256
    eos_token_id: int | list[int] | None = 50256

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "intermediate_size", "window_size")
        self._probabilities("attn_pdrop", "classifier_dropout")
        spelt_out = None if self.attention_types is None else _spelt_out(self.attention_types)
        if self.attention_layers is None:
            self.attention_layers = (
                spelt_out or (["global", "local"] * self.num_hidden_layers)[: self.num_hidden_layers]
            )
        if self.attention_types is None:
            self.attention_types = [[list(self.attention_layers), 1]]
        elif spelt_out != list(self.attention_layers):
            raise ConfigError("attention_types and attention_layers contradict each other. Remove one of them.")
        if len(self.attention_layers) != self.num_hidden_layers:
            raise ConfigError(
                f"attention_types describes {len(self.attention_layers)} layers, but num_layers is "
                f"{self.num_hidden_layers}."
            )
        if unknown := set(self.attention_layers) - {"global", "local"}:
            raise ConfigError(f"attention_types names {unknown.pop()!r}; a layer is 'global' or 'local'.")


def _spelt_out(types: list[Any]) -> list[str]:
    try:
        return [str(kind) for pattern, times in types for kind in list(pattern) * min(times, MOST_LAYERS)]
    except (TypeError, ValueError):
        raise ConfigError(
            f'attention_types is {types!r}; it must look like [[["global", "local"], 12]]: patterns with a count each.'
        ) from None


def block(config: GPTNeoConfig, kind: str) -> Block:
    width, eps = config.hidden_size, config.layer_norm_epsilon
    return Block(
        Attention(
            width,
            config.num_attention_heads,
            bias=False,
            out_bias=True,
            scale=1.0,
            dropout=config.attn_pdrop,
            upcast=True,
        ),
        FeedForward(width, config.intermediate_size or 4 * width, config.activation_function),
        attention_norm=LayerNorm(width, eps=eps),
        feedforward_norm=LayerNorm(width, eps=eps),
        placement="pre",
        dropout=config.resid_pdrop,
        window=config.window_size if kind == "local" else None,
    )


def build(config: GPTNeoConfig, task: str) -> TokenModel:
    blocks = [block(config, kind) for kind in config.attention_layers or ()]
    return gpt2.assemble(config, blocks, gpt2.head(config, task, dropout=config.classifier_dropout))


def init(config: gpt2.CausalConfig, module: nn.Module) -> None:
    init_normal(module, config.initializer_range)


def checkpoint_map(config: GPTNeoConfig, task: str) -> CheckpointMap:
    return CheckpointMap(
        (*_entries(config), *gpt2.head_entries(config, task)),
        prefix="transformer.",
        skipped=(r"(transformer\.)?h\.\d+\.attn\.attention\.(bias|masked_bias)",),
    )


def _entries(config: GPTNeoConfig) -> Iterator[Entry]:
    ours, theirs = "stack.layers.{n}", "h.{n}"
    yield one("stack.embed.tokens.weight", "wte.weight")
    yield one("stack.embed.positions.weight", "wpe.weight")
    yield from layers(
        config.num_hidden_layers,
        [
            *linear(f"{ours}.attention_norm", f"{theirs}.ln_1"),
            *linear(f"{ours}.attention.query", f"{theirs}.attn.attention.q_proj", bias=False),
            *linear(f"{ours}.attention.key", f"{theirs}.attn.attention.k_proj", bias=False),
            *linear(f"{ours}.attention.value", f"{theirs}.attn.attention.v_proj", bias=False),
            *linear(f"{ours}.attention.output", f"{theirs}.attn.attention.out_proj"),
            *linear(f"{ours}.feedforward_norm", f"{theirs}.ln_2"),
            *linear(f"{ours}.feedforward.up", f"{theirs}.mlp.c_fc"),
            *linear(f"{ours}.feedforward.down", f"{theirs}.mlp.c_proj"),
        ],
    )
    yield from linear("stack.final_norm", "ln_f")


FAMILY = Family(
    name="gpt_neo",
    title="GPT-Neo",
    config=GPTNeoConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "causal-lm": "GPTNeoForCausalLM",
        "sequence-classification": "GPTNeoForSequenceClassification",
        "token-classification": "GPTNeoForTokenClassification",
        "question-answering": "GPTNeoForQuestionAnswering",
        "features": "GPTNeoModel",
    },
    default_task="causal-lm",
    parent="gpt3",
    presets={
        "gpt-neo-125m": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
        "gpt-neo-1.3b": {},
        "gpt-neo-2.7b": {"hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 20},
    },
)
