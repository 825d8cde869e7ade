"""AWD-LSTM (Merity et al. 2017), the language model of ULMFiT (Howard and Ruder 2018): three LSTMs, much left out.

Names on disk are fastai's, in its .pth files and in our folders alike (`0.rnns.0.weight_hh_l0_raw` …). A classifier
reads a text in windows: gradients reach back to the beginning of one, states all the way; of a text that is too long,
the last windows speak for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, one
from clearhead.models.config import Config
from clearhead.models.family import Family
from clearhead.models.heads import FeaturesHead, Head, HeadInputs, LanguageHead, sequence_loss
from clearhead.models.output import Output
from clearhead.models.recurrent import RecurrentModel, RecurrentSummary
from clearhead.models.token_config import MOST_LAYERS, VocabularyConfig
from clearhead.nn.linear import Linear
from clearhead.nn.masks import can_inspect
from clearhead.nn.norms import BatchNorm
from clearhead.nn.recurrent_dropout import (
    DropConnectLSTM,
    DroppedWordEmbedder,
    LockedDropoutLayer,
    locked_dropout,
)
from clearhead.nn.recurrent_stack import RecurrentStack
from clearhead.nn.state import TensorState
from clearhead.nn.tracing import tap

CLASSIFIER_DROPOUT = {"output_p": 0.4, "hidden_p": 0.3, "input_p": 0.4, "embed_p": 0.05, "weight_p": 0.5}


@dataclass(kw_only=True)
class AWDLSTMConfig(VocabularyConfig):
    """
    hidden_size      of the words and of the last layer (fastai: emb_sz); layers between are `recurrent_size` wide
    embed_p …        dropout of words of the vocabulary; input_p: of numbers in their vectors; hidden_p: between layers;
                     output_p: after the last; weight_p: of connections from state to state
    out_bias         the language model's output has a bias
    lin_ftrs, ps     a classifier's layers between the summary and the labels, and the dropout before each of the rest
    seq_len          the window that a classifier reads at once
    max_len          so many tokens of a text, from its end, speak for it
    """

    family: ClassVar[str] = "awd-lstm"
    published: ClassVar[dict[str, str]] = {
        "vocab_size": "vocab_sz",
        "hidden_size": "emb_sz",
        "recurrent_size": "n_hid",
        "num_hidden_layers": "n_layers",
        "pad_token_id": "pad_token",
        "tie_word_embeddings": "tie_weights",
    }
    also_spelt: ClassVar[dict[str, str]] = {"pad_token_id": "pad_token", "vocab_size": "vocab_sz"}
    fixed: ClassVar[dict[str, tuple[object, ...]]] = {"bidir": (False,), "qrnn": (False,)}

    vocab_size: int = 60_000
    hidden_size: int = 400
    recurrent_size: int = 1152
    num_hidden_layers: int = 3
    pad_token_id: int | None = 1
    output_p: float = 0.1
    hidden_p: float = 0.15
    input_p: float = 0.25
    embed_p: float = 0.02
    weight_p: float = 0.2
    out_bias: bool = True
    lin_ftrs: list[int] = field(default_factory=lambda: [50])
    ps: list[float] = field(default_factory=lambda: [0.1])
    seq_len: int = 72
    max_len: int | None = 1440

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "hidden_size", "recurrent_size", "num_hidden_layers", "seq_len", "max_len")
        self._probabilities("output_p", "hidden_p", "input_p", "embed_p", "weight_p")
        self._padding_within(self.vocab_size)
        if self.num_hidden_layers > MOST_LAYERS:  # before anything is made for each of them
            raise ConfigError(f"n_layers asks for {self.num_hidden_layers:,} layers; no model has so many.")
        if len(self.ps) != len(self.lin_ftrs) or not all(0 <= p <= 1 for p in self.ps):
            raise ConfigError(
                f"ps must be {len(self.lin_ftrs)} dropout rates, one for each of lin_ftrs; it is {self.ps}."
            )
        if any(width < 1 for width in self.lin_ftrs):
            raise ConfigError(f"lin_ftrs are widths of layers, 1 or more each; they are {self.lin_ftrs}.")

    def widths(self) -> list[int]:
        """What the lowest layer reads, then what each layer gives."""
        return [self.hidden_size, *[self.recurrent_size] * (self.num_hidden_layers - 1), self.hidden_size]

    def classifier_layers(self) -> list[tuple[int, int, float]]:
        """(what it reads, what it gives, the dropout before it) of each layer of the classifier's head."""
        sizes = [3 * self.hidden_size, *self.lin_ftrs, self.num_labels]
        return list(zip(sizes[:-1], sizes[1:], [self.output_p, *self.ps], strict=True))


