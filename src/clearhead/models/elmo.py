"""ELMo (Peters et al. 2018): words from characters, then a language model in each direction, two layers of LSTMs each.

Its vectors are those of all layers: the word alone, twice as wide, then [forward; backward] of each layer. A task mixes
them by weights of its own (nn/scalar_mix.py). Options have the published names, `lstm.…` and `char_cnn.…`; config.json
holds them as options.json does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, one
from clearhead.models.config import Config
from clearhead.models.family import Family
from clearhead.models.heads import FeaturesHead, Head, HeadInputs, LanguageHead, check_labels
from clearhead.models.output import Output
from clearhead.models.stack_model import StackModel
from clearhead.nn.bidirectional_stack import BidirectionalLayer, BidirectionalStack
from clearhead.nn.character_cnn import CharacterCNN, Highway
from clearhead.nn.clipped_lstm import ClippedLSTM
from clearhead.nn.tracing import tap

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
CHARACTERS, PADDING = 262, 261  # as they are fed: the published 261 and one for "no word", so padding is 260 + 1
FORGET_BIAS = 1.0  # which TensorFlow's cell adds, and its files leave out
IGNORED = -100


@dataclass(kw_only=True)
class ElmoConfig(Config):
    family: ClassVar[str] = "elmo"
    published: ClassVar[dict[str, str]] = {
        "lstm_size": "lstm.dim",
        "projection_size": "lstm.projection_dim",
        "num_hidden_layers": "lstm.n_layers",
        "cell_clip": "lstm.cell_clip",
        "proj_clip": "lstm.proj_clip",
        "use_skip_connections": "lstm.use_skip_connections",
        "project_states": "lstm.project_states",
        "filters": "char_cnn.filters",
        "num_highways": "char_cnn.n_highway",
        "character_size": "char_cnn.embedding.dim",
        "activation": "char_cnn.activation",
        "max_characters": "char_cnn.max_characters_per_token",
        "num_characters": "char_cnn.n_characters",
        "project_words": "char_cnn.project_words",
        "vocab_size": "n_tokens_vocab",
    }
    inert: ClassVar[frozenset[str]] = frozenset(
        "all_clip_norm_val n_epochs n_train_tokens batch_size unroll_steps n_negative_samples_batch "
        "sample_softmax learning_rate".split()
    )
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {
        "bidirectional": (True,),
        "share_embedding_softmax": (False, None),
        "char_cnn.n_characters": (261, 262),
        "char_cnn.activation": ("relu", "tanh"),
    }

    lstm_size: int = 4096
    projection_size: int = 512
    num_hidden_layers: int = 1
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = False
    # whether there are matrices that make a state, or a word, narrower; None: where the sizes differ
    project_states: bool | None = None
    project_words: bool | None = None
    filters: list[list[int]] = field(default_factory=lambda: [list(pair) for pair in FILTERS])
    num_highways: int | None = None
    character_size: int = 16
    activation: str = "relu"
    max_characters: int = 50
    num_characters: int = CHARACTERS
    vocab_size: int | None = None  # of the language model; its softmax is not among the published files
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "lstm_size", "projection_size", "num_hidden_layers", "character_size", "vocab_size")
        self._at_least(0, "cell_clip", "proj_clip", "num_highways")
        self._at_least(3, "max_characters")
        self._probabilities("dropout")
        widest = max((pair[0] for pair in self.filters if len(pair) == 2), default=0)
        if not self.filters or any(len(pair) != 2 or min(pair) < 1 for pair in self.filters):
            raise ConfigError("char_cnn.filters must be a list of [width, number] pairs, such as [[1, 32], [2, 64]].")
        if widest > self.max_characters:
            raise ConfigError(
                f"char_cnn.filters has one {widest} characters wide, and a word has {self.max_characters} "
                "(char_cnn.max_characters_per_token)."
            )
        if not self.projects_states and self.lstm_size != self.projection_size:
            raise ConfigError(
                f"lstm.projection_dim is {self.projection_size} and lstm.dim {self.lstm_size}: without a projection "
                "(W_P_0) they must be equal."
            )
        if not self.projects_words and self.num_filters != self.projection_size:
            raise ConfigError(
                f"There are {self.num_filters} filters and lstm.projection_dim is {self.projection_size}: without a "
                "projection (CNN_proj) they must be equal."
            )

    @property
    def num_filters(self) -> int:
        return sum(number for _, number in self.filters)

    @property
    def projects_states(self) -> bool:
        return self.projection_size < self.lstm_size if self.project_states is None else self.project_states

    @property
    def projects_words(self) -> bool:
        return self.projection_size != self.num_filters if self.project_words is None else self.project_words

    @property
    def hidden_size(self) -> int:
        """Of the vectors it gives: both directions."""
        return 2 * self.projection_size

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], ignore: Iterable[str] = (), strict: bool = False) -> Self:
        return super().from_dict(flat(raw), ignore, strict)

    def to_dict(self) -> dict[str, Any]:
        return nested(super().to_dict())

    def to_options(self) -> dict[str, Any]:
        """options.json, as the published readers take it."""
        left_out = NOT_PUBLISHED if self.dropout else NOT_PUBLISHED | {"dropout"}
        out = {key: value for key, value in flat(self.to_dict()).items() if key not in left_out}
        return nested(out | {"char_cnn.n_characters": CHARACTERS, "char_cnn.n_highway": self.num_highways or 0})


NOT_PUBLISHED = frozenset(
    {"id2label", "label2id", "problem_type", "lstm.project_states", "char_cnn.project_words", "n_tokens_vocab"}
)


def flat(raw: Mapping[str, Any]) -> dict[str, Any]:
    """{"lstm": {"dim": 4096}} as {"lstm.dim": 4096}"""
    out: dict[str, Any] = {}
    for key, value in raw.items():
        if isinstance(value, Mapping) and key in ("lstm", "char_cnn", "embedding"):
            out |= {f"{key}.{inner}": inside for inner, inside in flat(value).items()}
        else:
            out[key] = value
    return out


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in options.items():
        *path, last = key.split(".") if key.startswith(("lstm.", "char_cnn.")) else [key]
        place = out
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return out


class BidirectionalLanguageHead(Head):
    """The next word, from what was read forwards, and the one before, from what was read backwards: one softmax."""

    answers = "words"
    taps = ("forward.logits", "backward.logits")

    def __init__(self, width: int, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.words = LanguageHead(width, vocab_size, bias=True, shift=False)
        self.words.taps = ()  # announced here, by its direction

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Output:
        """labels (batch, time): the words read, their marks of beginning and end included, -100 for padding."""
        ahead, back = hidden.chunk(2, -1)
        labels = inputs.labels
        if labels is None:
            return self._scores(self.words(ahead, HeadInputs()), self.words(back, HeadInputs()))
        check_labels(labels, self.vocab_size, hidden)
        after = F.pad(labels[:, 1:], (0, 1), value=IGNORED)
        before = F.pad(labels[:, :-1], (1, 0), value=IGNORED).masked_fill(labels == IGNORED, IGNORED)
        return self._scores(self.words(ahead, HeadInputs(labels=after)), self.words(back, HeadInputs(labels=before)))

    def _scores(self, ahead: Output, back: Output) -> Output:
        out = Output(forward_loss=ahead.loss, backward_loss=back.loss)
        if ahead.logits is not None and back.logits is not None:
            out.logits = tap(self, "forward.logits", ahead.logits)
            out.backward_logits = tap(self, "backward.logits", back.logits)
        if ahead.loss is not None and back.loss is not None:
            out.loss = (ahead.loss + back.loss) / 2
        return out


class Elmo(StackModel):
    """Character ids in; the vectors of the last layer out, those of all layers as `hidden_states`."""

    def forward(  # type: ignore[override]
        self,
        character_ids: Tensor,  # (batch, time, characters)
        labels: Tensor | None = None,  # (batch, time)
        output_hidden_states: bool = False,
    ) -> Output:
        if character_ids.device.type == "cpu" and character_ids.numel():
            low, high = character_ids.aminmax()
            if int(low) < 0 or int(high) >= CHARACTERS:
                raise InputError(f"character_ids lie between 0 and {CHARACTERS - 1}, not {int(low)} to {int(high)}.")
        stack: Any = self.stack
        layers = stack.all_layers(character_ids)
        out: Output = self.head(stack.last(layers), HeadInputs(labels=labels))
        out.hidden_states = tuple(layers) if output_hidden_states else None
        return out


def build(config: ElmoConfig, task: str) -> Elmo:
    embed = CharacterCNN(
        CHARACTERS, config.character_size, config.filters, config.num_highways or 0, config.projection_size,
        activation=config.activation, max_characters=config.max_characters, padding_id=PADDING,
        project=config.projects_words,
    )  # fmt: skip

    def lstm() -> ClippedLSTM:
        projection = config.projection_size if config.projects_states else None
        clips = config.cell_clip or None, config.proj_clip or None
        return ClippedLSTM(config.projection_size, config.lstm_size, projection, *clips)

    blocks = [
        BidirectionalLayer(lstm(), lstm(), residual=config.use_skip_connections and n > 0, dropout=config.dropout)
        for n in range(config.num_hidden_layers)
    ]
    stack = BidirectionalStack(embed, blocks, final_dropout=config.dropout)
    if task == "features":
        return Elmo(config, stack, FeaturesHead())
    if config.vocab_size is None:
        raise ConfigError("A language model needs the size of its vocabulary: n_tokens_vocab.")
    return Elmo(config, stack, BidirectionalLanguageHead(config.projection_size, config.vocab_size))


# ---- checkpoints


class CharacterTable(Entry):
    """The published table has no row for "no word"."""

    def to_ours(self, tensors: list[Tensor], sizes: list[int]) -> list[Tensor]:
        return [F.pad(tensors[0], (0, 0, 1, 0))]

    def to_theirs(self, tensors: list[Tensor]) -> list[Tensor]:
        return [tensors[0][1:]]

    def shape_here(self, published: tuple[int, ...]) -> tuple[int, ...]:
        return (published[0] + 1, *published[1:]) if published else published

    def shape_there(self, ours: tuple[int, ...]) -> tuple[int, ...]:
        return (ours[0] - 1, *ours[1:])


class Convolution(Entry):
    """(1, width, in, out) in TensorFlow, (out, in, width) here."""

    def to_ours(self, tensors: list[Tensor], sizes: list[int]) -> list[Tensor]:
        return [tensors[0][0].permute(2, 1, 0)]

    def to_theirs(self, tensors: list[Tensor]) -> list[Tensor]:
        return [tensors[0].permute(2, 1, 0)[None]]

    def shape_here(self, published: tuple[int, ...]) -> tuple[int, ...]:
        return published[:0:-1] if len(published) == 4 and published[0] == 1 else published

    def shape_there(self, ours: tuple[int, ...]) -> tuple[int, ...]:
        return (1, *reversed(ours))


class Gates(Entry):
    """TensorFlow's gates come as input, candidate, forget, output; here the middle two are the other way round."""

    def to_ours(self, tensors: list[Tensor], sizes: list[int]) -> list[Tensor]:
        return [self.moved(super().to_ours(tensors, sizes)[0], FORGET_BIAS)]

    def to_theirs(self, tensors: list[Tensor]) -> list[Tensor]:
        return super().to_theirs([self.moved(tensors[0], -FORGET_BIAS)])

    @staticmethod
    def moved(gates: Tensor, forget_bias: float) -> Tensor:
        i, second, third, o = gates.chunk(4)
        moved = [i, third, second, o]
        if gates.ndim == 1:
            forget = 1 if forget_bias > 0 else 2  # where the forget gate has come to
            moved[forget] = moved[forget] + forget_bias
        return torch.cat(moved)


