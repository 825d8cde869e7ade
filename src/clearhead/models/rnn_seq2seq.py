"""Recurrent encoder–decoders: one vector between two networks (2014), then attention over all states of the first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, linear, one
from clearhead.models.family import Family
from clearhead.models.heads import LanguageHead
from clearhead.models.recurrent_encoder_decoder import RecurrentEncoderDecoder
from clearhead.models.rnn import RecurrentConfig, init, layers, recurrent_entries
from clearhead.models.token_config import MOST_LAYERS
from clearhead.nn import TokenEmbedder
from clearhead.nn.recurrent_attention import RecurrentAttention, Score
from clearhead.nn.recurrent_decoder import Bridge, Readout, RecurrentDecoder
from clearhead.nn.recurrent_stack import RecurrentStack


@dataclass(kw_only=True)
class RNNSeq2SeqConfig(RecurrentConfig):
    """`hidden_size` and `num_hidden_layers` are the decoder's, `vocab_size` the target's.

    encoder_hidden_size   of one direction; by default the decoder's, halved where the encoder reads both ways
    attention             "additive" (Bahdanau: scored before the step), "dot", "general", "concat" (Luong: after it);
                          none: the decoder knows the encoder's last state alone
    attention_size        of additive's and concat's inner vectors; by default hidden_size
    attention_window      local-p: how far it sees to either side of the place it predicts; by default it sees all
    input_feeding         what was read out at one step is part of the next one's input
    feed_context          without attention: the encoder's last state is part of every step's input
    readout_size          of tanh(W [context; state]), which the words are scored by; by default hidden_size, and
                          without a context none: the state itself is read
    bridge                "dense": the first state is made of the encoder's last one by a matrix; "copy": it is that
    """

    family: ClassVar[str] = "rnn-seq2seq"
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {"is_encoder_decoder": (True,)}

    vocab_size: int = 10_000
    source_vocab_size: int | None = None  # None: one vocabulary for both languages
    encoder_hidden_size: int | None = None
    encoder_layers: int = 1
    bidirectional: bool = True
    attention: Score | None = "additive"
    attention_size: int | None = None
    attention_window: int | None = None
    input_feeding: bool = False
    feed_context: bool = False
    readout_size: int | None = None
    bridge: Literal["dense", "copy"] = "dense"
    tie_word_embeddings: bool = False
    tie_source_embeddings: bool = False  # encoder and decoder share one table
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = None  # bos_token_id

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "source_vocab_size", "encoder_hidden_size", "encoder_layers", "attention_size")
        self._at_least(1, "attention_window", "readout_size")
        if self.encoder_layers > MOST_LAYERS:
            raise ConfigError(f"encoder_layers asks for {self.encoder_layers:,} layers; no model has so many.")
        self._padding_within(min(self.vocab_size, self.source_vocab_size or self.vocab_size))
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.bos_token_id
        if self.source_vocab_size not in (None, self.vocab_size) and self.tie_source_embeddings:
            raise ConfigError(
                f"tie_source_embeddings is true, but the vocabularies differ: {self.source_vocab_size} words for the "
                f"source, {self.vocab_size} for the target. Share one vocabulary or set it to false."
            )
        if self.attention is None and self.attention_window is not None:
            raise ConfigError("attention_window is set, but there is no attention: name one, or leave the window out.")
        if self.attention is not None and self.feed_context:
            raise ConfigError("With attention every step has a context of its own: set feed_context to false.")
        if self.tie_word_embeddings and self.output_width() != self.embedding_size:
            raise ConfigError(
                f"tie_word_embeddings is true, but the words are scored by {self.output_width()} numbers and "
                f"embedding_size is {self.embedding_size}. Set readout_size to it, or tie_word_embeddings to false."
            )

    def encoder_width(self) -> int:
        """Of one direction."""
        return self.encoder_hidden_size or max(1, self.hidden_size // (2 if self.bidirectional else 1))

    def source_width(self) -> int:
        """Of the encoder's states."""
        return self.encoder_width() * (2 if self.bidirectional else 1)

    def context_width(self) -> int:
        """Of what a step is told about the source; 0: nothing."""
        return self.source_width() if self.attention is not None or self.feed_context else 0

    def reads_out(self) -> bool:
        return bool(self.context_width() or self.input_feeding or self.readout_size)

    def output_width(self) -> int:
        """Of what the words are scored by."""
        return self.readout_size or self.hidden_size