class AWDLanguageHead(LanguageHead):
    """The next word, after locked dropout; in training it also says how large the states are and how much they change.

    dropout   of the states that the output reads
    """

    def __init__(self, width: int, vocab_size: int, *, bias: bool, dropout: float) -> None:
        super().__init__(width, vocab_size, bias=bias, shift=True)
        self.dropout = dropout

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        dropped = locked_dropout(hidden, self.dropout, self.training)
        out = super().forward(dropped, inputs)
        if self.training:
            out.activation_penalty = dropped.float().square().mean()
            change = (hidden[:, 1:] - hidden[:, :-1]).float().square()
            out.temporal_penalty = change.mean() if change.numel() else change.sum()
        return out


class ClassifierLayer(nn.Module):
    """Normalised over the batch, dropped out, multiplied: a layer of fastai's head."""

    def __init__(self, reads: int, gives: int, dropout: float) -> None:
        super().__init__()
        self.norm = BatchNorm(reads)
        self.dense = Linear(reads, gives, bias=False)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.dense(F.dropout(self.norm(x), self.dropout, self.training))
        return y


class PoolingHead(Head):
    """One answer for a text: the last state, the largest of each number and the mean, through small layers."""

    answers = "label"
    taps = ("pooled", "logits")

    def __init__(self, config: AWDLSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.pooler = RecurrentSummary("concat")
        self.layers = nn.ModuleList(ClassifierLayer(*sizes) for sizes in config.classifier_layers())

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        x = tap(self, "pooled", self.pooler(hidden, self._speaking(inputs)))
        for n, layer in enumerate(self.layers):
            x = layer(F.relu(x) if n else x)
        logits = tap(self, "logits", x)
        return Output(logits=logits, loss=sequence_loss(logits, inputs.labels, self.config))

    def _speaking(self, inputs: HeadInputs) -> HeadInputs:
        """With a mask of the positions that speak for their text: none of the windows that are too far from its end."""
        mask, most = inputs.attention_mask, self.config.max_len
        if mask is None or most is None or mask.shape[1] <= most:
            return inputs
        real = mask != 0
        window, lengths = self.config.seq_len, real.sum(1, keepdim=True)
        first = (lengths - most).clamp(min=0).add(window - 1) // window * window
        return HeadInputs(labels=inputs.labels, attention_mask=real & (real.cumsum(1) > first))


class AWDLSTMModel(RecurrentModel):
    """The language model, and the encoder alone."""

    config: AWDLSTMConfig


class AWDLSTMClassifier(AWDLSTMModel):
    """Reads a text in windows; padding does not count, be it said by a mask or by the padding token."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> Output:
        given = input_ids if input_ids is not None else inputs_embeds
        if attention_mask is None and isinstance(given, Tensor) and given.ndim > 1:
            attention_mask = torch.ones(given.shape[:2], dtype=torch.long, device=given.device)
            if input_ids is not None and self.config.pad_token_id is not None:
                attention_mask = (input_ids != self.config.pad_token_id).long()
        if attention_mask is not None and can_inspect(attention_mask) and not bool(attention_mask.any(1).all()):
            raise InputError("A row of the batch is padding only: there is nothing to classify.")
        return super().forward(
            input_ids, attention_mask, labels, inputs_embeds, output_hidden_states=output_hidden_states
        )

    def read(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        inputs_embeds: Tensor | None,
        state: TensorState | None,
    ) -> Tensor:
        given = input_ids if input_ids is not None else inputs_embeds
        window = self.config.seq_len
        if not self.training or given is None or given.ndim < 2 or given.shape[1] <= window:
            return super().read(input_ids, attention_mask, inputs_embeds, state)
        state, parts = TensorState(), []
        for start in range(0, given.shape[1], window):  # masks of dropout are drawn for each window, as fastai does
            here = slice(start, start + window)
            ids, mask, vectors = (t if t is None else t[:, here] for t in (input_ids, attention_mask, inputs_embeds))
            parts.append(super().read(ids, mask, vectors, state))
            assert state.tensors is not None
            state.tensors = tuple(tensor.detach() for tensor in state.tensors)
        return torch.cat(parts, 1)


def build(config: AWDLSTMConfig, task: str) -> AWDLSTMModel:
    tokens = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
    widths = config.widths()
    stack = RecurrentStack(
        DroppedWordEmbedder(tokens, config.embed_p, config.input_p),
        (
            LockedDropoutLayer(
                DropConnectLSTM(reads, gives, batch_first=True, weight_dropout=config.weight_p),
                config.hidden_p if n < config.num_hidden_layers - 1 else 0.0,
            )
            for n, (reads, gives) in enumerate(pairwise(widths))
        ),
        causal=True,
    )
    model = AWDLSTMClassifier if task == "sequence-classification" else AWDLSTMModel
    return model(config, stack, head(config, task))


def head(config: AWDLSTMConfig, task: str) -> Head:
    if task == "features":
        return FeaturesHead()
    if task == "sequence-classification":
        return PoolingHead(config)
    return AWDLanguageHead(config.hidden_size, config.vocab_size, bias=config.out_bias, dropout=config.output_p)


@torch.no_grad()
def init(config: Config, module: nn.Module) -> None:
    """fastai's: small uniform words, torch's own draws for the rest."""
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.uniform_(part.weight, -0.1, 0.1)
        elif isinstance(part, BatchNorm):
            for tensor, value in (
                (part.weight, 1.0),
                (part.bias, 1e-3),
                (part.running_mean, 0.0),
                (part.running_var, 1.0),
            ):
                nn.init.constant_(tensor, value)
        elif isinstance(part, nn.RNNBase):
            part.reset_parameters()
        elif isinstance(part, nn.Linear):
            if id(part.weight) not in tables:
                part.reset_parameters()
            if part.bias is not None:
                nn.init.zeros_(part.bias)


# How the body's names begin, under each head.
PREFIXES = {"features": "", "causal-lm": "0.", "sequence-classification": "0.module."}


def checkpoint_map(config: AWDLSTMConfig, task: str) -> CheckpointMap:
    prefix = PREFIXES[task]
    return CheckpointMap(
        tuple(_entries(config, task)),
        prefix=prefix,
        # the body of a file that was saved under another head
        legacy=((r"^0\.(module\.)?", prefix),),
        # the words a second time; how many batches a norm has seen, which nothing reads
        skipped=(r".*encoder_dp\.emb\.weight", r".*\.num_batches_tracked"),
    )


def _entries(config: AWDLSTMConfig, task: str) -> Iterator[Entry]:
    yield one("stack.embed.tokens.weight", "encoder.weight")
    yield from layers(
        config.num_hidden_layers,
        [
            one("stack.layers.{n}.rnn.weight_hh_l0", "rnns.{n}.weight_hh_l0_raw"),
            *(
                one(f"stack.layers.{{n}}.rnn.{name}", f"rnns.{{n}}.module.{name}")
                for name in ("weight_ih_l0", "bias_ih_l0", "bias_hh_l0")
            ),
        ],
    )
    if task == "causal-lm":
        tied = "stack.embed.tokens.weight" if config.tie_word_embeddings else None
        yield Entry(("head.output.weight",), ("1.decoder.weight",), in_body=False, tied_to=tied)
        if config.out_bias:
            yield one("head.output.bias", "1.decoder.bias", in_body=False)
    if task == "sequence-classification":
        for n, (_, _, dropout) in enumerate(config.classifier_layers()):
            for name in ("weight", "bias", "running_mean", "running_var"):
                yield one(f"head.layers.{n}.norm.{name}", f"1.layers.{n}.0.{name}", in_body=False)
            # where nothing is dropped out, fastai has no layer for it, and counts one less
            yield one(f"head.layers.{n}.dense.weight", f"1.layers.{n}.{2 if dropout else 1}.weight", in_body=False)


FAMILY = Family(
    name="awd-lstm",
    title="AWD-LSTM",
    config=AWDLSTMConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "features": "AWDLSTMModel",
        "causal-lm": "AWDLSTMForCausalLM",
        "sequence-classification": "AWDLSTMForSequenceClassification",
    },
    default_task="causal-lm",
    parent="rnn",
    own_format=True,
    presets={"awd-lstm-wt103": {}},
)
