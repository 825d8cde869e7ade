"""What BART and its relatives share: an encoder and a decoder, one vocabulary table for both, a head for each task.

They differ in where the norms stand, in how positions are made and in what their tables share. A family says so in
the class variables of its config (`bart.py`, `mbart.py`, `m2m_100.py`, `marian.py`, `pegasus.py`); the rest is here.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from torch import nn

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, linear, one
from clearhead.models.checkpoint import layers as each_layer
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.heads import FeaturesHead, Head, LanguageHead, SequenceHead, SpanHead, Summary
from clearhead.models.model import Model
from clearhead.models.stack_model import TokenModel
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
from clearhead.nn.block import Placement
from clearhead.nn.init import init_normal

OFFSET = 2  # rows before the first position in tables of learned positions


@dataclass(kw_only=True)
class Seq2SeqConfig(TokenConfig):
    """`num_hidden_layers` and `num_attention_heads` are the encoder's, as in the published files."""

    published: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "initializer_range": "init_std",
    }
    # Which part is loaded decides whether there is an encoder; every decoder layer has cross-attention. The rest are
    # switches that never reached the network, and notes on how a model was trained.
    inert: ClassVar[frozenset[str]] = frozenset(
        "is_encoder_decoder is_decoder add_cross_attention add_bias_logits save_step replacing_rate "
        "student_encoder_layers student_decoder_layers classifier_dropout classif_dropout".split()
    )

    # How the family is built.
    placement: ClassVar[Placement] = "pre"
    embedding_norm: ClassVar[bool] = False
    final_norm: ClassVar[bool] = False
    logits_bias: ClassVar[bool] = True
    scales_vectors: ClassVar[bool] = False  # whether a decoder scales vectors that it is given in place of words
    # "real tokens" counts what is not padding, from pad_token_id + 1 on
    positions: ClassVar[Literal["learned", "sinusoidal", "real tokens"]] = "sinusoidal"
    target_is_source: ClassVar[bool] = False  # a decoder given nothing reads the source, one step late

    vocab_size: int = 50265
    hidden_size: int = 1024
    num_hidden_layers: int = 12
    decoder_layers: int = 12
    num_attention_heads: int = 16
    decoder_attention_heads: int = 16
    encoder_ffn_dim: int = 4096
    decoder_ffn_dim: int = 4096
    activation_function: str = "gelu"
    max_position_embeddings: int = 1024
    scale_embedding: bool = False  # multiply token vectors by √d_model
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    encoder_layerdrop: float = 0.0
    decoder_layerdrop: float = 0.0
    initializer_range: float = 0.02
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 2

    def __init_subclass__(cls) -> None:
        """Older files spell out what a family is; they must say what it is here."""
        cls.fixed = {
            "normalize_before": (cls.placement == "pre",),
            "normalize_embedding": (cls.embedding_norm,),
            "add_final_layer_norm": (cls.final_norm,),
            "static_position_embeddings": (cls.positions != "learned",),
            "do_blenderbot_90_layernorm": (False,),  # of another family, whose options BART's files once carried
        }
        if cls.positions == "learned":
            cls.fixed["extra_pos_embeddings"] = (OFFSET,)
        else:
            cls.inert = cls.inert | {"extra_pos_embeddings"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "decoder_layers", "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim")
        self._at_least(1, "max_position_embeddings")
        self._probabilities("dropout", "attention_dropout", "activation_dropout")
        self._probabilities("encoder_layerdrop", "decoder_layerdrop")
        for side, heads in (("encoder", self.num_attention_heads), ("decoder", self.decoder_attention_heads)):
            if self.hidden_size % heads:
                raise ConfigError(
                    f"d_model is {self.hidden_size}, which {side}_attention_heads = {heads} cannot divide."
                )
        self._padding_within(min(self.vocab_size, self.target_size))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], ignore: Iterable[str] = (), strict: bool = False) -> Self:
        raw = dict(raw)
        # an older way to say that the beginning is forced
        if raw.pop("force_bos_token_to_be_generated", False) and raw.get("forced_bos_token_id") is None:
            raw["forced_bos_token_id"] = raw.get("bos_token_id", cls.bos_token_id)
        return super().from_dict(raw, ignore, strict)

    @property
    def target_size(self) -> int:
        """How many words the decoder knows."""
        return self.vocab_size

    @property
    def one_table(self) -> bool:
        """Whether encoder and decoder look words up in the same table."""
        return self.tie_word_embeddings


