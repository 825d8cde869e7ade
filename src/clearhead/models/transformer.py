"""The Transformer of 2017: an encoder reads one language, a decoder writes another, attention is all they share."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, linear, one
from clearhead.models.checkpoint import layers as each_layer
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.family import Family
from clearhead.models.heads import LanguageHead
from clearhead.models.token_config import TokenConfig
from clearhead.nn import (
    Attention,
    Block,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    SinusoidalPositions,
    Stack,
    TokenEmbedder,
)
from clearhead.nn.init import init_xavier


@dataclass(kw_only=True)
class TransformerConfig(TokenConfig):
    """Defaults are the paper's base model. `vocab_size` is the target's; the source's may differ."""

    family: ClassVar[str] = "transformer"
    published: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "decoder_layers",
        "num_attention_heads": "attention_heads",
    }
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {"is_encoder_decoder": (True,)}

    vocab_size: int = 37000
    source_vocab_size: int | None = None  # None: one vocabulary for both languages
    hidden_size: int = 512
    encoder_layers: int = 6
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    feedforward_size: int = 2048
    activation: str = "relu"
    norm_first: bool = False
    final_norm: bool = False  # a last norm on each stack, as torch.nn.Transformer and pre-norm models have
    bias: bool = True
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    sinusoidal_layout: Literal["interleaved", "halves"] = "interleaved"
    max_position_embeddings: int = 1024
    scale_embedding: bool = True  # multiply token vectors by √d_model
    tie_source_embeddings: bool = True  # encoder and decoder share one table
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = None  # bos_token_id

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "source_vocab_size", "encoder_layers", "feedforward_size", "max_position_embeddings")
        self._probabilities("dropout", "attention_dropout", "activation_dropout")
        self._divides(self.hidden_size, self.num_attention_heads)
        self._padding_within(min(self.vocab_size, self.source_vocab_size or self.vocab_size))
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.bos_token_id
        if self.source_vocab_size not in (None, self.vocab_size) and self.tie_source_embeddings:
            raise ConfigError(
                f"tie_source_embeddings is true, but the vocabularies differ: {self.source_vocab_size} words for the "
                f"source, {self.vocab_size} for the target. Share one vocabulary or set it to false."
            )


def block(config: TransformerConfig, *, cross: bool) -> Block:
    width, eps = config.hidden_size, config.layer_norm_eps

    def attention(cross: bool) -> Attention:
        return Attention(
            width,
            config.num_attention_heads,
            cross=cross,
            bias=config.bias,
            dropout=config.attention_dropout,
        )

    def norm() -> LayerNorm:
        return LayerNorm(width, eps=eps, bias=config.bias)

    return Block(
        attention(cross=False),
        FeedForward(
            width,
            config.feedforward_size,
            config.activation,
            bias=config.bias,
            dropout=config.activation_dropout,
        ),
        attention_norm=norm(),
        feedforward_norm=norm(),
        cross_attention=attention(cross=True) if cross else None,
        cross_attention_norm=norm() if cross else None,
        placement="pre" if config.norm_first else "post",
        dropout=config.dropout,
    )


def build(config: TransformerConfig, task: str) -> EncoderDecoderModel:
    width, eps = config.hidden_size, config.layer_norm_eps

    def stack(tokens: nn.Embedding, layers: int, *, decoder: bool) -> Stack:
        length = config.max_position_embeddings
        positions: nn.Module = (
            LearnedPositions(length, width)
            if config.positions == "learned"
            else SinusoidalPositions(length, width, config.sinusoidal_layout)
        )
        scale = math.sqrt(width) if config.scale_embedding else 1.0
        return Stack(
            TokenEmbedder(tokens, positions, dropout=config.dropout, scale=scale),
            [block(config, cross=decoder) for _ in range(layers)],
            LayerNorm(width, eps=eps, bias=config.bias) if config.final_norm else None,
            causal=decoder,
        )

    source_size = config.source_vocab_size or config.vocab_size
    target = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
    source = (
        target if config.tie_source_embeddings else nn.Embedding(source_size, width, padding_idx=config.pad_token_id)
    )
    return EncoderDecoderModel(
        config,
        stack(source, config.encoder_layers, decoder=False),
        stack(target, config.num_hidden_layers, decoder=True),
        LanguageHead(width, config.vocab_size, bias=False, shift=False),
    )


def init(config: TransformerConfig, module: nn.Module) -> None:
    init_xavier(module, embedding_std=config.hidden_size**-0.5)


def checkpoint_map(config: TransformerConfig, task: str) -> CheckpointMap:
    return CheckpointMap(tuple(_entries(config)), prefix="")


def _entries(config: TransformerConfig) -> Iterator[Entry]:
    """Our own format: the names of `torch.nn.Transformer`, but with q, k and v as tensors of their own."""
    yield one("decoder.embed.tokens.weight", "decoder.embed_tokens.weight")
    yield Entry(
        ("encoder.embed.tokens.weight",),
        ("encoder.embed_tokens.weight",),
        tied_to="decoder.embed.tokens.weight" if config.tie_source_embeddings else None,
    )
    tied_output = "decoder.embed.tokens.weight" if config.tie_word_embeddings else None
    yield Entry(("head.output.weight",), ("generator.weight",), tied_to=tied_output)
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.num_hidden_layers)):
        if config.positions == "learned":
            yield one(f"{side}.embed.positions.weight", f"{side}.embed_positions.weight")
        ours, theirs = f"{side}.layers.{{n}}", f"{side}.layers.{{n}}"
        sublayers = [("attention", "self_attn", "norm1")]
        if side == "decoder":
            sublayers.append(("cross_attention", "multihead_attn", "norm2"))
        layer: list[Entry] = []
        for name, published, norm in sublayers:
            for part, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "out")):
                layer += linear(f"{ours}.{name}.{part}", f"{theirs}.{published}.{letter}_proj", bias=config.bias)
            layer += linear(f"{ours}.{name}_norm", f"{theirs}.{norm}", bias=config.bias)
        layer += linear(f"{ours}.feedforward.up", f"{theirs}.linear1", bias=config.bias)
        layer += linear(f"{ours}.feedforward.down", f"{theirs}.linear2", bias=config.bias)
        last = "norm3" if side == "decoder" else "norm2"
        layer += linear(f"{ours}.feedforward_norm", f"{theirs}.{last}", bias=config.bias)
        yield from each_layer(count, layer)
        if config.final_norm:
            yield from linear(f"{side}.final_norm", f"{side}.norm", bias=config.bias)


FAMILY = Family(
    name="transformer",
    title="Transformer (2017)",
    config=TransformerConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={"seq2seq-lm": "TransformerForSeq2SeqLM"},
    default_task="seq2seq-lm",
    parent="rnn-seq2seq",
    own_format=True,
    presets={
        "transformer-base": {},
        "transformer-big": {
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "feedforward_size": 4096,
            "dropout": 0.3,
        },
    },
)
