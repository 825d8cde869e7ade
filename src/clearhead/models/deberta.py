"""DeBERTa: BERT with disentangled attention, where what a token is and where it stands are kept apart.

The second version (v2 and v3, in deberta_v2.py) is assembled from the same parts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, linear, one
from clearhead.models.family import Family
from clearhead.models.heads import (
    ChoiceHead,
    FeaturesHead,
    Head,
    HeadInputs,
    LanguageHead,
    SequenceHead,
    SpanHead,
    Summary,
    TokenHead,
    WordTransform,
)
from clearhead.models.output import Output
from clearhead.models.stack_model import TokenModel
from clearhead.models.token_config import TokenConfig
from clearhead.nn import Block, FeedForward, LayerNorm, LearnedPositions, Stack, TokenEmbedder
from clearhead.nn.disentangled import DisentangledAttention, RelativeVectors
from clearhead.nn.init import init_normal
from clearhead.nn.linear import Linear


@dataclass(kw_only=True)
class DisentangledConfig(TokenConfig):
    """What both versions share."""

    # padding_idx repeats pad_token_id; vocab_type names the tokenizer
    inert: ClassVar[frozenset[str]] = frozenset({"padding_idx", "vocab_type", "max_seq_length"})
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {"z_steps": (0, 1)}

    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    cls_dropout: float | None = None  # hidden_dropout_prob
    max_position_embeddings: int = 512
    type_vocab_size: int = 0
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-7
    embedding_size: int | None = None  # hidden_size
    attention_head_size: int | None = None  # hidden_size / num_attention_heads, and nothing else
    position_biased_input: bool = True  # absolute positions, added to the embedding
    relative_attention: bool = False
    pos_att_type: str | list[str] | None = None  # of "c2p", "p2c"; old files: "c2p|p2c"
    max_relative_positions: int = -1  # max_position_embeddings
    pooler_dropout: float = 0.0
    pooler_hidden_act: str = "gelu"
    pooler_hidden_size: int | None = None  # hidden_size, and nothing else
    legacy: bool = True  # how the masked-lm head is spelt in the file: cls.predictions, or lm_predictions.lm_head
    pad_token_id: int | None = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "intermediate_size", "max_position_embeddings", "embedding_size")
        self._at_least(0, "type_vocab_size")
        self._probabilities("hidden_dropout_prob", "attention_probs_dropout_prob", "cls_dropout", "pooler_dropout")
        self._divides(self.hidden_size, self.num_attention_heads)
        self._padding_within(self.vocab_size)
        # written out as numbers, because transformers reads a null literally
        self.embedding_size = self.embedding_size or self.hidden_size
        head_size = self.hidden_size // self.num_attention_heads
        for name, only in (("attention_head_size", head_size), ("pooler_hidden_size", self.hidden_size)):
            if getattr(self, name) not in (None, only):
                raise ConfigError(f"{name} is {getattr(self, name)}; the published model works with {only} alone.")
            setattr(self, name, only)
        types = self.pos_att_type
        types = types.lower().split("|") if isinstance(types, str) else types or []
        self.pos_att_type = [kind.strip() for kind in types]
        if set(self.pos_att_type) - {"c2p", "p2c"} or len(set(self.pos_att_type)) < len(self.pos_att_type):
            raise ConfigError(f"pos_att_type is {types}; Clearhead implements c2p and p2c, each at most once.")
        if not self.legacy:
            self.tie_word_embeddings = True  # the newer head has no output matrix of its own

    @property
    def distances(self) -> int:
        """How far relative positions reach."""
        return self.max_relative_positions if self.max_relative_positions > 0 else self.max_position_embeddings


@dataclass(kw_only=True)
class DebertaConfig(DisentangledConfig):
    family: ClassVar[str] = "deberta"
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {  # options of the second version
        **DisentangledConfig.fixed,
        "position_buckets": (-1, 0, None),
        "norm_rel_ebd": ("none", None),
        "share_att_key": (False, None),
        "conv_kernel_size": (0, None),
    }

    vocab_size: int = 50265
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    talking_head: bool = False


class SoftSequenceHead(SequenceHead):
    """A head that reads a row of numbers per text as how likely each class is, unless problem_type says otherwise."""

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        labels = inputs.labels
        if labels is None or labels.ndim < 2 or labels.shape[-1] == 1 or self.config.problem_type is not None:
            return super().forward(hidden, inputs)
        out = super().forward(hidden, HeadInputs(inputs.input_ids))
        assert out.logits is not None
        out.loss = F.cross_entropy(out.logits, labels.to(out.logits.dtype))
        return out


def block(
    config: DisentangledConfig, attention: DisentangledAttention, kind: type[Block] = Block, **options: Any
) -> Block:
    width, eps = config.hidden_size, config.layer_norm_eps
    return kind(
        attention,
        FeedForward(width, config.intermediate_size, config.hidden_act),
        attention_norm=LayerNorm(width, eps=eps),
        feedforward_norm=LayerNorm(width, eps=eps),
        placement="post",
        dropout=config.hidden_dropout_prob,
        **options,
    )


def assemble(
    config: DisentangledConfig, task: str, blocks: list[Block], distances: RelativeVectors | None
) -> TokenModel:
    """Embedding, the given layers and their table of distances, and the head for the task."""
    width, narrow = config.hidden_size, config.embedding_size or config.hidden_size
    norm: nn.Module = LayerNorm(width, eps=config.layer_norm_eps)
    if narrow != width:  # widened first, then normalised
        norm = nn.Sequential(Linear(narrow, width, bias=False), norm)
    stack = Stack(
        TokenEmbedder(
            nn.Embedding(config.vocab_size, narrow, padding_idx=config.pad_token_id),
            LearnedPositions(config.max_position_embeddings, narrow) if config.position_biased_input else None,
            nn.Embedding(config.type_vocab_size, narrow) if config.type_vocab_size else None,
            norm=norm,
            dropout=config.hidden_dropout_prob,
        ),
        blocks,
        causal=False,
        position_bias=distances,
        blank_padding="embedding",
    )
    return TokenModel(config, stack, head(config, task))


def head(config: DisentangledConfig, task: str) -> Head:
    width, narrow = config.hidden_size, config.embedding_size or config.hidden_size
    dropout = config.hidden_dropout_prob if config.cls_dropout is None else config.cls_dropout

    def pooler() -> Summary:
        return Summary(config, activation=config.pooler_hidden_act, dropout=config.pooler_dropout)

    if task == "masked-lm":
        if not config.legacy and narrow != width:
            raise ConfigError("The masked-lm head of legacy: false needs an embedding_size equal to hidden_size.")
        transform = WordTransform(width, config.hidden_act, config.layer_norm_eps, narrow)
        return LanguageHead(narrow, config.vocab_size, bias=True, shift=False, transform=transform)
    if task == "sequence-classification":
        return SoftSequenceHead(config, pooler(), dropout)
    if task == "token-classification":
        return TokenHead(width, config.num_labels, config.hidden_dropout_prob)
    if task == "question-answering":
        return SpanHead(width)
    if task == "multiple-choice":
        return ChoiceHead(pooler(), width, dropout)
    return FeaturesHead()


def build(config: DebertaConfig, task: str) -> TokenModel:
    distances = RelativeVectors(config.distances, config.hidden_size) if config.relative_attention else None
    blocks = []
    for _ in range(config.num_hidden_layers):
        attention = DisentangledAttention(
            config.hidden_size,
            config.num_attention_heads,
            terms=tuple(config.pos_att_type or ()),
            relative=config.relative_attention,
            span=config.distances,
            fused=True,
            talking_heads=config.talking_head,
            dropout=config.attention_probs_dropout_prob,
            position_dropout=config.hidden_dropout_prob,
        )
        blocks.append(block(config, attention))
    return assemble(config, task, blocks, distances)


def init(config: DisentangledConfig, module: nn.Module) -> None:
    init_normal(module, config.initializer_range)
    for part in module.modules():
        if isinstance(part, DisentangledAttention) and part.fused:
            nn.init.zeros_(part.query_bias)
            nn.init.zeros_(part.value_bias)
        elif isinstance(part, nn.Conv1d):
            part.reset_parameters()  # as torch draws it: the published code does not touch it


def checkpoint_map(config: DebertaConfig, task: str) -> CheckpointMap:
    ours, theirs = "stack.layers.{n}.attention", "encoder.layer.{n}.attention.self"
    attention = [
        one(f"{ours}.qkv.weight", f"{theirs}.in_proj.weight"),
        one(f"{ours}.query_bias", f"{theirs}.q_bias"),
        one(f"{ours}.value_bias", f"{theirs}.v_bias"),
    ]
    if config.talking_head:
        attention.append(one(f"{ours}.mix_scores.weight", f"{theirs}.head_logits_proj.weight"))
        attention.append(one(f"{ours}.mix_weights.weight", f"{theirs}.head_weights_proj.weight"))
    if config.relative_attention and "c2p" in (config.pos_att_type or ()):
        attention.append(one(f"{ours}.position_key.weight", f"{theirs}.pos_proj.weight"))
    if config.relative_attention and "p2c" in (config.pos_att_type or ()):
        attention += linear(f"{ours}.position_query", f"{theirs}.pos_q_proj")
    return map_of(config, task, attention)


def map_of(
    config: DisentangledConfig, task: str, attention: list[Entry], more: list[Entry] | None = None, unread: str = ""
) -> CheckpointMap:
    """The whole map, given the entries of one layer's queries, keys and values, and any more of the body."""
    unread = r"embeddings\.position_ids" + unread
    if not config.position_biased_input:
        unread += r"|embeddings\.position_embeddings\.weight"
    return CheckpointMap(
        (*_body(config, attention), *(more or ()), *_head(config, task)),
        prefix="deberta.",
        # mask_predictions: the discriminator that v3 was pretrained with
        skipped=(rf"(deberta\.)?({unread})", r"mask_predictions\..*"),
    )


