"""RETRO: a language model that looks up passages while it writes; facts lie in the store, language in the weights.

Defaults are the paper's. It leaves open where a query stands beside its neighbours and whether layers have biases: here
a chunk is laid beside the neighbour's first tokens and the next chunk beside the continuation, and there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import nn

from clearhead.errors import ConfigError, InputError
from clearhead.models import gpt2, retro_pytorch
from clearhead.models.checkpoint import CheckpointMap, own_names
from clearhead.models.family import Family
from clearhead.models.heads import FeaturesHead, Head, LanguageHead
from clearhead.models.model import Model
from clearhead.models.retrieval import RetrievalModel
from clearhead.models.token_config import TokenConfig
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, LearnedPositions, RMSNorm, Rotary, Stack
from clearhead.nn.chunked_attention import AlignedCrossAttention, ChunkedBlock, ChunkedCrossAttention
from clearhead.nn.embedding import TokenEmbedder
from clearhead.nn.init import init_gpt2
from clearhead.nn.linear import Linear
from clearhead.nn.neighbor_encoder import NeighborEmbedder, NeighborEncoder
from clearhead.nn.norms import GatedRMSNorm
from clearhead.nn.positions import RelativeSinusoids

NORMS = {"rms_norm": RMSNorm, "gated_rms_norm": GatedRMSNorm, "layer_norm": LayerNorm}
Positions = Literal["relative", "rotary"]
SMALL = 12  # up to so many layers, chunked attention begins at the sixth


@dataclass(kw_only=True)
class RetroConfig(TokenConfig):
    """
    format                    how config.json and tensors are spelt: "clearhead", or as the package "retro-pytorch" does
    decoder_positions         how distance acts in self-attention: "relative", "rotary", or null for not at all
    neighbor_positions        the same in the encoder, and between a chunk and its neighbours
    learned_positions         a table of positions is added to the embeddings
    rotary_dim                how many dimensions of a head are rotated; null: all
    chunked_attention_layers  counted from 1; null: every third from the sixth (up to 12 layers) or the ninth
    null_key                  a learned key and value that a chunk can attend to in place of its neighbours
    pad_query_positions       retro-pytorch's: the token that ends a chunk stands at twice the shift, all others at 0
    embedding_size            of the token table, where it is another than hidden_size
    share_embeddings          the encoder reads the decoder's token table
    encoder_projection        the encoder's last states are projected to hidden_size
    residual_scale            of a post-norm layer (DeepNet)
    question_template         how `ask` writes a question before the model answers it
    """

    family: ClassVar[str] = "retro"

    format: Literal["clearhead", "retro-pytorch"] = "clearhead"
    vocab_size: int = 128_000
    hidden_size: int = 896
    num_hidden_layers: int = 12
    num_attention_heads: int = 16
    head_dim: int | None = 64
    intermediate_size: int | None = None  # 4 × hidden_size
    embedding_size: int | None = None
    max_position_embeddings: int = 2048
    learned_positions: bool = False
    decoder_positions: Positions | None = "relative"
    neighbor_positions: Positions | None = "relative"
    rotary_dim: int | None = None
    activation_function: str = "gelu"
    norm: Literal["rms_norm", "gated_rms_norm", "layer_norm"] = "rms_norm"
    norm_eps: float = 1e-6
    norm_placement: Literal["pre", "post"] = "pre"
    residual_scale: float = 1.0
    fused_attention: bool = False
    attention_bias: bool = False  # of queries, keys and values
    attention_output_bias: bool = False
    feedforward_bias: bool = False
    output_bias: bool = False

    chunk_size: int = 64
    chunked_attention_layers: list[int] | None = None
    null_key: bool = False
    pad_query_positions: bool = False

    encoder_hidden_size: int = 896
    encoder_layers: int = 2
    encoder_heads: int = 16
    encoder_head_dim: int | None = 64
    encoder_intermediate_size: int | None = None  # 4 × encoder_hidden_size
    encoder_cross_attention_layers: list[int] | None = None  # counted from 1; null: all
    encoder_residual_scale: float = 1.0
    encoder_projection: bool = False
    share_embeddings: bool = True

    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    feedforward_dropout: float = 0.0
    hidden_dropout: float = 0.0
    encoder_attention_dropout: float = 0.0
    encoder_feedforward_dropout: float = 0.0
    initializer_range: float = 0.02
    question_template: str = "Question: {question}\nAnswer:"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(
            1, "head_dim", "intermediate_size", "embedding_size", "max_position_embeddings", "encoder_layers"
        )
        self._at_least(1, "encoder_hidden_size", "encoder_heads", "encoder_head_dim", "encoder_intermediate_size")
        self._at_least(2, "chunk_size")
        self._probabilities("embedding_dropout", "attention_dropout", "feedforward_dropout", "hidden_dropout")
        self._probabilities("encoder_attention_dropout", "encoder_feedforward_dropout")
        if self.head_dim is None:
            self._divides(self.hidden_size, self.num_attention_heads)
        if self.encoder_head_dim is None and self.encoder_hidden_size % self.encoder_heads:
            raise ConfigError("encoder_heads does not divide encoder_hidden_size; give encoder_head_dim.")
        self._check_layers("chunked_attention_layers", self.num_hidden_layers)
        self._check_layers("encoder_cross_attention_layers", self.encoder_layers)
        if self.tie_word_embeddings and self.embedding_size not in (None, self.hidden_size):
            raise ConfigError("tie_word_embeddings needs an embedding_size that is the hidden_size.")
        if self.format == "retro-pytorch":
            retro_pytorch.check(self)

    def _check_layers(self, name: str, count: int) -> None:
        for layer in getattr(self, name) or ():
            if not 1 <= layer <= count:
                raise ConfigError(f"{name} names layer {layer}; there are layers 1 to {count}.")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], ignore: Iterable[str] = (), strict: bool = False) -> Self:
        if raw.get("format") == "retro-pytorch":
            raw = retro_pytorch.read_arguments(raw)
        return super().from_dict(raw, ignore, strict)

    def to_dict(self) -> dict[str, Any]:
        out = super().to_dict()
        return retro_pytorch.write_arguments(self, out) if self.format == "retro-pytorch" else out

    @property
    def chunked_layers(self) -> set[int]:
        """The layers with chunked attention, counted from 1."""
        if self.chunked_attention_layers is not None:
            return set(self.chunked_attention_layers)
        return set(range(6 if self.num_hidden_layers <= SMALL else 9, self.num_hidden_layers + 1, 3))

    @property
    def cross_attending_layers(self) -> set[int]:
        """The encoder's layers that look at the chunk, counted from 1."""
        every = range(1, self.encoder_layers + 1)
        return set(every if self.encoder_cross_attention_layers is None else self.encoder_cross_attention_layers)

    @property
    def neighbor_padding_id(self) -> int | None:
        """What neighbours are padded with: the padding token, or the end token of a model that has none."""
        eos = self.eos_token_id[0] if isinstance(self.eos_token_id, list) else self.eos_token_id
        return eos if self.pad_token_id is None else self.pad_token_id

    @property
    def query_positions(self) -> list[int]:
        """Where the queries of a chunk stand beside a neighbour, the one that ends the chunk first."""
        shift = self.chunk_size - 1
        return [2 * shift] + [0] * shift if self.pad_query_positions else [shift + n for n in range(self.chunk_size)]


