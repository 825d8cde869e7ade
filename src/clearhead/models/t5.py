"""T5: every task as text to text. An encoder–decoder that adds learned numbers, by distance, to its scores."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, linear, one
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.family import Family
from clearhead.models.heads import FeaturesHead, Head, LanguageHead, SequenceHead, SpanHead, Summary, TokenHead
from clearhead.models.model import Model
from clearhead.models.stack_model import TokenModel
from clearhead.models.token_config import TokenConfig
from clearhead.nn import Attention, Block, FeedForward, RelativeBuckets, RMSNorm, Stack, TokenEmbedder
from clearhead.nn.activations import activation
from clearhead.nn.init import init_t5

ENCODER_ONLY = ("encoder-features", "token-classification")
READS_SOURCE_TWICE = ("sequence-classification", "question-answering")  # the decoder reads the source, one step late


@dataclass(kw_only=True)
class T5Config(TokenConfig):
    """Defaults are t5-small's. Version 1.1 has gated feed-forwards and an output matrix of its own."""

    family: ClassVar[str] = "t5"
    published: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "head_dim": "d_kv",
        "intermediate_size": "d_ff",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
    }
    also_spelt: ClassVar[dict[str, str]] = {"head_dim": "d_kv"}
    # Distances have no end, so no table is n_positions long; no published T5 reads scalable_attention.
    inert: ClassVar[frozenset[str]] = frozenset({"n_positions", "scalable_attention"})
    # An encoder saved alone says is_encoder_decoder: false; which class it is says the same.
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {"is_encoder_decoder": (True, False), "is_decoder": (False,)}

    vocab_size: int = 32128
    hidden_size: int = 512
    head_dim: int = 64
    intermediate_size: int = 2048
    num_hidden_layers: int = 6  # of the encoder
    num_decoder_layers: int | None = None  # as many
    num_attention_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    feed_forward_proj: str = "relu"  # an activation, or "gated-" and an activation
    dense_act_fn: str | None = None  # the activation, where it is not the one that feed_forward_proj names
    is_gated_act: bool | None = None
    dropout_rate: float = 0.1
    classifier_dropout: float = 0.0
    layer_norm_epsilon: float = 1e-6
    initializer_factor: float = 1.0
    scale_decoder_outputs: bool | None = None  # by 1/√d_model before the output matrix: as tie_word_embeddings
    pad_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    decoder_start_token_id: int | None = None  # pad_token_id

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "head_dim", "intermediate_size", "num_decoder_layers")
        self._at_least(2, "relative_attention_num_buckets")
        self._probabilities("dropout_rate", "classifier_dropout")
        gate, _, named = self.feed_forward_proj.rpartition("-")
        if gate not in ("", "gated"):
            raise ConfigError(
                f"feed_forward_proj is {self.feed_forward_proj!r}; it names an activation, or 'gated-' and one."
            )
        if self.is_gated_act is None:
            self.is_gated_act = gate == "gated"
        if self.dense_act_fn is None:
            self.dense_act_fn = "gelu_new" if self.feed_forward_proj == "gated-gelu" else named
        activation(self.dense_act_fn)  # an unknown one is refused here, by name
        if self.num_decoder_layers is None:
            self.num_decoder_layers = self.num_hidden_layers
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.pad_token_id
        if self.scale_decoder_outputs is None:
            self.scale_decoder_outputs = self.tie_word_embeddings


def buckets(config: T5Config, *, decoder: bool) -> RelativeBuckets:
    return RelativeBuckets(
        config.relative_attention_num_buckets,
        config.num_attention_heads,
        config.relative_attention_max_distance,
        bidirectional=not decoder,
    )


def block(config: T5Config, *, decoder: bool, relative: nn.Module | None = None) -> Block:
    width, eps, dropout = config.hidden_size, config.layer_norm_epsilon, config.dropout_rate
    assert config.dense_act_fn is not None and config.is_gated_act is not None

    def attention(cross: bool) -> Attention:
        return Attention(
            width,
            config.num_attention_heads,
            head_dim=config.head_dim,
            cross=cross,
            bias=False,
            scale=1.0,  # queries start narrower by √d instead
            dropout=dropout,
            relative=None if cross else relative,
        )

    return Block(
        attention(cross=False),
        FeedForward(
            width,
            config.intermediate_size,
            config.dense_act_fn,
            gated=config.is_gated_act,
            bias=False,
            dropout=dropout,
        ),
        attention_norm=RMSNorm(width, eps),
        feedforward_norm=RMSNorm(width, eps),
        cross_attention=attention(cross=True) if decoder else None,
        cross_attention_norm=RMSNorm(width, eps) if decoder else None,
        dropout=dropout,
    )


