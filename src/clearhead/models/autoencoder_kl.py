"""The autoencoder of latent diffusion: a picture becomes a latent an eighth as wide and high, and a picture again.

diffusers calls it AutoencoderKL. `vae.encode(pixels).latent_dist` is a distribution, `vae.decode(latent).sample` a
picture with numbers from -1 to 1. Latents are drawn times `scaling_factor`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from clearhead.models.checkpoint import CheckpointMap, spelt_map
from clearhead.models.family import Family
from clearhead.models.output import Output
from clearhead.models.picture_part import TASK, PartConfig, PicturePart, init_part
from clearhead.nn.convolution import Downsample, ResnetBlock, Upsample, group_norm
from clearhead.nn.latent import LatentDistribution
from clearhead.nn.pixel_attention import PixelAttention
from clearhead.nn.tracing import tap

DOWN, UP = ("DownEncoderBlock2D",), ("UpDecoderBlock2D",)
EPS = 1e-6  # of every norm


@dataclass(kw_only=True)
class AutoencoderConfig(PartConfig):
    family: ClassVar[str] = "autoencoder"
    class_name: ClassVar[str] = "AutoencoderKL"
    # Stable Diffusion's pipelines neither shift latents nor widen the autoencoder: both belong to later models
    inert: ClassVar[frozenset[str]] = frozenset({"force_upcast", "shift_factor", "sample_size"})
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {"latents_mean": (None,), "latents_std": (None,)}

    in_channels: int = 3
    out_channels: int = 3
    down_block_types: list[str] = field(default_factory=lambda: ["DownEncoderBlock2D"])
    up_block_types: list[str] = field(default_factory=lambda: ["UpDecoderBlock2D"])
    block_out_channels: list[int] = field(default_factory=lambda: [64])
    layers_per_block: int = 1
    act_fn: str = "silu"
    latent_channels: int = 4
    norm_num_groups: int = 32
    scaling_factor: float = 0.18215
    use_quant_conv: bool = True
    use_post_quant_conv: bool = True
    mid_block_add_attention: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_types("down_block_types", DOWN)
        self._check_types("up_block_types", UP)
        lists = {name: getattr(self, name) for name in ("up_block_types", "block_out_channels")}
        self._check_blocks(lists, len(self.down_block_types), "down_block_types")
        self._check_activation("act_fn")
        self._at_least(1, "in_channels", "out_channels", "latent_channels", "norm_num_groups", "layers_per_block")

    @property
    def scale(self) -> int:
        """How many pixels of a picture a number of the latent stands for, along each side."""
        return 2 ** (len(self.block_out_channels) - 1)


def _resnets(config: AutoencoderConfig, channels: int, out_channels: int, count: int) -> nn.ModuleList:
    return nn.ModuleList(
        ResnetBlock(
            channels if n == 0 else out_channels,
            out_channels,
            time_width=None,
            groups=config.norm_num_groups,
            eps=EPS,
            activation=config.act_fn.lower(),
        )
        for n in range(count)
    )


class ResnetStage(nn.Module):
    """Residual blocks at one size, then a step to the next (None: the size stays)."""

    tap_names: ClassVar[dict[str, str]] = {"layers": ""}

    def __init__(self, layers: nn.ModuleList, resize: Downsample | Upsample | None) -> None:
        super().__init__()
        self.layers, self.resize = layers, resize

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x if self.resize is None else self.resize(x)


class AutoencoderMiddle(nn.Module):
    """Two residual blocks with attention over all pixels between them."""

    def __init__(self, config: AutoencoderConfig) -> None:
        super().__init__()
        channels = config.block_out_channels[-1]
        self.first, self.second = _resnets(config, channels, channels, 2)
        attends = config.mid_block_add_attention
        self.attention = PixelAttention(channels, config.norm_num_groups, EPS) if attends else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        second: Tensor = self.second(x if self.attention is None else self.attention(x))
        return second


class PictureEncoder(nn.Module):
    """Pixels to the means and variances of a latent."""

    taps = ("output",)

    def __init__(self, config: AutoencoderConfig) -> None:
        super().__init__()
        channels = config.block_out_channels
        self.input = nn.Conv2d(config.in_channels, channels[0], 3, padding=1)
        self.down = nn.ModuleList(
            ResnetStage(
                _resnets(config, channels[max(n - 1, 0)], channels[n], config.layers_per_block),
                Downsample(channels[n], padding=0) if n < len(channels) - 1 else None,
            )
            for n in range(len(channels))
        )
        self.middle = AutoencoderMiddle(config)
        self.norm = group_norm(config.norm_num_groups, channels[-1], EPS)
        self.output = nn.Conv2d(channels[-1], 2 * config.latent_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.input(x)
        for stage in self.down:
            x = stage(x)
        return tap(self, "output", self.output(nn.functional.silu(self.norm(self.middle(x)))))


class PictureDecoder(nn.Module):
    """A latent to pixels: the same stages the other way, with a residual block more at each size."""

    taps = ("output",)

    def __init__(self, config: AutoencoderConfig) -> None:
        super().__init__()
        channels = config.block_out_channels[::-1]
        self.input = nn.Conv2d(config.latent_channels, channels[0], 3, padding=1)
        self.middle = AutoencoderMiddle(config)
        self.up = nn.ModuleList(
            ResnetStage(
                _resnets(config, channels[max(n - 1, 0)], channels[n], config.layers_per_block + 1),
                Upsample(channels[n]) if n < len(channels) - 1 else None,
            )
            for n in range(len(channels))
        )
        self.norm = group_norm(config.norm_num_groups, channels[-1], EPS)
        self.output = nn.Conv2d(channels[-1], config.out_channels, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        x = self.middle(self.input(z))
        for stage in self.up:
            x = stage(x)
        return tap(self, "output", self.output(nn.functional.silu(self.norm(x))))


class Autoencoder(PicturePart):
    """Both halves, with a 1 × 1 convolution on either side of the latent where the file has one."""

    config: AutoencoderConfig

    def __init__(self, config: AutoencoderConfig) -> None:
        super().__init__(config)
        latent = config.latent_channels
        self.encoder = PictureEncoder(config)
        self.decoder = PictureDecoder(config)
        self.quant = nn.Conv2d(2 * latent, 2 * latent, 1) if config.use_quant_conv else None
        self.post_quant = nn.Conv2d(latent, latent, 1) if config.use_post_quant_conv else None

    def encode(self, x: Tensor) -> Output:
        """Pixels (batch, 3, height, width) from -1 to 1 -> `latent_dist`."""
        self._check_picture(x, "A picture", self.config.in_channels)
        parameters = self.encoder(x)
        return Output(latent_dist=LatentDistribution(parameters if self.quant is None else self.quant(parameters)))

    def decode(self, z: Tensor) -> Output:
        """A latent (batch, latent_channels, height, width), not scaled -> `sample`, pixels from -1 to 1."""
        self._check_picture(z, "A latent", self.config.latent_channels)
        return Output(sample=self.decoder(z if self.post_quant is None else self.post_quant(z)))

    def forward(
        self, sample: Tensor, sample_posterior: bool = False, generator: torch.Generator | None = None
    ) -> Output:
        """There and back again; `sample_posterior` draws a latent, otherwise its mean is decoded."""
        latent = self.encode(sample).latent_dist
        assert latent is not None
        return Output(
            sample=self.decode(latent.sample(generator) if sample_posterior else latent.mode()).sample,
            latent_dist=latent,
        )


def build(config: AutoencoderConfig, task: str) -> Autoencoder:
    return Autoencoder(config)


# ours -> diffusers', one after the other
SPELLINGS = (
    (r"^quant\.", "quant_conv."),
    (r"^post_quant\.", "post_quant_conv."),
    (r"^(en|de)coder\.input\.", r"\1coder.conv_in."),
    (r"^(en|de)coder\.norm\.", r"\1coder.conv_norm_out."),
    (r"^(en|de)coder\.output\.", r"\1coder.conv_out."),
    (r"\.(down|up)\.(\d+)\.layers\.", r".\1_blocks.\2.resnets."),
    (r"\.(down|up)\.(\d+)\.resize\.", r".\1_blocks.\2.\1samplers.0."),
    (r"\.middle\.first\.", ".mid_block.resnets.0."),
    (r"\.middle\.second\.", ".mid_block.resnets.1."),
    (r"\.middle\.attention\.norm\.", ".mid_block.attentions.0.group_norm."),
    (r"\.middle\.attention\.attention\.", ".mid_block.attentions.0."),
    (r"\.shortcut\.", ".conv_shortcut."),
    (r"\.query\.", ".to_q."),
    (r"\.key\.", ".to_k."),
    (r"\.value\.", ".to_v."),
    (r"(attentions\.0)\.output\.", r"\1.to_out.0."),
)
# what files of 2022 call the attention's matrices
LEGACY = (
    (r"\.query\.(weight|bias)$", r".to_q.\1"),
    (r"\.key\.(weight|bias)$", r".to_k.\1"),
    (r"\.value\.(weight|bias)$", r".to_v.\1"),
    (r"\.proj_attn\.(weight|bias)$", r".to_out.0.\1"),
)


def checkpoint_map(config: AutoencoderConfig, task: str) -> CheckpointMap:
    return spelt_map(FAMILY.make(config, device="meta"), SPELLINGS, legacy=LEGACY)


FAMILY = Family(
    name="autoencoder-kl",
    title="Autoencoder",
    config=AutoencoderConfig,
    build=build,
    init=init_part,
    checkpoint_map=checkpoint_map,
    architectures={TASK: AutoencoderConfig.class_name},
    default_task=TASK,
    modality="pictures",
)