def build(config: RNNSeq2SeqConfig, task: str) -> RecurrentEncoderDecoder:
    target = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
    source = target
    if not config.tie_source_embeddings:
        words = config.source_vocab_size or config.vocab_size
        source = nn.Embedding(words, config.embedding_size, padding_idx=config.pad_token_id)
    sizes = [config.embedding_size] + config.encoder_layers * [config.encoder_width()]
    encoder = RecurrentStack(
        TokenEmbedder(source, dropout=config.dropout),
        layers(config.cell, sizes, bidirectional=config.bidirectional, dropout=config.dropout),
        causal=not config.bidirectional,
    )
    width = config.hidden_size
    reads = config.embedding_size + (config.output_width() if config.input_feeding else 0)
    reads += config.source_width() if config.attention == "additive" or config.feed_context else 0
    sizes, last = [reads] + config.num_hidden_layers * [width], 0.0 if config.reads_out() else config.dropout
    upper = list(layers(config.cell, sizes, dropout=config.dropout, last_dropout=last))  # the readout has its own
    attention = None
    if config.attention is not None:
        inner, window = config.attention_size, config.attention_window
        attention = RecurrentAttention(width, config.source_width(), config.attention, inner_width=inner, window=window)
    readout = None
    if config.reads_out():
        readout = Readout(width, config.context_width(), config.output_width(), config.dropout)
    decoder = RecurrentDecoder(
        TokenEmbedder(target, dropout=config.dropout),
        upper,
        Bridge(encoder.recurrent_layers, upper, dense=config.bridge == "dense"),
        attention=attention,
        readout=readout,
        input_feeding=config.input_feeding,
        feed_context=config.feed_context,
    )
    head = LanguageHead(config.output_width(), config.vocab_size, bias=True, shift=False)
    return RecurrentEncoderDecoder(config, encoder, decoder, head)


def checkpoint_map(config: RNNSeq2SeqConfig, task: str) -> CheckpointMap:
    return CheckpointMap(tuple(_entries(config)))


def _entries(config: RNNSeq2SeqConfig) -> Iterator[Entry]:
    """Our own format, with torch.nn's names: `encoder.rnn` is an nn.LSTM of all layers, `output` an nn.Linear …"""
    table = "decoder.embed.tokens.weight"
    yield one(table, "decoder.embedding.weight")
    shared = table if config.tie_source_embeddings else None
    yield Entry(("encoder.embed.tokens.weight",), ("encoder.embedding.weight",), tied_to=shared)
    yield from recurrent_entries("encoder.layers", "encoder.rnn", config.encoder_layers, config.bidirectional)
    yield from recurrent_entries("decoder.layers", "decoder.rnn", config.num_hidden_layers, False)
    if config.bridge == "dense":
        for n in range(config.num_hidden_layers):
            for k, kind in enumerate(("hidden", "cell") if config.cell == "lstm" else ("hidden",)):
                yield from linear(f"decoder.bridge.parts.{n}.{k}", f"bridge.{kind}_l{n}")
    if config.attention in ("additive", "concat"):
        yield one("decoder.attention.query.weight", "attention.query.weight")
        yield one("decoder.attention.vector.weight", "attention.vector.weight")
    if config.attention not in (None, "dot"):
        yield from linear("decoder.attention.key", "attention.key", bias=config.attention != "general")
    if config.attention_window is not None:
        yield one("decoder.attention.place.inner.weight", "attention.place.weight")
        yield one("decoder.attention.place.vector.weight", "attention.place_vector.weight")
    if config.reads_out():
        yield one("decoder.readout.dense.weight", "readout.weight")
    yield Entry(("head.output.weight",), ("output.weight",), tied_to=table if config.tie_word_embeddings else None)
    yield one("head.output.bias", "output.bias")


FAMILY = Family(
    name="rnn-seq2seq",
    title="Recurrent encoder–decoder",
    config=RNNSeq2SeqConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={"seq2seq-lm": "RNNForSeq2SeqLM"},
    default_task="seq2seq-lm",
    parent="rnn",
    own_format=True,
    presets={
        "rnnsearch": {
            "vocab_size": 30_000, "cell": "gru", "embedding_size": 620, "hidden_size": 1000,
            "encoder_hidden_size": 1000, "attention_size": 1000,
        },
        "rnn-luong": {
            "vocab_size": 50_000, "embedding_size": 1000, "hidden_size": 1000, "num_hidden_layers": 4,
            "encoder_layers": 4, "bidirectional": False, "bridge": "copy", "attention": "general",
            "attention_window": 10, "input_feeding": True, "dropout": 0.2,
        },
        "rnn-one-vector": {
            "vocab_size": 80_000, "source_vocab_size": 160_000, "embedding_size": 1000, "hidden_size": 1000,
            "num_hidden_layers": 4, "encoder_layers": 4, "bidirectional": False, "bridge": "copy", "attention": None,
        },
    },
)  # fmt: skip
