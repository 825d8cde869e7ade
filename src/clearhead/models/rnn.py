"""Recurrent networks on their own: a table of words, then an RNN, LSTM or GRU, for writing, classifying and tagging."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, linear, one
from clearhead.models.family import Family
from clearhead.models.heads import FeaturesHead, Head, LanguageHead, SequenceHead, TokenHead
from clearhead.models.recurrent import Pooling, RecurrentModel, RecurrentSummary
from clearhead.models.token_config import MOST_LAYERS, VocabularyConfig
from clearhead.nn import GRU, LSTM, RNN, TokenEmbedder
from clearhead.nn.init import init_recurrent
from clearhead.nn.recurrent_stack import RecurrentLayer, RecurrentStack

Cell = Literal["rnn", "lstm", "gru"]
CELLS: dict[str, Any] = {"rnn": RNN, "lstm": LSTM, "gru": GRU}


@dataclass(kw_only=True)
class RecurrentConfig(VocabularyConfig):
    """What models made of recurrent layers share. `dropout` is of all that goes from layer to layer, not in time."""

    cell: Cell = "lstm"
    embedding_size: int = 256
    hidden_size: int = 512  # of one direction
    num_hidden_layers: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "embedding_size", "hidden_size", "num_hidden_layers")
        self._probabilities("dropout")
        self._padding_within(self.vocab_size)
        if self.num_hidden_layers > MOST_LAYERS:  # before anything is made for each of them
            raise ConfigError(f"num_hidden_layers asks for {self.num_hidden_layers:,} layers; no model has so many.")


@dataclass(kw_only=True)
class RNNConfig(RecurrentConfig):
    """
    bidirectional   a second reader goes from the end to the beginning; such a model cannot write
    pooling         what a classifier reads: the last state, the mean, the max, or all three side by side ("concat")
    """

    family: ClassVar[str] = "rnn"

    vocab_size: int = 10_000
    bidirectional: bool = False
    pooling: Pooling = "last"
    tie_word_embeddings: bool = False

    def width(self) -> int:
        """Of what the last layer gives."""
        return self.hidden_size * (2 if self.bidirectional else 1)


def layers(
    cell: Cell,
    sizes: list[int],
    *,
    bidirectional: bool = False,
    dropout: float = 0.0,
    last_dropout: float | None = None,
) -> Iterator[RecurrentLayer]:
    """sizes: what the lowest layer reads, then what each layer is wide (in one direction).

    last_dropout   of the highest layer, where it is not that of the others
    """
    directions = 2 if bidirectional else 1
    for n, width in enumerate(sizes[1:]):
        reads, is_last = sizes[n] * (directions if n else 1), n == len(sizes) - 2
        rnn = CELLS[cell](reads, width, batch_first=True, bidirectional=bidirectional)
        yield RecurrentLayer(rnn, last_dropout if is_last and last_dropout is not None else dropout)


def build(config: RNNConfig, task: str) -> RecurrentModel:
    if task == "causal-lm" and config.bidirectional:
        raise ConfigError("A model that writes cannot read what is to come: set bidirectional to false.")
    tokens = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
    sizes = [config.embedding_size] + config.num_hidden_layers * [config.hidden_size]
    stack = RecurrentStack(
        TokenEmbedder(tokens, dropout=config.dropout),
        layers(config.cell, sizes, bidirectional=config.bidirectional, dropout=config.dropout),
        causal=not config.bidirectional,
    )
    return RecurrentModel(config, stack, head(config, task))


def head(config: RNNConfig, task: str) -> Head:
    width = config.width()
    if task == "features":
        return FeaturesHead()
    if task == "token-classification":
        return TokenHead(width, config.num_labels, 0.0)  # what it reads is dropped out already
    if task == "sequence-classification":
        summary = RecurrentSummary(config.pooling, config.bidirectional)
        return SequenceHead(config, summary, width=summary.width(width))
    if config.tie_word_embeddings and width != config.embedding_size:
        raise ConfigError(
            f"tie_word_embeddings is true, but embedding_size is {config.embedding_size} and hidden_size "
            f"{config.hidden_size}: one matrix cannot be both. Make them equal or set it to false."
        )
    return LanguageHead(width, config.vocab_size, bias=True, shift=True)


def init(config: Any, module: nn.Module) -> None:
    init_recurrent(module)


def checkpoint_map(config: RNNConfig, task: str) -> CheckpointMap:
    return CheckpointMap(tuple(_entries(config, task)))


def _entries(config: RNNConfig, task: str) -> Iterator[Entry]:
    """torch.nn's names: `embedding` is an nn.Embedding, `rnn` an nn.LSTM of all layers, `output` an nn.Linear."""
    yield one("stack.embed.tokens.weight", "embedding.weight")
    yield from recurrent_entries("stack.layers", "rnn", config.num_hidden_layers, config.bidirectional)
    if task == "causal-lm":
        tied = "stack.embed.tokens.weight" if config.tie_word_embeddings else None
        yield Entry(("head.output.weight",), ("output.weight",), in_body=False, tied_to=tied)
        yield one("head.output.bias", "output.bias", in_body=False)
    elif task != "features":
        yield from linear("head.output", "output", in_body=False)


def recurrent_entries(ours: str, theirs: str, count: int, bidirectional: bool) -> Iterator[Entry]:
    """The layers of a stack as one multi-layer module of torch.nn has them: `weight_ih_l0`, `weight_hh_l1_reverse` …"""
    for n in range(count):
        for direction in ("", "_reverse") if bidirectional else ("",):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                yield one(f"{ours}.{n}.rnn.{name}_l0{direction}", f"{theirs}.{name}_l{n}{direction}")


FAMILY = Family(
    name="rnn",
    title="Recurrent network",
    config=RNNConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "features": "RNNModel",
        "causal-lm": "RNNForCausalLM",
        "sequence-classification": "RNNForSequenceClassification",
        "token-classification": "RNNForTokenClassification",
    },
    default_task="causal-lm",
    parent="word-vectors",
    own_format=True,
    presets={
        "lstm-medium": {"embedding_size": 650, "hidden_size": 650, "num_hidden_layers": 2, "dropout": 0.5},
        "lstm-large": {"embedding_size": 1500, "hidden_size": 1500, "num_hidden_layers": 2, "dropout": 0.65},
    },
)
