"""XLNet: guesses words in any order. Positions are distances; it has a memory, and a second stream for its guesses."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from clearhead.errors import ConfigError
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
)
from clearhead.models.segment_recurrent import SegmentRecurrentModel
from clearhead.models.token_config import TokenConfig
from clearhead.nn import FeedForward, LayerNorm, TokenEmbedder
from clearhead.nn.init import init_normal
from clearhead.nn.segment_recurrence import RelativeAttention, SegmentRecurrentBlock, SegmentRecurrentStack


@dataclass(kw_only=True)
class XLNetConfig(TokenConfig):
    family: ClassVar[str] = "xlnet"
    published: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "d_inner",
        "head_dim": "d_head",
    }
    also_spelt: ClassVar[dict[str, str]] = {
        "n_token": "vocab_size",
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
    }
    # start_n_top and end_n_top are of the beam-search answer head, which is not loaded; init* were superseded by
    # initializer_range; there is no limit to positions.
    inert: ClassVar[frozenset[str]] = frozenset(
        "start_n_top end_n_top init init_range init_std max_position_embeddings".split()
    )
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {"untie_r": (True,), "summary_proj_to_labels": (False, None)}

    vocab_size: int = 32000
    hidden_size: int = 1024
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    intermediate_size: int = 4096
    head_dim: int | None = None  # hidden_size / num_attention_heads
    ff_activation: str = "gelu"
    attn_type: Literal["bi", "uni"] = "bi"
    dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    mem_len: int | None = 512  # 0 means all, as None does
    reuse_len: int | None = None
    use_mems_eval: bool = True
    use_mems_train: bool = False
    bi_data: bool = False
    clamp_len: int = -1
    same_length: bool = False
    summary_type: Literal["last", "first", "mean", "cls_index"] = "last"
    summary_use_proj: bool = True
    summary_activation: str | None = "tanh"
    summary_first_dropout: float = 0.0
    summary_last_dropout: float = 0.1
    pad_token_id: int | None = 5
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "intermediate_size")
        self._at_least(0, "mem_len", "reuse_len")
        self._probabilities("dropout", "summary_first_dropout", "summary_last_dropout")
        self._divides(self.hidden_size, self.num_attention_heads)
        if self.head_dim not in (None, self.hidden_size // self.num_attention_heads):
            raise ConfigError(f"d_head is {self.head_dim}; in XLNet it is always d_model / n_head.")


class XLNet(SegmentRecurrentModel):
    config: XLNetConfig

    def uses_mems(self) -> bool:
        return self.config.use_mems_train if self.training else self.config.use_mems_eval


def build(config: XLNetConfig, task: str) -> XLNet:
    width, eps = config.hidden_size, config.layer_norm_eps
    causal = config.attn_type == "uni"

    def block() -> SegmentRecurrentBlock:
        heads = config.num_attention_heads
        return SegmentRecurrentBlock(
            RelativeAttention(width, heads, width // heads, segments=True, dropout=config.dropout),
            FeedForward(width, config.intermediate_size, config.ff_activation, dropout=config.dropout),
            attention_norm=LayerNorm(width, eps=eps),
            feedforward_norm=LayerNorm(width, eps=eps),
            placement="post",
            dropout=config.dropout,
        )

    stack = SegmentRecurrentStack(
        TokenEmbedder(nn.Embedding(config.vocab_size, width), dropout=config.dropout),
        [block() for _ in range(config.num_hidden_layers)],
        causal=causal,
        mem_len=config.mem_len or None,
        reuse_len=config.reuse_len,
        window="memory" if causal and config.same_length else None,
        max_distance=config.clamp_len if config.clamp_len > 0 else None,
        bi_data=config.bi_data,
        two_stream=True,
        width=width,
        dropout=config.dropout,
    )
    return XLNet(config, stack, head(config, task))


def head(config: XLNetConfig, task: str) -> Head:
    width = config.hidden_size
    if task == "permutation-lm":  # labels are the words at the targets, so nothing is shifted
        return LanguageHead(width, config.vocab_size, bias=True, shift=False)
    if task == "token-classification":
        return TokenHead(width, config.num_labels, 0.0)
    if task == "question-answering":
        return SpanHead(width)
    if task == "features":
        return FeaturesHead()
    summary = Summary(
        config,
        # "last" and "cls_index" are the last position, where the tokenizer puts <cls>; it pads on the left
        {"first": "first", "mean": "mean"}.get(config.summary_type, "final"),  # type: ignore[arg-type]
        config.summary_activation or "linear",
        config.summary_first_dropout,
        matrix=config.summary_use_proj,
    )
    if task == "sequence-classification":
        return SequenceHead(config, summary, config.summary_last_dropout)
    return ChoiceHead(summary, width, config.summary_last_dropout)


def init(config: XLNetConfig, module: nn.Module) -> None:
    init_normal(module, config.initializer_range)
    for part in module.modules():
        if isinstance(part, RelativeAttention | SegmentRecurrentStack):
            for parameter in part.parameters(recurse=False):  # the biases of queries, the segments, the target
                with torch.no_grad():
                    parameter.normal_(std=config.initializer_range)


def checkpoint_map(config: XLNetConfig, task: str) -> CheckpointMap:
    return CheckpointMap(tuple(_entries(config, task)), prefix="transformer.")


def _entries(config: XLNetConfig, task: str) -> Iterator[Entry]:
    ours, theirs, heads = "stack.layers.{n}", "layer.{n}", config.num_attention_heads
    # published as (width, heads, head_dim), all of them
    matrices = {"query": "q", "key": "k", "value": "v", "distance": "r", "output": "o"}
    layer = [
        Entry(
            (f"{ours}.attention.{part}.weight",),
            (f"{theirs}.rel_attn.{name}",),
            transpose=part != "output",
            heads=heads,
        )
        for part, name in matrices.items()
    ]
    layer += [
        one(f"{ours}.attention.content_bias", f"{theirs}.rel_attn.r_w_bias"),
        one(f"{ours}.attention.position_bias", f"{theirs}.rel_attn.r_r_bias"),
        one(f"{ours}.attention.segment_bias", f"{theirs}.rel_attn.r_s_bias"),
        one(f"{ours}.attention.segments", f"{theirs}.rel_attn.seg_embed"),
        *linear(f"{ours}.attention_norm", f"{theirs}.rel_attn.layer_norm"),
        *linear(f"{ours}.feedforward.up", f"{theirs}.ff.layer_1"),
        *linear(f"{ours}.feedforward.down", f"{theirs}.ff.layer_2"),
        *linear(f"{ours}.feedforward_norm", f"{theirs}.ff.layer_norm"),
    ]
    yield one("stack.query_embedding", "mask_emb")
    yield one("stack.embed.tokens.weight", "word_embedding.weight")
    yield from layers(config.num_hidden_layers, layer)
    if task == "permutation-lm":
        tied_to = "stack.embed.tokens.weight" if config.tie_word_embeddings else None
        yield Entry(("head.output.weight",), ("lm_loss.weight",), in_body=False, tied_to=tied_to)
        yield one("head.output.bias", "lm_loss.bias", in_body=False)
    if task in ("sequence-classification", "multiple-choice"):
        if config.summary_use_proj:
            yield from linear("head.pooler.dense", "sequence_summary.summary", in_body=False)
        yield from linear("head.output", "logits_proj", in_body=False)
    if task == "token-classification":
        yield from linear("head.output", "classifier", in_body=False)
    if task == "question-answering":
        yield from linear("head.output", "qa_outputs", in_body=False)


FAMILY = Family(
    name="xlnet",
    title="XLNet",
    parent="transfo-xl",
    config=XLNetConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "permutation-lm": "XLNetLMHeadModel",
        "sequence-classification": "XLNetForSequenceClassification",
        "token-classification": "XLNetForTokenClassification",
        "question-answering": "XLNetForQuestionAnsweringSimple",
        "multiple-choice": "XLNetForMultipleChoice",
        "features": "XLNetModel",
    },
    default_task="permutation-lm",
    presets={
        "xlnet-base-cased": {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "mem_len": None,
        },
        "xlnet-large-cased": {"mem_len": None},
    },
)