def entries(config: ElmoConfig, task: str) -> Iterator[Entry]:
    embed = "stack.embed."
    yield CharacterTable((f"{embed}characters.weight",), ("char_embed",))
    for n in range(len(config.filters)):
        yield Convolution((f"{embed}convolutions.{n}.weight",), (f"CNN/W_cnn_{n}",))
        yield one(f"{embed}convolutions.{n}.bias", f"CNN/b_cnn_{n}")
    for n in range(config.num_highways or 0):
        for part in ("carry", "transform"):
            yield one(f"{embed}highways.{n}.{part}.weight", f"CNN_high_{n}/W_{part}", transpose=True)
            yield one(f"{embed}highways.{n}.{part}.bias", f"CNN_high_{n}/b_{part}")
    if config.projects_words:
        yield one(f"{embed}projection.weight", "CNN_proj/W_proj", transpose=True)
        yield one(f"{embed}projection.bias", "CNN_proj/b_proj")
    for number, side in enumerate(("forwards", "backwards")):
        ours, theirs = f"stack.layers.{{n}}.{side}.", f"RNN_{number}/RNN/MultiRNNCell/Cell{{n}}/LSTMCell/"
        each: list[Entry] = [
            Gates((f"{ours}weight",), (f"{theirs}W_0",), transpose=True),
            Gates((f"{ours}bias",), (f"{theirs}B",)),
        ]
        if config.projects_states:
            each.append(one(f"{ours}projection", f"{theirs}W_P_0", transpose=True))
        yield from layers(config.num_hidden_layers, each)
    if task != "features":
        yield one("head.words.output.weight", "softmax/W", in_body=False)
        yield one("head.words.output.bias", "softmax/b", in_body=False)