def embed(config: Seq2SeqConfig, tokens: nn.Embedding, *, decoder: bool) -> TokenEmbedder:
    width, length, padding_position = config.hidden_size, config.max_position_embeddings, None
    positions: nn.Module
    if config.positions == "learned":
        positions = LearnedPositions(length, width, offset=OFFSET)
    elif config.positions == "sinusoidal":
        positions = SinusoidalPositions(length, width, "halves")
    else:
        padding_position = config.pad_token_id
        assert padding_position is not None
        positions = SinusoidalPositions(
            length + padding_position + 1, width, "halves", endpoint=True, padding_idx=padding_position
        )
    return TokenEmbedder(
        tokens,
        positions,
        norm=LayerNorm(width) if config.embedding_norm else None,
        dropout=config.dropout,
        scale=math.sqrt(width) if config.scale_embedding else 1.0,
        scale_given=decoder and config.scales_vectors,
        padding_position=padding_position,
    )


def block(config: Seq2SeqConfig, *, decoder: bool) -> Block:
    width = config.hidden_size
    heads = config.decoder_attention_heads if decoder else config.num_attention_heads
    hidden = config.decoder_ffn_dim if decoder else config.encoder_ffn_dim
    return Block(
        Attention(width, heads, dropout=config.attention_dropout),
        FeedForward(width, hidden, config.activation_function, dropout=config.activation_dropout),
        attention_norm=LayerNorm(width),
        feedforward_norm=LayerNorm(width),
        cross_attention=Attention(width, heads, cross=True, dropout=config.attention_dropout) if decoder else None,
        cross_attention_norm=LayerNorm(width) if decoder else None,
        placement=config.placement,
        dropout=config.dropout,
    )


def stack(config: Seq2SeqConfig, tokens: nn.Embedding, *, decoder: bool) -> Stack:
    count = config.decoder_layers if decoder else config.num_hidden_layers
    return Stack(
        embed(config, tokens, decoder=decoder),
        [block(config, decoder=decoder) for _ in range(count)],
        LayerNorm(config.hidden_size) if config.final_norm else None,
        causal=decoder,
        layer_dropout=config.decoder_layerdrop if decoder else config.encoder_layerdrop,
    )


def build(config: Seq2SeqConfig, task: str, shape: type[EncoderDecoderModel] = EncoderDecoderModel) -> Model:
    def table(size: int) -> nn.Embedding:
        return nn.Embedding(size, config.hidden_size, padding_idx=config.pad_token_id)

    target = table(config.target_size)
    decoder = stack(config, target, decoder=True)
    if task == "causal-lm":  # the decoder alone
        return TokenModel(config, decoder, head(config, task))
    encoder = stack(config, target if config.one_table else table(config.vocab_size), decoder=False)
    return shape(config, encoder, decoder, head(config, task), target_is_source=config.target_is_source)


def head(config: Seq2SeqConfig, task: str) -> Head:
    width = config.hidden_size
    if task == "seq2seq-lm":
        words = LanguageHead(width, config.target_size, bias=config.logits_bias, shift=False)
        if config.logits_bias:
            words.output.bias.requires_grad_(False)  # published as a constant, which training leaves alone
        return words
    if task == "causal-lm":  # the published loss takes labels that are the next tokens already
        return LanguageHead(width, config.target_size, bias=False, shift=True, labels_shifted=True)
    if task == "sequence-classification":
        rate: float = getattr(config, "classifier_dropout", 0.0)
        return SequenceHead(config, Summary(config, "end", dropout=rate), rate)
    if task == "question-answering":
        return SpanHead(width)
    return FeaturesHead()