# Makes a layer's own table of distances, for a family whose layers do not share one: (config, in the decoder) -> it
PerLayer = Callable[[Any, bool], nn.Module]


def build(config: T5Config, task: str, relative: PerLayer | None = None) -> Model:
    width = config.hidden_size

    def stack(tokens: nn.Embedding, count: int, *, decoder: bool) -> Stack:
        return Stack(
            TokenEmbedder(tokens, dropout=config.dropout_rate),
            [
                block(config, decoder=decoder, relative=None if relative is None else relative(config, decoder))
                for _ in range(count)
            ],
            RMSNorm(width, config.layer_norm_epsilon),
            causal=decoder,
            position_bias=buckets(config, decoder=decoder) if relative is None else None,
            final_dropout=config.dropout_rate,
        )

    source = nn.Embedding(config.vocab_size, width)
    encoder = stack(source, config.num_hidden_layers, decoder=False)
    if task in ENCODER_ONLY:
        return TokenModel(config, encoder, head(config, task))
    target = nn.Embedding(config.vocab_size, width)
    source.weight = target.weight
    assert config.num_decoder_layers is not None
    return EncoderDecoderModel(
        config,
        encoder,
        stack(target, config.num_decoder_layers, decoder=True),
        head(config, task),
        target_is_source=task in READS_SOURCE_TWICE,
    )


def head(config: T5Config, task: str) -> Head:
    width, dropout = config.hidden_size, config.classifier_dropout
    scale = width**-0.5 if config.scale_decoder_outputs else 1.0
    heads: dict[str, Any] = {
        "seq2seq-lm": lambda: LanguageHead(width, config.vocab_size, bias=False, shift=False, scale=scale),
        "sequence-classification": lambda: SequenceHead(
            config, Summary(config, "end", "tanh", dropout=dropout), dropout
        ),
        "token-classification": lambda: TokenHead(width, config.num_labels, dropout),
        "question-answering": lambda: SpanHead(width),
        "features": FeaturesHead,
        "encoder-features": FeaturesHead,
    }
    made: Head = heads[task]()
    return made


def init(config: T5Config, module: nn.Module) -> None:
    init_t5(module, config.hidden_size, config.head_dim, config.initializer_factor)
    for linear_ in module.modules():
        if isinstance(linear_, nn.Linear) and linear_.bias is not None:  # only the heads of tasks have biases
            nn.init.normal_(linear_.weight, std=config.initializer_factor * config.hidden_size**-0.5)


