"""BERT: an encoder that sees both ways, with the norm after each sublayer, segments, and a head for every task."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, linear, one
from clearhead.models.config import Config
from clearhead.models.family import Family
from clearhead.models.heads import (
    ChoiceHead,
    FeaturesHead,
    Head,
    LanguageHead,
    NextSentenceHead,
    PretrainingHead,
    SequenceHead,
    SpanHead,
    Summary,
    TokenHead,
    WordTransform,
)
from clearhead.models.stack_model import TokenModel
from clearhead.models.token_config import TokenConfig
from clearhead.nn import (
    Attention,
    Block,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    RelativeKeys,
    Stack,
    TokenEmbedder,
)
from clearhead.nn.block import Placement
from clearhead.nn.init import init_normal


@dataclass(kw_only=True)
class BertConfig(TokenConfig):
    family: ClassVar[str] = "bert"
    # Left over from Google's own files, and what trainers wrote down; no published BERT reads them.
    inert: ClassVar[frozenset[str]] = frozenset(
        "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head "
        "pooler_type attention_head_size vocab_type language name".split()
    )

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None  # hidden_dropout_prob
    max_position_embeddings: int = 512
    position_embedding_type: Literal["absolute", "relative_key", "relative_key_query"] = "absolute"
    type_vocab_size: int = 2  # 0: no segments
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    is_decoder: bool = False
    add_cross_attention: bool = False
    pad_token_id: int | None = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "intermediate_size", "max_position_embeddings")
        self._at_least(0, "type_vocab_size")
        self._probabilities("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
        self._divides(self.hidden_size, self.num_attention_heads)
        if self.add_cross_attention and not self.is_decoder:
            raise ConfigError(
                "add_cross_attention is true but is_decoder is false: only a decoder looks at an encoder."
            )
        self._padding_within(self.vocab_size)


def attention(config: BertConfig, *, cross: bool = False) -> Attention:
    relative = None
    if config.position_embedding_type != "absolute" and not cross:  # published BERT: self-attention alone
        relative = RelativeKeys(
            config.max_position_embeddings - 1,
            config.hidden_size // config.num_attention_heads,
            with_key=config.position_embedding_type == "relative_key_query",
        )
    return Attention(
        config.hidden_size,
        config.num_attention_heads,
        cross=cross,
        dropout=config.attention_probs_dropout_prob,
        relative=relative,
    )


def block(config: BertConfig, placement: Placement = "post") -> Block:
    width, eps = config.hidden_size, config.layer_norm_eps
    cross = config.add_cross_attention
    return Block(
        attention(config),
        FeedForward(width, config.intermediate_size, config.hidden_act),
        attention_norm=LayerNorm(width, eps=eps),
        feedforward_norm=LayerNorm(width, eps=eps),
        cross_attention=attention(config, cross=True) if cross else None,
        cross_attention_norm=LayerNorm(width, eps=eps) if cross else None,
        placement=placement,
        dropout=config.hidden_dropout_prob,
    )


def embed(
    config: BertConfig,
    width: int | None = None,  # hidden_size; ELECTRA and ALBERT begin narrower
    *,
    norm: bool = True,
    project: nn.Module | None = None,
    padding_position: int | None = None,
) -> TokenEmbedder:
    width = width or config.hidden_size
    absolute = config.position_embedding_type == "absolute"
    return TokenEmbedder(
        nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id),
        LearnedPositions(config.max_position_embeddings, width, padding_idx=padding_position) if absolute else None,
        nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None,
        norm=LayerNorm(width, eps=config.layer_norm_eps) if norm else None,
        dropout=config.hidden_dropout_prob,
        max_positions=config.max_position_embeddings,
        project=project,
        padding_position=padding_position,
    )


def build(config: BertConfig, task: str) -> TokenModel:
    blocks = [block(config) for _ in range(config.num_hidden_layers)]
    return TokenModel(config, Stack(embed(config), blocks, causal=config.is_decoder), head(config, task))


def head(config: BertConfig, task: str) -> Head:
    width = config.hidden_size
    dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout

    def words() -> LanguageHead:
        transform = WordTransform(width, config.hidden_act, config.layer_norm_eps)
        return LanguageHead(width, config.vocab_size, bias=True, shift=task == "causal-lm", transform=transform)

    heads: dict[str, Any] = {
        "masked-lm": words,
        "causal-lm": words,
        "next-sentence": lambda: NextSentenceHead(Summary(config), width),
        "pretraining": lambda: PretrainingHead(words(), NextSentenceHead(Summary(config), width)),
        "sequence-classification": lambda: SequenceHead(config, Summary(config), dropout),
        "token-classification": lambda: TokenHead(width, config.num_labels, dropout),
        "question-answering": lambda: SpanHead(width),
        "multiple-choice": lambda: ChoiceHead(Summary(config), width, dropout),
        "features": lambda: FeaturesHead(Summary(config)),
    }
    made: Head = heads[task]()
    return made


def init(config: BertConfig, module: nn.Module) -> None:
    init_normal(module, config.initializer_range)


def checkpoint_map(config: BertConfig, task: str) -> CheckpointMap:
    return map_of(config, (*body_entries(config), *head_entries(config, task)), prefix="bert.")


def map_of(config: BertConfig, entries: Iterable[Entry], prefix: str) -> CheckpointMap:
    # Files with relative positions keep an absolute table too, which nothing reads.
    unread = "position_ids|token_type_ids"
    unread += "" if config.position_embedding_type == "absolute" else r"|position_embeddings\.weight"
    return CheckpointMap(
        tuple(entries),
        prefix=prefix,
        legacy=((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias")),
        skipped=(rf"({prefix})?embeddings\.({unread})",),
    )


def _attention_entries(config: BertConfig, ours: str, theirs: str) -> Iterator[Entry]:
    for part in ("query", "key", "value"):
        yield from linear(f"{ours}.{part}", f"{theirs}.self.{part}")
    yield from linear(f"{ours}.output", f"{theirs}.output.dense")
    yield from linear(f"{ours}_norm", f"{theirs}.output.LayerNorm")
    if config.position_embedding_type != "absolute" and not ours.endswith("cross_attention"):
        yield one(f"{ours}.relative.table.weight", f"{theirs}.self.distance_embedding.weight")


def embed_entries(config: BertConfig) -> Iterator[Entry]:
    yield one("stack.embed.tokens.weight", "embeddings.word_embeddings.weight")
    if config.position_embedding_type == "absolute":
        yield one("stack.embed.positions.weight", "embeddings.position_embeddings.weight")
    if config.type_vocab_size:
        yield one("stack.embed.segments.weight", "embeddings.token_type_embeddings.weight")
    yield from linear("stack.embed.norm", "embeddings.LayerNorm")


def body_entries(config: BertConfig) -> Iterator[Entry]:
    ours, theirs = "stack.layers.{n}", "encoder.layer.{n}"
    layer = [
        *_attention_entries(config, f"{ours}.attention", f"{theirs}.attention"),
        *linear(f"{ours}.feedforward.up", f"{theirs}.intermediate.dense"),
        *linear(f"{ours}.feedforward.down", f"{theirs}.output.dense"),
        *linear(f"{ours}.feedforward_norm", f"{theirs}.output.LayerNorm"),
    ]
    if config.add_cross_attention:
        layer += _attention_entries(config, f"{ours}.cross_attention", f"{theirs}.crossattention")
    yield from embed_entries(config)
    yield from layers(config.num_hidden_layers, layer)


def word_entries(
    config: Config, ours: str, *, dense: str, norm: str, decoder: str, bias: str | None = None
) -> Iterator[Entry]:
    """A language head. `bias`: a second name of the decoder's bias."""
    yield from linear(f"{ours}.transform.dense", dense, in_body=False)
    yield from linear(f"{ours}.transform.norm", norm, in_body=False)
    tied = config.tie_word_embeddings
    yield Entry(
        (f"{ours}.output.weight",),
        (f"{decoder}.weight",),
        in_body=False,
        tied_to="stack.embed.tokens.weight" if tied else None,
    )
    if bias is None:
        yield one(f"{ours}.output.bias", f"{decoder}.bias", in_body=False)
        return
    # It is stored once where embeddings are tied, under both names where they are not.
    yield Entry(
        (f"{ours}.output.bias",),
        (bias if tied else f"{decoder}.bias",),
        in_body=False,
        or_else=(f"{decoder}.bias", bias),
        copies=() if tied else (bias,),
    )