def checkpoint_map(config: ElmoConfig, task: str) -> CheckpointMap:
    # a single layer was trained without TensorFlow's MultiRNNCell around it
    legacy = ((r"^(RNN_\d/RNN)/LSTMCell/", r"\1/MultiRNNCell/Cell0/LSTMCell/"),)
    return CheckpointMap(tuple(entries(config, task)), legacy=legacy)


@torch.no_grad()
def init(config: ElmoConfig, module: nn.Module) -> None:
    """As the published code draws them."""
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.uniform_(part.weight, -1, 1)
            nn.init.zeros_(part.weight[0])
        elif isinstance(part, nn.Conv1d):
            if config.activation == "relu":
                nn.init.uniform_(part.weight, -0.05, 0.05)
            else:
                nn.init.normal_(part.weight, std=1 / math.sqrt(part.weight[0].numel()))
            nn.init.zeros_(part.bias)  # type: ignore[arg-type]
        elif isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=1 / math.sqrt(part.in_features))
            nn.init.zeros_(part.bias)
        elif isinstance(part, ClippedLSTM):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)
            part.bias.chunk(4)[1].fill_(FORGET_BIAS)
            if part.projection is not None:
                nn.init.xavier_uniform_(part.projection)
    for part in module.modules():
        if isinstance(part, Highway):
            nn.init.constant_(part.carry.bias, -2.0)  # at first words pass as they are


_PUBLISHED: dict[str, Any] = {"num_hidden_layers": 2, "cell_clip": 3.0, "proj_clip": 3.0, "use_skip_connections": True}

FAMILY = Family(
    name="elmo",
    title="ELMo",
    config=ElmoConfig,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={"features": "ElmoModel", "bidirectional-lm": "ElmoForLanguageModeling"},
    default_task="features",
    parent="rnn",
    modality="words",
    presets={
        "elmo-original": _PUBLISHED | {"num_highways": 2},
        "elmo-2x2048-256": _PUBLISHED | {"num_highways": 1, "lstm_size": 2048, "projection_size": 256},
        "elmo-2x1024-128": _PUBLISHED | {"num_highways": 1, "lstm_size": 1024, "projection_size": 128},
    },
    own_format=True,
)