def checkpoint_map(config: T5Config, task: str, per_layer: bool = False) -> CheckpointMap:
    """`per_layer`: every layer has its own table of distances, not the first one alone."""
    wrapped = task in ("sequence-classification", "token-classification")
    return CheckpointMap(
        tuple(_entries(config, task, per_layer)),
        prefix="transformer." if wrapped else "",
        legacy=() if wrapped else ((r"^transformer\.", ""),),  # the body of a model with one of those two heads
        # The first files gave the decoder's look at the encoder a table, which nothing ever read.
        skipped=(r"(transformer\.)?decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    )


def _entries(config: T5Config, task: str, per_layer: bool) -> Iterator[Entry]:
    # One table under up to three names. A file where they differ has a table for each side.
    if task in ENCODER_ONLY:
        yield Entry(
            ("stack.embed.tokens.weight",),
            ("shared.weight",),
            or_else=("encoder.embed_tokens.weight", "shared.weight", "decoder.embed_tokens.weight"),
        )
        yield from _stack_entries(config, "stack", "encoder", config.num_hidden_layers, per_layer)
    else:
        yield Entry(
            ("decoder.embed.tokens.weight",),
            ("shared.weight",),
            or_else=("decoder.embed_tokens.weight", "shared.weight"),
            one_tensor=True,
        )
        yield Entry(
            ("encoder.embed.tokens.weight",),
            ("encoder.embed_tokens.weight",),
            tied_to="decoder.embed.tokens.weight",
        )
        assert config.num_decoder_layers is not None
        yield from _stack_entries(config, "encoder", "encoder", config.num_hidden_layers, per_layer)
        yield from _stack_entries(config, "decoder", "decoder", config.num_decoder_layers, per_layer)

    if task == "seq2seq-lm":
        tied_to = "decoder.embed.tokens.weight" if config.tie_word_embeddings else None
        yield Entry(("head.output.weight",), ("lm_head.weight",), tied_to=tied_to)
    elif task == "sequence-classification":
        yield from linear("head.pooler.dense", "classification_head.dense", in_body=False)
        yield from linear("head.output", "classification_head.out_proj", in_body=False)
    elif task == "token-classification":
        yield from linear("head.output", "classifier", in_body=False)
    elif task == "question-answering":
        yield from linear("head.output", "qa_outputs", in_body=False)


def _stack_entries(config: T5Config, ours: str, theirs: str, count: int, per_layer: bool) -> Iterator[Entry]:
    table = "SelfAttention.relative_attention_bias.weight"
    if not per_layer:
        yield one(f"{ours}.position_bias.table.weight", f"{theirs}.block.0.layer.0.{table}")
    yield one(f"{ours}.final_norm.weight", f"{theirs}.final_layer_norm.weight")
    here, there = f"{ours}.layers.{{n}}", f"{theirs}.block.{{n}}.layer"
    sublayers = [("attention", "SelfAttention")]
    if theirs == "decoder":
        sublayers.append(("cross_attention", "EncDecAttention"))
    layer: list[Entry] = []
    for n, (name, published) in enumerate(sublayers):
        for part in ("query", "key", "value", "output"):
            layer.append(one(f"{here}.{name}.{part}.weight", f"{there}.{n}.{published}.{part[0]}.weight"))
        layer.append(one(f"{here}.{name}_norm.weight", f"{there}.{n}.layer_norm.weight"))
    if per_layer:
        layer.append(one(f"{here}.attention.relative.buckets.table.weight", f"{there}.0.{table}"))
    last = f"{there}.{len(sublayers)}"
    ways_up = {"gate": "wi_0", "up": "wi_1"} if config.is_gated_act else {"up": "wi"}
    for part, published in ways_up.items():
        layer.append(one(f"{here}.feedforward.{part}.weight", f"{last}.DenseReluDense.{published}.weight"))
    # In float16 the way down overflows. It stays in fp32, and with it the residual stream, as in transformers.
    layer.append(Entry((f"{here}.feedforward.down.weight",), (f"{last}.DenseReluDense.wo.weight",), wide=True))
    layer.append(one(f"{here}.feedforward_norm.weight", f"{last}.layer_norm.weight"))
    yield from layers(count, layer)


def architectures(name: str) -> dict[str, str]:
    """Task -> class name, for a family of this shape."""
    return {
        "seq2seq-lm": f"{name}ForConditionalGeneration",
        "sequence-classification": f"{name}ForSequenceClassification",
        "token-classification": f"{name}ForTokenClassification",
        "question-answering": f"{name}ForQuestionAnswering",
        "features": f"{name}Model",
        "encoder-features": f"{name}EncoderModel",
    }


def size(layers: int, width: int, hidden: int, heads: int, head_dim: int = 64, **more: Any) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": hidden,
        "num_attention_heads": heads,
        "head_dim": head_dim,
        **more,
    }


V1_1: dict[str, Any] = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

FAMILY = Family(
    name="t5",
    title="T5",
    config=T5Config,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures=architectures("T5"),
    older_names={"T5WithLMHeadModel": "seq2seq-lm"},
    default_task="seq2seq-lm",
    parent="transformer",
    presets={
        "t5-small": {},
        "t5-base": size(12, 768, 3072, 12),
        "t5-large": size(24, 1024, 4096, 16),
        "t5-3b": size(24, 1024, 16384, 32, head_dim=128),
        "t5-11b": size(24, 1024, 65536, 128, head_dim=128),
        "t5-v1_1-small": size(8, 512, 1024, 6, **V1_1),
        "t5-v1_1-base": size(12, 768, 2048, 12, **V1_1),
        "t5-v1_1-large": size(24, 1024, 2816, 16, **V1_1),
        "t5-v1_1-xl": size(24, 2048, 5120, 32, **V1_1),
        "t5-v1_1-xxl": size(24, 4096, 10240, 64, **V1_1),
    },
)