def head_entries(config: BertConfig, task: str) -> Iterator[Entry]:
    words = "head.words" if task == "pretraining" else "head"
    follows = "head.next_sentence" if task == "pretraining" else "head"
    if task in ("next-sentence", "pretraining"):
        yield from linear(f"{follows}.pooler.dense", "pooler.dense")
        yield from linear(f"{follows}.output", "cls.seq_relationship", in_body=False)
    if task in ("features", "sequence-classification", "multiple-choice"):
        yield from linear("head.pooler.dense", "pooler.dense")
    if task in ("masked-lm", "causal-lm", "pretraining"):
        yield from word_entries(
            config,
            words,
            dense="cls.predictions.transform.dense",
            norm="cls.predictions.transform.LayerNorm",
            decoder="cls.predictions.decoder",
            bias="cls.predictions.bias",
        )
    if task in ("sequence-classification", "token-classification", "multiple-choice"):
        yield from linear("head.output", "classifier", in_body=False)
    if task == "question-answering":
        yield from linear("head.output", "qa_outputs", in_body=False)


FAMILY = Family(
    name="bert",
    title="BERT",
    config=BertConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "masked-lm": "BertForMaskedLM",
        "pretraining": "BertForPreTraining",
        "next-sentence": "BertForNextSentencePrediction",
        "sequence-classification": "BertForSequenceClassification",
        "token-classification": "BertForTokenClassification",
        "question-answering": "BertForQuestionAnswering",
        "multiple-choice": "BertForMultipleChoice",
        "causal-lm": "BertLMHeadModel",
        "features": "BertModel",
    },
    default_task="masked-lm",
    parent="transformer",
    presets={
        "bert-base-uncased": {},
        "bert-large-uncased": {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
        "bert-base-cased": {"vocab_size": 28996},
        "bert-large-cased": {
            "vocab_size": 28996,
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
        "bert-base-multilingual-cased": {"vocab_size": 119547},
        "bert-base-chinese": {"vocab_size": 21128},
    },
)