@dataclass(frozen=True)
class _Sizes:
    """Of the decoder, or of the encoder."""

    width: int
    heads: int
    head_dim: int
    hidden: int
    attention_dropout: float
    feedforward_dropout: float
    residual_scale: float


def _decoder_sizes(config: RetroConfig) -> _Sizes:
    return _Sizes(
        config.hidden_size,
        config.num_attention_heads,
        config.head_dim or config.hidden_size // config.num_attention_heads,
        config.intermediate_size or 4 * config.hidden_size,
        config.attention_dropout,
        config.feedforward_dropout,
        config.residual_scale,
    )


def _encoder_sizes(config: RetroConfig) -> _Sizes:
    return _Sizes(
        config.encoder_hidden_size,
        config.encoder_heads,
        config.encoder_head_dim or config.encoder_hidden_size // config.encoder_heads,
        config.encoder_intermediate_size or 4 * config.encoder_hidden_size,
        config.encoder_attention_dropout,
        config.encoder_feedforward_dropout,
        config.encoder_residual_scale,
    )


def _norm(config: RetroConfig, width: int) -> nn.Module:
    return NORMS[config.norm](width, eps=config.norm_eps)


def _attention_options(config: RetroConfig, sizes: _Sizes, positions: Positions | None) -> dict[str, Any]:
    return {
        "head_dim": sizes.head_dim,
        "bias": config.attention_bias,
        "out_bias": config.attention_output_bias,
        "dropout": sizes.attention_dropout,
        "rotary": Rotary(sizes.head_dim, config.rotary_dim) if positions == "rotary" else None,
        "relative": RelativeSinusoids(sizes.width, sizes.heads, sizes.head_dim) if positions == "relative" else None,
    }


