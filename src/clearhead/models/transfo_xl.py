"""Transformer-XL: a causal stack that remembers earlier text, with distances for positions and an adaptive softmax."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, linear, one
from clearhead.models.family import Family
from clearhead.models.heads import FeaturesHead, Head, HeadInputs, LanguageHead, SequenceHead, Summary
from clearhead.models.output import Output
from clearhead.models.segment_recurrent import SegmentRecurrentModel
from clearhead.models.token_config import TokenConfig
from clearhead.nn import FeedForward, LayerNorm, TokenEmbedder
from clearhead.nn.adaptive import AdaptiveEmbedding, AdaptiveSoftmax
from clearhead.nn.segment_recurrence import RelativeAttention, SegmentRecurrentBlock, SegmentRecurrentStack


@dataclass(kw_only=True)
class TransfoXLConfig(TokenConfig):
    family: ClassVar[str] = "transfo-xl"
    published: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "d_inner",
        "head_dim": "d_head",
        "embedding_size": "d_embed",
    }
    also_spelt: ClassVar[dict[str, str]] = {
        "n_token": "vocab_size",
        "tie_weight": "tie_word_embeddings",
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
    }
    # tgt_len is how long training texts were; trainer_compatible orders a tuple; there is no limit to positions.
    inert: ClassVar[frozenset[str]] = frozenset("tgt_len trainer_compatible max_position_embeddings".split())
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {
        "attn_type": (0,),  # 1 to 3: other papers' attention
        "sample_softmax": (-1, 0),
        "ext_len": (0,),
    }

    vocab_size: int = 267735
    hidden_size: int = 1024
    num_hidden_layers: int = 18
    num_attention_heads: int = 16
    intermediate_size: int = 4096
    head_dim: int = 64
    embedding_size: int = 1024
    cutoffs: list[int] = field(default_factory=lambda: [20000, 40000, 200000])
    div_val: int = 4
    adaptive: bool = True
    proj_share_all_but_first: bool = True
    tie_projs: list[bool] | None = None  # by proj_share_all_but_first: none, or all but the first cluster's
    pre_lnorm: bool = False
    mem_len: int = 1600
    clamp_len: int = 1000
    same_length: bool = True
    untie_r: bool = True
    dropout: float = 0.1
    dropatt: float = 0.0
    layer_norm_epsilon: float = 1e-5
    init: Literal["normal", "uniform"] = "normal"
    init_range: float = 0.01
    init_std: float = 0.02
    proj_init_std: float = 0.01
    eos_token_id: int | list[int] | None = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "intermediate_size", "head_dim", "embedding_size", "div_val")
        self._at_least(0, "mem_len")
        self._probabilities("dropout", "dropatt")
        if self.same_length and not self.mem_len:
            raise ConfigError("same_length lets a word see mem_len words back, and mem_len is 0: it would see nothing.")
        if not self.adaptive and (self.cutoffs or self.div_val != 1):
            raise ConfigError("adaptive is false, but there are cutoffs or a div_val: say cutoffs = [], div_val = 1.")
        if self.tie_projs is not None and len(self.tie_projs) > len(self.cutoffs) + 1:
            raise ConfigError(f"tie_projs says more than there are clusters: {len(self.cutoffs) + 1}.")

    def tied_projection(self, cluster: int) -> int | None:
        """Which matrix of the embedding the output uses for this cluster; None: one of its own."""
        tied = self.tie_projs
        if tied is None:
            tied = [False] + [self.proj_share_all_but_first] * len(self.cutoffs)
        if cluster >= len(tied) or not tied[cluster]:
            return None
        return 0 if self.div_val == 1 else cluster

    @property
    def projected(self) -> bool:
        return self.div_val != 1 or self.hidden_size != self.embedding_size


class AdaptiveHead(LanguageHead):
    """`logits` are log-probabilities. With labels there is a loss alone: all scores would cost what clusters save."""

    output: AdaptiveSoftmax

    def __init__(self, config: TransfoXLConfig) -> None:
        output = AdaptiveSoftmax(*_vocabulary(config))
        super().__init__(config.hidden_size, config.vocab_size, bias=True, shift=True, output=output)

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        if inputs.labels is None:
            return super().forward(hidden, inputs)
        if inputs.labels.shape != hidden.shape[:2]:
            raise InputError(f"labels must have the shape {tuple(hidden.shape[:2])}, not {tuple(inputs.labels.shape)}.")
        return Output(loss=self.output.loss(hidden[:, :-1].flatten(0, 1), inputs.labels[:, 1:].flatten()))


class TransfoXL(SegmentRecurrentModel):
    config: TransfoXLConfig

    def tie_weights(self) -> None:
        config, tokens = self.config, self.stack.embed.tokens
        if not config.untie_r:
            first = self.stack.blocks[0].attention
            for block in self.stack.blocks:
                block.attention.content_bias, block.attention.position_bias = first.content_bias, first.position_bias
        if not isinstance(self.head, AdaptiveHead):
            return
        assert isinstance(tokens, AdaptiveEmbedding)
        if config.tie_word_embeddings:
            for out, table in zip(self.head.output.tables, tokens.tables, strict=True):
                out.weight = table.weight
        for cluster in range(len(self.head.output.projections)):
            source = config.tied_projection(cluster)
            if source is not None:
                self.head.output.projections[cluster] = tokens.projections[source]


def _vocabulary(config: TransfoXLConfig) -> tuple[int, int, int, list[int], int]:
    return config.vocab_size, config.hidden_size, config.embedding_size, config.cutoffs, config.div_val


def build(config: TransfoXLConfig, task: str) -> TransfoXL:
    width, eps = config.hidden_size, config.layer_norm_epsilon

    def block() -> SegmentRecurrentBlock:
        return SegmentRecurrentBlock(
            RelativeAttention(width, config.num_attention_heads, config.head_dim, fused=True, dropout=config.dropatt),
            FeedForward(width, config.intermediate_size, "relu", dropout=config.dropout),
            attention_norm=LayerNorm(width, eps=eps),
            feedforward_norm=LayerNorm(width, eps=eps),
            placement="pre" if config.pre_lnorm else "post",
            dropout=config.dropout,
        )

    stack = SegmentRecurrentStack(
        TokenEmbedder(AdaptiveEmbedding(*_vocabulary(config)), dropout=config.dropout),  # type: ignore[arg-type]
        [block() for _ in range(config.num_hidden_layers)],
        causal=True,
        mem_len=config.mem_len,
        zero_memory=True,
        window=config.mem_len if config.same_length else None,
        max_distance=config.clamp_len if config.clamp_len > 0 else None,
        width=width,
        dropout=config.dropout,
    )
    return TransfoXL(config, stack, head(config, task))


def head(config: TransfoXLConfig, task: str) -> Head:
    if task == "causal-lm":
        return AdaptiveHead(config)
    if task == "sequence-classification":
        return SequenceHead(config, Summary(config, "last", activation=None), bias=False)
    return FeaturesHead()


@torch.no_grad()
def init(config: TransfoXLConfig, module: nn.Module) -> None:
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            if isinstance(part, nn.ParameterList):  # the projections of the clusters
                parameter.normal_(std=config.proj_init_std)
            elif isinstance(part, nn.LayerNorm) and parameter is part.weight:
                parameter.normal_(1.0, config.init_std)
            elif parameter.ndim == 1:
                parameter.zero_()
            elif config.init == "uniform":
                parameter.uniform_(-config.init_range, config.init_range)
            else:
                parameter.normal_(std=config.init_std)


def checkpoint_map(config: TransfoXLConfig, task: str) -> CheckpointMap:
    return CheckpointMap(
        tuple(_entries(config, task)), prefix="transformer.", skipped=(r"(transformer\.)?pos_emb\.inv_freq",)
    )


def _entries(config: TransfoXLConfig, task: str) -> Iterator[Entry]:
    ours, theirs = "stack.layers.{n}", "layers.{n}"
    layer = [
        one(f"{ours}.attention.qkv.weight", f"{theirs}.dec_attn.qkv_net.weight"),
        one(f"{ours}.attention.output.weight", f"{theirs}.dec_attn.o_net.weight"),
        one(f"{ours}.attention.distance.weight", f"{theirs}.dec_attn.r_net.weight"),
        *linear(f"{ours}.attention_norm", f"{theirs}.dec_attn.layer_norm"),
        *linear(f"{ours}.feedforward.up", f"{theirs}.pos_ff.CoreNet.0"),
        *linear(f"{ours}.feedforward.down", f"{theirs}.pos_ff.CoreNet.3"),
        *linear(f"{ours}.feedforward_norm", f"{theirs}.pos_ff.layer_norm"),
    ]
    clusters = len(config.cutoffs) + 1
    tables = 1 if config.div_val == 1 else clusters
    for n in range(tables):
        yield one(f"stack.embed.tokens.tables.{n}.weight", f"word_emb.emb_layers.{n}.weight")
        if config.projected:
            yield one(f"stack.embed.tokens.projections.{n}", f"word_emb.emb_projs.{n}")
    yield from layers(config.num_hidden_layers, layer)
    for part, name in (("content_bias", "r_w_bias"), ("position_bias", "r_r_bias")):
        yield from _query_bias(config, part, name)
    if task == "sequence-classification":
        yield one("head.output.weight", "score.weight", in_body=False)
    if task != "causal-lm":
        return
    for n in range(tables):
        tied_to = f"stack.embed.tokens.tables.{n}.weight" if config.tie_word_embeddings else None
        weight = one(f"head.output.tables.{n}.weight", f"crit.out_layers.{n}.weight", in_body=False)
        yield replace(weight, tied_to=tied_to)
        yield one(f"head.output.tables.{n}.bias", f"crit.out_layers.{n}.bias", in_body=False)
    for n in range(clusters if config.projected else 0):
        source = config.tied_projection(n)
        tied_to = None if source is None else f"stack.embed.tokens.projections.{source}"
        yield replace(one(f"head.output.projections.{n}", f"crit.out_projs.{n}", in_body=False), tied_to=tied_to)
    if config.cutoffs:
        yield one("head.output.cluster.weight", "crit.cluster_weight", in_body=False)
        yield one("head.output.cluster.bias", "crit.cluster_bias", in_body=False)


def _query_bias(config: TransfoXLConfig, part: str, name: str) -> Iterator[Entry]:
    """Each layer's own; or one for all, which older files hold once and again in every layer."""
    for n in range(config.num_hidden_layers):
        ours, theirs = f"stack.layers.{n}.attention.{part}", f"layers.{n}.dec_attn.{name}"
        if config.untie_r:
            yield one(ours, theirs)
        elif n == 0:
            yield Entry((ours,), (name,), or_else=(name, theirs))
        else:
            yield Entry((ours,), (theirs,), tied_to=f"stack.layers.0.attention.{part}")


FAMILY = Family(
    name="transfo-xl",
    title="Transformer-XL",
    parent="transformer",
    config=TransfoXLConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "causal-lm": "TransfoXLLMHeadModel",
        "sequence-classification": "TransfoXLForSequenceClassification",
        "features": "TransfoXLModel",
    },
    default_task="causal-lm",
    presets={"transfo-xl-wt103": {}},
)