def init(config: Seq2SeqConfig, module: nn.Module) -> None:
    init_normal(module, config.initializer_range)


def checkpoint_map(config: Seq2SeqConfig, task: str) -> CheckpointMap:
    # Tables of computed positions, which many files store, and a version number of fairseq's.
    computed = "" if config.positions == "learned" else r"|embed_positions\.(weights?|_float_tensor)"
    return CheckpointMap(
        tuple(_entries(config, task)),
        prefix="model.",
        skipped=(rf"(model\.)?(encoder|decoder)\.(version{computed})",),
    )


def _entries(config: Seq2SeqConfig, task: str) -> Iterator[Entry]:
    decoder = "stack" if task == "causal-lm" else "decoder"
    yield from _tables(config, task, decoder)
    if task != "causal-lm":
        yield from _stack_entries(config, "encoder", "encoder", config.num_hidden_layers)
    yield from _stack_entries(config, decoder, "decoder", config.decoder_layers)
    if task in ("seq2seq-lm", "causal-lm"):
        tied_to = f"{decoder}.embed.tokens.weight" if config.tie_word_embeddings else None
        yield Entry(("head.output.weight",), ("lm_head.weight",), in_body=False, tied_to=tied_to)
    if task == "seq2seq-lm" and config.logits_bias:
        yield Entry(("head.output.bias",), ("final_logits_bias",), flat=True, in_body=False, optional=True)
    elif task == "sequence-classification":
        yield from linear("head.pooler.dense", "classification_head.dense", in_body=False)
        yield from linear("head.output", "classification_head.out_proj", in_body=False)
    elif task == "question-answering":
        yield from linear("head.output", "qa_outputs", in_body=False)


def _tables(config: Seq2SeqConfig, task: str, decoder: str) -> Iterator[Entry]:
    """One table is stored as `shared`, and often again on either side; of two, each side stores its own."""
    shared, source, target = "shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
    ours = f"{decoder}.embed.tokens.weight"
    if task == "causal-lm":
        yield Entry((ours,), (target,), or_else=(target, shared))
    elif config.one_table:
        yield Entry((ours,), (shared,), or_else=(shared, target, source), one_tensor=True)
    else:
        copies = (shared,) if config.target_size == config.vocab_size else ()
        yield Entry((ours,), (target,), or_else=(target, shared))
        yield Entry(("encoder.embed.tokens.weight",), (source,), or_else=(source, shared), copies=copies)


def _stack_entries(config: Seq2SeqConfig, ours: str, theirs: str, count: int) -> Iterator[Entry]:
    if config.positions == "learned":
        yield one(f"{ours}.embed.positions.weight", f"{theirs}.embed_positions.weight")
    if config.embedding_norm:
        yield from linear(f"{ours}.embed.norm", f"{theirs}.layernorm_embedding")
    here, there = f"{ours}.layers.{{n}}", f"{theirs}.layers.{{n}}"
    layer: list[Entry] = []
    for name, published in (("attention", "self_attn"), ("cross_attention", "encoder_attn")):
        if name == "cross_attention" and theirs == "encoder":
            continue
        for part, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "out")):
            layer += linear(f"{here}.{name}.{part}", f"{there}.{published}.{letter}_proj")
        layer += linear(f"{here}.{name}_norm", f"{there}.{published}_layer_norm")
    layer += linear(f"{here}.feedforward.up", f"{there}.fc1")
    layer += linear(f"{here}.feedforward.down", f"{there}.fc2")
    layer += linear(f"{here}.feedforward_norm", f"{there}.final_layer_norm")
    yield from each_layer(count, layer)
    if config.final_norm:
        yield from linear(f"{ours}.final_norm", f"{theirs}.layer_norm")