def _parts(config: RetroConfig, sizes: _Sizes, positions: Positions | None, fused: bool) -> dict[str, Any]:
    """What every layer has: self-attention and feed-forward with their norms."""
    return {
        "attention": Attention(sizes.width, sizes.heads, fused=fused, **_attention_options(config, sizes, positions)),
        "feedforward": FeedForward(
            sizes.width,
            sizes.hidden,
            config.activation_function,
            bias=config.feedforward_bias,
            dropout=sizes.feedforward_dropout,
        ),
        "attention_norm": _norm(config, sizes.width),
        "feedforward_norm": _norm(config, sizes.width),
        "placement": config.norm_placement,
        "dropout": config.hidden_dropout,
        "residual_scale": sizes.residual_scale,
    }


def decoder_block(config: RetroConfig, layer: int) -> Block:
    """layer: counted from 1."""
    sizes = _decoder_sizes(config)
    parts = _parts(config, sizes, config.decoder_positions, config.fused_attention)
    if layer not in config.chunked_layers:
        return Block(**parts)
    chunked = ChunkedCrossAttention(
        sizes.width,
        sizes.heads,
        memory_width=config.hidden_size if config.encoder_projection else config.encoder_hidden_size,
        query_positions=config.query_positions,
        null_key=config.null_key,
        **_attention_options(config, sizes, config.neighbor_positions),
    )
    return ChunkedBlock(**parts, chunked_attention=chunked, chunked_attention_norm=_norm(config, sizes.width))


def encoder_block(config: RetroConfig, layer: int) -> Block:
    """layer: counted from 1."""
    sizes = _encoder_sizes(config)
    parts = _parts(config, sizes, config.neighbor_positions, False)
    if layer in config.cross_attending_layers:
        parts["cross_attention"] = AlignedCrossAttention(
            sizes.width,
            sizes.heads,
            memory_width=config.hidden_size,
            **_attention_options(config, sizes, config.neighbor_positions),
        )
        parts["cross_attention_norm"] = _norm(config, sizes.width)
    return Block(**parts)


def neighbor_encoder(config: RetroConfig) -> NeighborEncoder:
    width, table = config.encoder_hidden_size, config.embedding_size or config.hidden_size
    tokens = None if config.share_embeddings else nn.Embedding(config.vocab_size, width)
    return NeighborEncoder(
        NeighborEmbedder(tokens, Linear(table, width) if tokens is None and table != width else None),
        [encoder_block(config, n + 1) for n in range(config.encoder_layers)],
        _norm(config, width) if config.norm_placement == "pre" else None,
        Linear(width, config.hidden_size) if config.encoder_projection else None,
    )


def build(config: RetroConfig, task: str) -> RetrievalModel:
    table = config.embedding_size or config.hidden_size
    stack = Stack(
        TokenEmbedder(
            nn.Embedding(config.vocab_size, table),
            LearnedPositions(config.max_position_embeddings, table) if config.learned_positions else None,
            dropout=config.embedding_dropout,
            max_positions=config.max_position_embeddings,
            project=Linear(table, config.hidden_size) if table != config.hidden_size else None,
        ),
        [decoder_block(config, n + 1) for n in range(config.num_hidden_layers)],
        _norm(config, config.hidden_size) if config.norm_placement == "pre" else None,
        causal=True,
    )
    return RetrievalModel(
        config,
        stack,
        head(config, task),
        neighbor_encoder(config),
        chunk_size=config.chunk_size,
        hidden_id=config.neighbor_padding_id,
    )


def head(config: RetroConfig, task: str) -> Head:
    if task == "causal-lm":
        return LanguageHead(config.hidden_size, config.vocab_size, bias=config.output_bias, shift=True)
    return FeaturesHead()


@torch.no_grad()
def init(config: RetroConfig, module: nn.Module) -> None:
    init_gpt2(module, config.initializer_range, config.num_hidden_layers)
    for part in module.modules():
        if isinstance(part, GatedRMSNorm):
            nn.init.ones_(part.gate)
        elif isinstance(part, AlignedCrossAttention) and part.null_key is not None and part.null_value is not None:
            nn.init.normal_(part.null_key, std=config.initializer_range)
            nn.init.normal_(part.null_value, std=config.initializer_range)


