"""BigBird-Pegasus, for summaries of long documents: Pegasus with learned positions and BigBird's encoder attention."""

import math
import re
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import nn

from clearhead.models import seq2seq
from clearhead.models.checkpoint import CheckpointMap, renamed
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.family import Family
from clearhead.models.model import Model
from clearhead.models.seq2seq import Seq2SeqConfig
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, LearnedPositions, Stack, TokenEmbedder
from clearhead.nn.block_sparse import BlockSparseAttention


@dataclass(kw_only=True)
class BigBirdPegasusConfig(Seq2SeqConfig):
    family: ClassVar[str] = "bigbird_pegasus"
    also_spelt: ClassVar[dict[str, str]] = {"attention_probs_dropout_prob": "attention_dropout"}
    placement = "pre"
    final_norm = True
    positions = "learned"
    target_is_source = True

    vocab_size: int = 96103
    num_hidden_layers: int = 16
    decoder_layers: int = 16
    activation_function: str = "gelu_new"
    max_position_embeddings: int = 4096
    scale_embedding: bool = True
    classifier_dropout: float = 0.0
    attention_type: Literal["block_sparse", "original_full"] = "block_sparse"  # of the encoder
    block_size: int = 64
    num_random_blocks: int = 3
    use_bias: bool = False  # in attention
    pad_token_id: int | None = 0
    bos_token_id: int | None = 2
    eos_token_id: int | list[int] | None = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._probabilities("classifier_dropout")
        self._at_least(1, "block_size")
        self._at_least(0, "num_random_blocks")


def attention(config: BigBirdPegasusConfig, number: int) -> Attention:
    """Of encoder layer `number`, which is also what its random blocks are drawn from."""
    width, heads = config.hidden_size, config.num_attention_heads
    if config.attention_type == "original_full":
        return Attention(width, heads, bias=config.use_bias, dropout=config.attention_dropout)
    return BlockSparseAttention(
        width,
        heads,
        block_size=config.block_size,
        random_blocks=config.num_random_blocks,
        seed=number,
        max_positions=config.max_position_embeddings,
        bias=config.use_bias,
        dropout=config.attention_dropout,
    )


def encoder_block(config: BigBirdPegasusConfig, number: int) -> Block:
    width = config.hidden_size
    return Block(
        attention(config, number),
        FeedForward(width, config.encoder_ffn_dim, config.activation_function),  # no activation_dropout on this side
        attention_norm=LayerNorm(width),
        feedforward_norm=LayerNorm(width),
        dropout=config.dropout,
    )


def decoder_block(config: BigBirdPegasusConfig) -> Block:
    made = seq2seq.block(config, decoder=True)
    width, heads, dropout = config.hidden_size, config.decoder_attention_heads, config.attention_dropout
    made.attention = Attention(width, heads, bias=config.use_bias, dropout=dropout)
    made.cross_attention = Attention(width, heads, cross=True, bias=config.use_bias, dropout=dropout)
    return made


def stack(config: BigBirdPegasusConfig, tokens: nn.Embedding, *, decoder: bool) -> Stack:
    blocks = (
        [decoder_block(config) for _ in range(config.decoder_layers)]
        if decoder
        else [encoder_block(config, n) for n in range(config.num_hidden_layers)]
    )
    return Stack(
        TokenEmbedder(
            tokens,
            LearnedPositions(config.max_position_embeddings, config.hidden_size),
            dropout=config.dropout,
            scale=math.sqrt(config.hidden_size) if config.scale_embedding else 1.0,
            scale_given=config.scales_vectors,
        ),
        blocks,
        LayerNorm(config.hidden_size),
        causal=decoder,
        layer_dropout=config.decoder_layerdrop if decoder else config.encoder_layerdrop,
    )


def build(config: BigBirdPegasusConfig, task: str) -> Model:
    def table() -> nn.Embedding:
        return nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)

    target = table()
    decoder = stack(config, target, decoder=True)
    if task == "causal-lm":  # the decoder alone
        return TokenModel(config, decoder, seq2seq.head(config, task))
    encoder = stack(config, target if config.one_table else table(), decoder=False)
    return EncoderDecoderModel(config, encoder, decoder, seq2seq.head(config, task), target_is_source=True)


# BART's names -> the names here
RENAMED = (
    (r"encoder\.(layers\.\d+)\.self_attn\.q_proj", r"encoder.\1.self_attn.self.query"),
    (r"encoder\.(layers\.\d+)\.self_attn\.k_proj", r"encoder.\1.self_attn.self.key"),
    (r"encoder\.(layers\.\d+)\.self_attn\.v_proj", r"encoder.\1.self_attn.self.value"),
    (r"encoder\.(layers\.\d+)\.self_attn\.out_proj", r"encoder.\1.self_attn.output"),
    (r"coder\.layer_norm\.", "coder.layernorm_embedding."),  # the final norm, whatever its name says
)


def checkpoint_map(config: BigBirdPegasusConfig, task: str) -> CheckpointMap:
    map_ = seq2seq.checkpoint_map(config, task)
    kept = (e for e in map_.entries if config.use_bias or not re.search(r"attention\.\w+\.bias$", e.ours[0]))
    return replace(map_, entries=tuple(renamed(kept, *RENAMED)))


FAMILY = Family(
    name="bigbird_pegasus",
    title="BigBird-Pegasus",
    config=BigBirdPegasusConfig,
    build=build,
    init=seq2seq.init,
    checkpoint_map=checkpoint_map,
    architectures={
        "seq2seq-lm": "BigBirdPegasusForConditionalGeneration",
        "sequence-classification": "BigBirdPegasusForSequenceClassification",
        "question-answering": "BigBirdPegasusForQuestionAnswering",
        "causal-lm": "BigBirdPegasusForCausalLM",
        "features": "BigBirdPegasusModel",
    },
    default_task="seq2seq-lm",
    parent="pegasus",
    presets={
        "bigbird-pegasus-large-arxiv": {},
        "bigbird-pegasus-large-pubmed": {},
        "bigbird-pegasus-large-bigpatent": {},
    },
)
