"""GPT-2: a causal stack with the norm first, fused q-k-v, and an output matrix that is the embedding matrix."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

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
from clearhead.models.stack_model import TokenModel
from clearhead.models.token_config import TokenConfig
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, LearnedPositions, Stack, TokenEmbedder
from clearhead.nn.init import init_gpt2


@dataclass(kw_only=True)
class CausalConfig(TokenConfig):
    """What GPT-2 shares with GPT, GPT-Neo, GPT-J and CTRL."""

    published: ClassVar[dict[str, str]] = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "intermediate_size": "n_inner",
    }
    # n_ctx only ever repeated n_positions
    inert: ClassVar[frozenset[str]] = frozenset({"n_ctx", "is_decoder", "predict_special_tokens"})
    # rows that early versions added to the vocabulary
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {"n_special": (0,), "is_causal": (True,)}

    max_position_embeddings: int = 1024
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "max_position_embeddings")
        self._probabilities("resid_pdrop", "embd_pdrop")
        self._divides(self.hidden_size, self.num_attention_heads)


@dataclass(kw_only=True)
class SummaryConfig(CausalConfig):
    """The options of the "double heads" model of GPT and GPT-2, which chooses an answer and predicts its words."""

    summary_type: str = "cls_index"
    summary_use_proj: bool = True
    summary_activation: str | None = None
    summary_proj_to_labels: bool = True
    summary_first_dropout: float = 0.1
    summary_last_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._probabilities("summary_first_dropout", "summary_last_dropout")


# The keys above, in the files of families that never had such a head.
SUMMARY_KEYS = frozenset(
    "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout "
    "summary_last_dropout".split()
)


@dataclass(kw_only=True)
class GPT2Config(SummaryConfig):
    family: ClassVar[str] = "gpt2"

    vocab_size: int = 50257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int | None = None  # 4 × hidden_size
    activation_function: str = "gelu_new"
    attn_pdrop: float = 0.1
    classifier_dropout: float | None = None
    hidden_dropout: float | None = None  # an older name of classifier_dropout
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    reorder_and_upcast_attn: bool = False
    add_cross_attention: bool = False
    bos_token_id: int | None = 50256
    eos_token_id: int | list[int] | None = 50256

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "intermediate_size")
        self._probabilities("attn_pdrop", "classifier_dropout", "hidden_dropout")


def attention(config: GPT2Config, layer: int, *, cross: bool = False, **options: Any) -> Attention:
    head_dim = options.get("head_dim") or config.hidden_size // config.num_attention_heads
    scale = head_dim**-0.5 if config.scale_attn_weights else 1.0
    if config.scale_attn_by_inverse_layer_idx:
        scale /= layer + 1
    return Attention(
        config.hidden_size,
        config.num_attention_heads,
        cross=cross,
        fused=True,
        scale=scale,
        dropout=config.attn_pdrop,
        upcast=config.reorder_and_upcast_attn,
        **options,
    )


def block(config: GPT2Config, layer: int, *, window: int | None = None, **options: Any) -> Block:
    width, eps = config.hidden_size, config.layer_norm_epsilon
    cross = config.add_cross_attention
    return Block(
        attention(config, layer, **options),
        FeedForward(width, config.intermediate_size or 4 * width, config.activation_function),
        attention_norm=LayerNorm(width, eps=eps),
        feedforward_norm=LayerNorm(width, eps=eps),
        cross_attention=attention(config, layer, cross=True, **options) if cross else None,
        cross_attention_norm=LayerNorm(width, eps=eps) if cross else None,
        placement="pre",
        dropout=config.resid_pdrop,
        window=window,
    )


def assemble(config: CausalConfig, blocks: list[Block], head: Head) -> TokenModel:
    """Embedding, the given layers, final norm, and the head for the task."""
    width = config.hidden_size
    stack = Stack(
        TokenEmbedder(
            nn.Embedding(config.vocab_size, width),
            LearnedPositions(config.max_position_embeddings, width),
            segments="tokens",
            dropout=config.embd_pdrop,
        ),
        blocks,
        LayerNorm(width, eps=config.layer_norm_epsilon),
        causal=True,
    )
    return TokenModel(config, stack, head)


def head(config: CausalConfig, task: str, *, bias: bool = False, dropout: float = 0.0) -> Head:
    """bias: of the output matrix over words; dropout: before the labels of tokens."""
    width = config.hidden_size
    if task == "causal-lm":
        return LanguageHead(width, config.vocab_size, bias=bias, shift=True)
    if task == "sequence-classification":
        return SequenceHead(config, Summary(config, "last", activation=None), bias=False)
    if task == "token-classification":
        return TokenHead(width, config.num_labels, dropout)
    if task == "question-answering":
        return SpanHead(width)
    if task == "multiple-choice":
        assert isinstance(config, SummaryConfig)
        return choice_head(config)
    return FeaturesHead()


SUMMARY_TOKENS: dict[str, Literal["cls_index", "final", "first", "mean"]] = {
    "cls_index": "cls_index",
    "last": "final",
    "first": "first",
    "mean": "mean",
}


def choice_head(config: SummaryConfig) -> ChoiceHead:
    """The double heads: a score for every choice, from its summary, and the words of every choice."""
    if config.summary_type not in SUMMARY_TOKENS:
        raise ConfigError(f"summary_type is {config.summary_type!r}; it can be one of {', '.join(SUMMARY_TOKENS)}.")
    if not (config.summary_use_proj and config.summary_proj_to_labels):
        raise ConfigError(
            "Choosing an answer needs one score each: summary_use_proj and summary_proj_to_labels must be true."
        )
    return ChoiceHead(
        Summary(config, SUMMARY_TOKENS[config.summary_type], activation=None),
        config.hidden_size,
        config.summary_first_dropout,
        activation=config.summary_activation,
        last_dropout=config.summary_last_dropout,
        words=LanguageHead(config.hidden_size, config.vocab_size, bias=False, shift=True),
    )


def label_dropout(config: GPT2Config) -> float:
    rates = (config.classifier_dropout, config.hidden_dropout, 0.1)
    return next(rate for rate in rates if rate is not None)


def build(config: GPT2Config, task: str) -> TokenModel:
    blocks = [block(config, n) for n in range(config.num_hidden_layers)]
    return assemble(config, blocks, head(config, task, dropout=label_dropout(config)))


def init(config: GPT2Config, module: nn.Module) -> None:
    init_gpt2(module, config.initializer_range, config.num_hidden_layers)


def checkpoint_map(config: GPT2Config, task: str) -> CheckpointMap:
    return CheckpointMap(
        (*_entries(config), *head_entries(config, task)),
        prefix="transformer.",
        legacy=LEGACY,
        skipped=(r"(transformer\.)?h\.\d+\.(attn|crossattention)\.(bias|masked_bias)",),
    )


# how the first PyTorch versions of GPT and GPT-2 spelt gains, biases, weights and the choice head
LEGACY = (
    (r"\.g$", ".weight"),
    (r"\.b$", ".bias"),
    (r"\.w$", ".weight"),
    (r"^multiple_choice_head\.linear\.", "multiple_choice_head.summary."),
)


def layer_entries(ours: str, theirs: str) -> Iterator[Entry]:
    """One layer without cross-attention. Published weights are (in, out)."""
    yield from linear(f"{ours}.attention_norm", f"{theirs}.ln_1")
    yield from linear(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn", transpose=True)
    yield from linear(f"{ours}.attention.output", f"{theirs}.attn.c_proj", transpose=True)
    yield from linear(f"{ours}.feedforward_norm", f"{theirs}.ln_2")
    yield from linear(f"{ours}.feedforward.up", f"{theirs}.mlp.c_fc", transpose=True)
    yield from linear(f"{ours}.feedforward.down", f"{theirs}.mlp.c_proj", transpose=True)


def _entries(config: GPT2Config) -> Iterator[Entry]:
    ours, theirs = "stack.layers.{n}", "h.{n}"
    layer = [*layer_entries(ours, theirs)]
    if config.add_cross_attention:
        layer += [
            *linear(f"{ours}.cross_attention_norm", f"{theirs}.ln_cross_attn"),
            *linear(f"{ours}.cross_attention.query", f"{theirs}.crossattention.q_attn", transpose=True),
            *linear(f"{ours}.cross_attention.key_value", f"{theirs}.crossattention.c_attn", transpose=True),
            *linear(f"{ours}.cross_attention.output", f"{theirs}.crossattention.c_proj", transpose=True),
        ]
    yield one("stack.embed.tokens.weight", "wte.weight")
    yield one("stack.embed.positions.weight", "wpe.weight")
    yield from layers(config.num_hidden_layers, layer)
    yield from linear("stack.final_norm", "ln_f")


def head_entries(config: CausalConfig, task: str, *, bias: bool = False, score: str = "score") -> Iterator[Entry]:
    """bias: of the output matrix over words; score: the published name of the matrix that classifies texts."""
    if task in ("causal-lm", "multiple-choice"):
        words = "head" if task == "causal-lm" else "head.words"
        tied_to = "stack.embed.tokens.weight" if config.tie_word_embeddings else None
        yield Entry((f"{words}.output.weight",), ("lm_head.weight",), in_body=False, tied_to=tied_to)
        if bias:
            yield one(f"{words}.output.bias", "lm_head.bias", in_body=False)
    if task == "multiple-choice":
        yield from linear("head.output", "multiple_choice_head.summary", in_body=False)
    elif task == "sequence-classification":
        yield one("head.output.weight", f"{score}.weight", in_body=False)
    elif task == "token-classification":
        yield from linear("head.output", "classifier", in_body=False)
    elif task == "question-answering":
        yield from linear("head.output", "qa_outputs", in_body=False)


FAMILY = Family(
    name="gpt2",
    title="GPT-2",
    config=GPT2Config,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "causal-lm": "GPT2LMHeadModel",
        "sequence-classification": "GPT2ForSequenceClassification",
        "token-classification": "GPT2ForTokenClassification",
        "question-answering": "GPT2ForQuestionAnswering",
        "multiple-choice": "GPT2DoubleHeadsModel",
        "features": "GPT2Model",
    },
    default_task="causal-lm",
    parent="openai-gpt",
    presets={
        "gpt2": {},
        "gpt2-medium": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16},
        "gpt2-large": {"hidden_size": 1280, "num_hidden_layers": 36, "num_attention_heads": 20},
        "gpt2-xl": {"hidden_size": 1600, "num_hidden_layers": 48, "num_attention_heads": 25},
    },
)