def checkpoint_map(config: RetroConfig, task: str) -> CheckpointMap:
    if config.format == "retro-pytorch":
        return retro_pytorch.checkpoint_map(config, task)
    return own_names(build)(config, task)


# Options of GPT-2 that change its numbers and that have no counterpart here.
_NOT_RETROFITTED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}


def retrofit_config(base: gpt2.GPT2Config, options: Mapping[str, Any] | None = None) -> RetroConfig:
    """A GPT-2 with a neighbour encoder and chunked attention. options: of RetroConfig, for the new parts."""
    for name, value in _NOT_RETROFITTED.items():
        if getattr(base, name) != value:
            raise ConfigError(f"This GPT-2 sets {name} = {getattr(base, name)}, which RETROfit does not carry over.")
    taken: dict[str, Any] = {
        "vocab_size": base.vocab_size,
        "hidden_size": base.hidden_size,
        "num_hidden_layers": base.num_hidden_layers,
        "num_attention_heads": base.num_attention_heads,
        "head_dim": None,
        "intermediate_size": base.intermediate_size,
        "max_position_embeddings": base.max_position_embeddings,
        "learned_positions": True,
        "decoder_positions": None,
        "activation_function": base.activation_function,
        "norm": "layer_norm",
        "norm_eps": base.layer_norm_epsilon,
        "fused_attention": True,
        "attention_bias": True,
        "attention_output_bias": True,
        "feedforward_bias": True,
        "embedding_dropout": base.embd_pdrop,
        "attention_dropout": base.attn_pdrop,
        "hidden_dropout": base.resid_pdrop,
        "tie_word_embeddings": base.tie_word_embeddings,
        "bos_token_id": base.bos_token_id,
        "eos_token_id": base.eos_token_id,
        "pad_token_id": base.pad_token_id,
    }
    new = {
        "neighbor_positions": "rotary",
        "encoder_hidden_size": base.hidden_size,
        "encoder_heads": base.num_attention_heads,
        "encoder_head_dim": None,
    }
    changed = sorted(taken.keys() & (options or {}).keys())
    if changed:
        raise ConfigError(f"RETROfit takes {changed[0]} from the model it begins with; leave it out.")
    return RetroConfig(**(taken | new | dict(options or {})))


@torch.no_grad()
def retrofit(base: Model, options: Mapping[str, Any] | None = None) -> RetrievalModel:
    """A RETRO that begins as this GPT-2, and gives its numbers: the new parts say nothing until they are trained.

    Only the new parts learn (`requires_grad`).
    """
    if not isinstance(base.config, gpt2.GPT2Config) or base.task != "causal-lm":
        raise InputError(f"RETROfit begins with a GPT-2 language model, not with {base.family.title} for {base.task}.")
    config = retrofit_config(base.config, options)
    model = FAMILY.make(config, "causal-lm", base.device)
    assert isinstance(model, RetrievalModel)
    new = model.retrieval_parameters()
    own = dict(base.named_parameters())
    for name, parameter in model.named_parameters():
        if name not in new:
            parameter.copy_(own[name])
        parameter.requires_grad_(name in new)
    for module in model.modules():
        if isinstance(module, ChunkedCrossAttention):
            nn.init.zeros_(module.output.weight)  # what it writes into the residual stream; its gradient is not zero
            nn.init.zeros_(module.output.bias)
    model.generation = dict(base.generation)
    return model


PAPER: dict[str, Any] = {"encoder_cross_attention_layers": [1], "share_embeddings": False}


def _large(width: int, depth: int, heads: int) -> dict[str, Any]:
    """The paper's totals (1,451 and 7,532 million, embeddings aside) come out with every third layer from the sixth."""
    sizes = {"hidden_size": width, "num_hidden_layers": depth, "num_attention_heads": heads, "head_dim": 128}
    return PAPER | sizes | {"chunked_attention_layers": list(range(6, depth + 1, 3))}


FAMILY = Family(
    name="retro",
    title="RETRO",
    config=RetroConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={"causal-lm": "RetroForCausalLM", "features": "RetroModel"},
    default_task="causal-lm",
    parent="gpt2",
    own_format=True,
    presets={
        "retro-172m": PAPER,
        "retro-425m": PAPER | {"hidden_size": 1536, "num_attention_heads": 12, "head_dim": 128},
        "retro-1.5b": _large(2048, 24, 16),
        "retro-7.5b": _large(4096, 32, 32),
    },
)
