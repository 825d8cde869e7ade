"""DeBERTa v2 and v3: distances in buckets that grow, one set of matrices for content and positions, a convolution."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, linear
from clearhead.models.deberta import DisentangledConfig, assemble, block, init, map_of
from clearhead.models.family import Family
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Activation, Block, LayerNorm
from clearhead.nn.disentangled import DisentangledAttention, RelativeVectors, real_positions
from clearhead.nn.masks import BoundMask
from clearhead.nn.tracing import tap


@dataclass(kw_only=True)
class DebertaV2Config(DisentangledConfig):
    family: ClassVar[str] = "deberta-v2"
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {**DisentangledConfig.fixed, "talking_head": (False, None)}

    vocab_size: int = 128100
    hidden_size: int = 1536
    num_hidden_layers: int = 24
    num_attention_heads: int = 24
    intermediate_size: int = 6144
    position_buckets: int = -1  # none: a row of the table for every distance
    share_att_key: bool = False  # positions are projected by the content's matrices
    norm_rel_ebd: str = "none"  # or "layer_norm", on the table of distances
    conv_kernel_size: int = 0  # beside the first layer; 0: none
    conv_groups: int = 1
    conv_act: str = "tanh"

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = {kind.strip() for kind in self.norm_rel_ebd.lower().split("|")} - {"none", "layer_norm"}
        if unknown:
            raise ConfigError(f"norm_rel_ebd is {self.norm_rel_ebd!r}; Clearhead implements 'none' and 'layer_norm'.")
        if self.conv_kernel_size > 0 and self.conv_kernel_size % 2 == 0:
            raise ConfigError(f"conv_kernel_size is {self.conv_kernel_size}; an even one would shorten the text.")
        if self.conv_kernel_size > 0 and (self.conv_groups < 1 or self.hidden_size % self.conv_groups):
            raise ConfigError(f"conv_groups is {self.conv_groups}, which does not divide {self.hidden_size}.")
        if self.position_buckets > 0 and not 1 <= self.position_buckets // 2 < self.distances - 1:
            raise ConfigError(
                f"{self.position_buckets} position_buckets up to a distance of {self.distances} "
                "leave no room for shared ones."
            )

    @property
    def normed(self) -> bool:
        return "layer_norm" in self.norm_rel_ebd.lower()


class ConvolvedBlock(Block):
    """A post-norm layer with a convolution beside it, over the layer's input; the two are added and normalised."""

    taps = ("input", "convolution", "output")

    def __init__(self, *parts: Any, convolution: nn.Conv1d, activation: str, norm: nn.Module, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.convolution = convolution
        self.convolution_act = Activation(activation)
        self.convolution_norm = norm

    def forward(self, x: Tensor, mask: BoundMask, *, bias: Tensor | None = None, **_: Any) -> Tensor:
        x = tap(self, "input", x)  # padding is zero here, so that it looks like the end of the text
        beside = self._drop(self.convolution(x.transpose(1, 2)).transpose(1, 2))
        beside = tap(self, "convolution", self.convolution_act(beside))
        assert self.feedforward_norm is not None
        y = self.attention_norm(x + self._drop(self.attention(x, mask, bias=bias)))
        y = self.feedforward_norm(y + self._drop(self.feedforward(y)))
        y = self.convolution_norm(y + beside)
        real = real_positions(mask)
        return tap(self, "output", y if real is None else y * real.squeeze(1))


def build(config: DebertaV2Config, task: str) -> TokenModel:
    width, eps = config.hidden_size, config.layer_norm_eps
    buckets = config.position_buckets if config.position_buckets > 0 else None
    span = buckets or config.distances
    blocks = []
    for n in range(config.num_hidden_layers):
        attention = DisentangledAttention(
            width,
            config.num_attention_heads,
            terms=tuple(config.pos_att_type or ()),
            relative=config.relative_attention,
            span=span,
            buckets=buckets,
            max_distance=config.distances,
            shared=config.share_att_key,
            dropout=config.attention_probs_dropout_prob,
            position_dropout=config.hidden_dropout_prob,
        )
        if n == 0 and config.conv_kernel_size > 0:
            size = config.conv_kernel_size
            convolution = nn.Conv1d(width, width, size, padding=size // 2, groups=config.conv_groups)
            options = {"convolution": convolution, "activation": config.conv_act, "norm": LayerNorm(width, eps=eps)}
            blocks.append(block(config, attention, ConvolvedBlock, **options))
        else:
            blocks.append(block(config, attention))
    distances = None
    if config.relative_attention:
        distances = RelativeVectors(span, width, LayerNorm(width, eps=eps) if config.normed else None)
    return assemble(config, task, blocks, distances)


def checkpoint_map(config: DebertaV2Config, task: str) -> CheckpointMap:
    ours, theirs = "stack.layers.{n}.attention", "encoder.layer.{n}.attention.self"
    attention = [
        entry for part in ("query", "key", "value") for entry in linear(f"{ours}.{part}", f"{theirs}.{part}_proj")
    ]
    if config.relative_attention and not config.share_att_key:
        if "c2p" in (config.pos_att_type or ()):
            attention += linear(f"{ours}.position_key", f"{theirs}.pos_key_proj")
        if "p2c" in (config.pos_att_type or ()):
            attention += linear(f"{ours}.position_query", f"{theirs}.pos_query_proj")
    more: list[Entry] = []
    if config.relative_attention and config.normed:
        more += linear("stack.position_bias.norm", "encoder.LayerNorm")
    if config.conv_kernel_size > 0:
        more += linear("stack.layers.0.convolution", "encoder.conv.conv")
        more += linear("stack.layers.0.convolution_norm", "encoder.conv.LayerNorm")
    # a norm for a table that is not there is stored all the same
    unread = r"|encoder\.LayerNorm\.(weight|bias)" if config.normed and not config.relative_attention else ""
    return map_of(config, task, attention, more, unread)


def _v3(layers: int, width: int, heads: int, hidden: int, **more: Any) -> dict[str, Any]:
    """What all published sizes share, of v2 and of v3."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": hidden,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "position_buckets": 256,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        **more,
    }


FAMILY = Family(
    name="deberta-v2",
    title="DeBERTa v2/v3",
    config=DebertaV2Config,
    build=build,
    init=init,
    checkpoint_map=checkpoint_map,
    architectures={
        "masked-lm": "DebertaV2ForMaskedLM",
        "sequence-classification": "DebertaV2ForSequenceClassification",
        "token-classification": "DebertaV2ForTokenClassification",
        "question-answering": "DebertaV2ForQuestionAnswering",
        "multiple-choice": "DebertaV2ForMultipleChoice",
        "features": "DebertaV2Model",
    },
    default_task="masked-lm",
    parent="deberta",
    presets={
        "deberta-v3-xsmall": _v3(12, 384, 6, 1536),
        "deberta-v3-small": _v3(6, 768, 12, 3072),
        "deberta-v3-base": _v3(12, 768, 12, 3072),
        "deberta-v3-large": _v3(24, 1024, 16, 4096),
        "mdeberta-v3-base": _v3(12, 768, 12, 3072, vocab_size=251000),
        "deberta-v2-xlarge": _v3(24, 1536, 24, 6144, conv_kernel_size=3, conv_act="gelu"),
        "deberta-v2-xxlarge": _v3(48, 1536, 24, 6144, conv_kernel_size=3, conv_act="gelu"),
    },
)