def _body(config: DisentangledConfig, attention: list[Entry]) -> Iterator[Entry]:
    ours, theirs = "stack.layers.{n}", "encoder.layer.{n}"
    layer = [
        *attention,
        *linear(f"{ours}.attention.output", f"{theirs}.attention.output.dense"),
        *linear(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm"),
        *linear(f"{ours}.feedforward.up", f"{theirs}.intermediate.dense"),
        *linear(f"{ours}.feedforward.down", f"{theirs}.output.dense"),
        *linear(f"{ours}.feedforward_norm", f"{theirs}.output.LayerNorm"),
    ]
    yield one("stack.embed.tokens.weight", "embeddings.word_embeddings.weight")
    if config.position_biased_input:
        yield one("stack.embed.positions.weight", "embeddings.position_embeddings.weight")
    if config.type_vocab_size:
        yield one("stack.embed.segments.weight", "embeddings.token_type_embeddings.weight")
    if config.embedding_size == config.hidden_size:
        yield from linear("stack.embed.norm", "embeddings.LayerNorm")
    else:
        yield one("stack.embed.norm.0.weight", "embeddings.embed_proj.weight")
        yield from linear("stack.embed.norm.1", "embeddings.LayerNorm")
    if config.relative_attention:
        yield one("stack.position_bias.table.weight", "encoder.rel_embeddings.weight")
    yield from layers(config.num_hidden_layers, layer)


def _head(config: DisentangledConfig, task: str) -> Iterator[Entry]:
    if task == "masked-lm":
        # One head, spelt in two ways. Published files hold the newer spelling whatever their config says of `legacy`.
        spellings = ("cls.predictions", "lm_predictions.lm_head")
        for part, in_legacy in (("dense", "transform.dense"), ("norm", "transform.LayerNorm")):
            for kind in ("weight", "bias"):
                old = f"{spellings[0]}.{in_legacy}.{kind}"
                new = f"{spellings[1]}.{in_legacy.removeprefix('transform.')}.{kind}"
                yield _either(f"head.transform.{part}.{kind}", *((old, new) if config.legacy else (new, old)))
        yield Entry(
            ("head.output.weight",),
            (f"{spellings[0]}.decoder.weight",),
            in_body=False,
            tied_to="stack.embed.tokens.weight" if config.tie_word_embeddings else None,
        )
        # as with BERT: stored once where embeddings are tied, under two names where they are not
        bias, decoder, new = f"{spellings[0]}.bias", f"{spellings[0]}.decoder.bias", f"{spellings[1]}.bias"
        if not config.legacy:
            yield _either("head.output.bias", new, bias)
        elif config.tie_word_embeddings:
            yield _either("head.output.bias", bias, decoder, new)
        else:
            yield _either("head.output.bias", decoder, bias, new, copies=(bias,))
    if task in ("sequence-classification", "multiple-choice"):
        yield from linear("head.pooler.dense", "pooler.dense", in_body=False)
    if task in ("sequence-classification", "token-classification", "multiple-choice"):
        yield from linear("head.output", "classifier", in_body=False)
    if task == "question-answering":
        yield from linear("head.output", "qa_outputs", in_body=False)


def _either(ours: str, theirs: str, *others: str, copies: tuple[str, ...] = ()) -> Entry:
    return Entry((ours,), (theirs,), in_body=False, or_else=(theirs, *others), copies=copies)


FAMILY = Family(
    name="deberta",
    title="DeBERTa",
    config=DebertaConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "masked-lm": "DebertaForMaskedLM",
        "sequence-classification": "DebertaForSequenceClassification",
        "token-classification": "DebertaForTokenClassification",
        "question-answering": "DebertaForQuestionAnswering",
        "features": "DebertaModel",
    },
    default_task="masked-lm",
    parent="bert",
    presets={
        "deberta-base": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False},
        "deberta-large": {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": False,
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
        "deberta-xlarge": {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": False,
            "hidden_size": 1024,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    },
)
