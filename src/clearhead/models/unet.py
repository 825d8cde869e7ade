"""The UNet of latent diffusion (2021; Stable Diffusion 1.x and 2.x): what is noise in this latent, given a text?

Down: residual blocks and pixel transformers, ever smaller and wider; a middle; up again, each block with what the way
down had at its size beside it. diffusers calls it UNet2DConditionModel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.models.checkpoint import CheckpointMap, spelt_map
from clearhead.models.family import Family
from clearhead.models.output import Output
from clearhead.models.picture_part import TASK, PartConfig, PicturePart, for_each, init_part
from clearhead.nn.activations import Activation
from clearhead.nn.convolution import group_norm
from clearhead.nn.masks import BoundMask
from clearhead.nn.timesteps import TimestepEmbedding, timestep_waves
from clearhead.nn.tracing import tap
from clearhead.nn.unet_blocks import DownBlock, MiddleBlock, UpBlock

DOWN, UP = ("CrossAttnDownBlock2D", "DownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
MIDDLE = ("UNetMidBlock2DCrossAttn", "UNetMidBlock2D", None)
HIDDEN_SCORE = -10_000.0  # what diffusers adds to the score of a token that is hidden


@dataclass(kw_only=True)
class UNetConfig(PartConfig):
    """`attention_head_dim` is the *number* of heads: old files call it so, and diffusers reads it so ever since."""

    family: ClassVar[str] = "UNet"
    class_name: ClassVar[str] = "UNet2DConditionModel"
    # of blocks that are not built here, or without effect beside them
    inert: ClassVar[frozenset[str]] = frozenset(
        """
        resnet_skip_time_act resnet_out_scale_factor cross_attention_norm mid_block_only_cross_attention
        addition_embed_type_num_heads addition_time_embed_dim projection_class_embeddings_input_dim
        """.split()
    )
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {
        "num_attention_heads": (None,),
        "dual_cross_attention": (False,),
        "class_embed_type": (None,),
        "num_class_embeds": (None,),
        "class_embeddings_concat": (False,),
        "addition_embed_type": (None,),
        "encoder_hid_dim": (None,),
        "encoder_hid_dim_type": (None,),
        "time_cond_proj_dim": (None,),
        "time_embedding_type": ("positional",),
        "attention_type": ("default",),
    }

    sample_size: int | list[int] | None = None
    in_channels: int = 4
    out_channels: int = 4
    center_input_sample: bool = False
    flip_sin_to_cos: bool = True
    freq_shift: float = 0
    down_block_types: list[str] = field(default_factory=lambda: [*3 * ["CrossAttnDownBlock2D"], "DownBlock2D"])
    mid_block_type: str | None = "UNetMidBlock2DCrossAttn"
    up_block_types: list[str] = field(default_factory=lambda: ["UpBlock2D", *3 * ["CrossAttnUpBlock2D"]])
    only_cross_attention: bool | list[bool] = False
    block_out_channels: list[int] = field(default_factory=lambda: [320, 640, 1280, 1280])
    layers_per_block: int | list[int] = 2
    downsample_padding: int = 1
    mid_block_scale_factor: float = 1.0
    dropout: float = 0.0
    act_fn: str = "silu"
    norm_num_groups: int = 32
    norm_eps: float = 1e-5
    cross_attention_dim: int | list[int] = 1280
    transformer_layers_per_block: int | list[int | list[int]] = 1
    reverse_transformer_layers_per_block: list[int | list[int]] | None = None
    attention_head_dim: int | list[int] = 8
    use_linear_projection: bool = False
    upcast_attention: bool = False
    resnet_time_scale_shift: Literal["default", "scale_shift"] = "default"
    time_embedding_dim: int | None = None
    time_embedding_act_fn: str | None = None
    timestep_post_act: str | None = None
    conv_in_kernel: int = 3
    conv_out_kernel: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_types("down_block_types", DOWN)
        self._check_types("up_block_types", UP)
        if self.mid_block_type not in MIDDLE:
            raise ConfigError(self._unknown_value("mid_block_type", self.mid_block_type))
        names = """up_block_types block_out_channels only_cross_attention layers_per_block cross_attention_dim
            transformer_layers_per_block reverse_transformer_layers_per_block attention_head_dim""".split()
        lists = {name: getattr(self, name) for name in names}
        self._check_blocks(lists, len(self.down_block_types), "down_block_types")
        self._check_activation("act_fn", "time_embedding_act_fn", "timestep_post_act")
        self._at_least(1, "in_channels", "out_channels", "norm_num_groups", "conv_in_kernel", "conv_out_kernel")
        self._probabilities("dropout")
        if self.reverse_transformer_layers_per_block is None and any(
            isinstance(n, list) for n in for_each(self.transformer_layers_per_block, 1)
        ):
            raise ConfigError(
                "transformer_layers_per_block gives a number for each layer of a block; then "
                "reverse_transformer_layers_per_block has to say the same for the way up."
            )

    @property
    def time_width(self) -> int:
        return self.time_embedding_dim or 4 * self.block_out_channels[0]


class UNet(PicturePart):
    """`unet(sample, timestep, encoder_hidden_states).sample`: the prediction, as large as the sample."""

    config: UNetConfig
    taps = ("time", "output")
    tap_names: ClassVar[dict[str, str]] = {"head": ""}

    def __init__(self, config: UNetConfig) -> None:
        super().__init__(config)
        first = config.block_out_channels[0]
        kernel, out_kernel = config.conv_in_kernel, config.conv_out_kernel
        self.input = nn.Conv2d(config.in_channels, first, kernel, padding=(kernel - 1) // 2)
        self.time = TimestepEmbedding(first, config.time_width, config.act_fn.lower(), config.timestep_post_act)
        act = config.time_embedding_act_fn
        self.time_activation = None if act is None else Activation(act.lower())
        self.down, self.middle, self.up = down_blocks(config), middle_block(config), up_blocks(config)
        self.norm = group_norm(config.norm_num_groups, first, config.norm_eps)
        self.activation = Activation(config.act_fn.lower())
        self.output = nn.Conv2d(first, config.out_channels, out_kernel, padding=(out_kernel - 1) // 2)

    def forward(
        self,
        sample: Tensor,  # (batch, in_channels, height, width)
        timestep: Tensor | float | int,  # one for all, or (batch,)
        encoder_hidden_states: Tensor,  # (batch, tokens, cross_attention_dim)
        encoder_attention_mask: Tensor | None = None,  # (batch, tokens): 1 = may be seen
    ) -> Output:
        self._check_picture(sample, "sample", self.config.in_channels)
        self._check_text(encoder_hidden_states, sample)
        if self.config.center_input_sample:
            sample = 2 * sample - 1.0
        time = self._embed_time(timestep, sample)
        mask = None
        if encoder_attention_mask is not None:
            hidden = (1 - encoder_attention_mask.to(sample.dtype)) * HIDDEN_SCORE
            mask = BoundMask(added=hidden[:, None, None, :])
        x = self.input(sample)
        skips = [x]
        for down in self.down:
            x = down(x, time, encoder_hidden_states, mask, skips)
        if self.middle is not None:
            x = self.middle(x, time, encoder_hidden_states, mask)
        for up in self.up:
            x = up(x, time, encoder_hidden_states, mask, skips)
        x = self.output(self.activation(self.norm(x)))
        return Output(sample=tap(self, "output", x))

    def _embed_time(self, timestep: Tensor | float | int, sample: Tensor) -> Tensor:
        """(batch, time_width)"""
        steps = torch.as_tensor(timestep, device=sample.device).reshape(-1)
        if len(steps) not in (1, len(sample)):
            raise InputError(f"There are {len(steps)} timesteps for {len(sample)} samples; give one, or one for each.")
        waves = timestep_waves(
            steps.expand(len(sample)),
            self.config.block_out_channels[0],
            cosines_first=self.config.flip_sin_to_cos,
            frequency_shift=self.config.freq_shift,
        )
        time = self.time(waves.to(sample.dtype))
        return tap(self, "time", time if self.time_activation is None else self.time_activation(time))

    def _check_text(self, states: Any, sample: Tensor) -> None:
        width = for_each(self.config.cross_attention_dim, 1)[0]
        if not isinstance(states, Tensor) or states.ndim != 3 or states.shape[-1] != width:
            got = f"the shape {tuple(states.shape)}" if isinstance(states, Tensor) else type(states).__name__
            raise InputError(
                f"encoder_hidden_states must be a tensor (batch, tokens, {width}), the states of a text, not {got}."
            )
        if len(states) != len(sample):
            raise InputError(f"There are {len(sample)} samples and {len(states)} texts; each sample needs its own.")


def _block_options(config: UNetConfig) -> dict[str, Any]:
    """What all residual blocks and transformers of a UNet have in common."""
    return {
        "time_width": config.time_width,
        "groups": config.norm_num_groups,
        "eps": config.norm_eps,
        "activation": config.act_fn.lower(),
        "dropout": config.dropout,
        "time_norm": config.resnet_time_scale_shift,
        "linear": config.use_linear_projection,
        "upcast": config.upcast_attention,
    }


def down_blocks(config: UNetConfig) -> nn.ModuleList:
    count, channels = len(config.down_block_types), config.block_out_channels
    layers, depths = (for_each(v, count) for v in (config.layers_per_block, config.transformer_layers_per_block))
    texts, heads = (for_each(v, count) for v in (config.cross_attention_dim, config.attention_head_dim))
    text_only = for_each(config.only_cross_attention, count)
    return nn.ModuleList(
        DownBlock(
            channels[max(n - 1, 0)],
            channels[n],
            depths=for_each(depths[n] if kind == DOWN[0] else 0, layers[n]),
            heads=heads[n],
            text_width=texts[n],
            text_only=text_only[n],
            padding=None if n == count - 1 else config.downsample_padding,
            **_block_options(config),
        )
        for n, kind in enumerate(config.down_block_types)
    )


def middle_block(config: UNetConfig) -> MiddleBlock | None:
    if config.mid_block_type is None:
        return None
    count = len(config.down_block_types)
    last = for_each(config.transformer_layers_per_block, count)[-1]
    return MiddleBlock(
        config.block_out_channels[-1],
        depth=for_each(last, 1)[0] if config.mid_block_type == MIDDLE[0] else 0,
        heads=for_each(config.attention_head_dim, count)[-1],
        text_width=for_each(config.cross_attention_dim, count)[-1],
        scale=config.mid_block_scale_factor,
        resnets=1 if config.mid_block_type == MIDDLE[1] else 2,
        **_block_options(config),
    )


def up_blocks(config: UNetConfig) -> nn.ModuleList:
    count = len(config.up_block_types)
    channels = config.block_out_channels[::-1]
    layers, texts, heads, text_only, depths = (
        for_each(value, count)[::-1]
        for value in (
            config.layers_per_block,
            config.cross_attention_dim,
            config.attention_head_dim,
            config.only_cross_attention,
            config.transformer_layers_per_block,
        )
    )
    depths = config.reverse_transformer_layers_per_block or depths
    return nn.ModuleList(
        UpBlock(
            channels[max(n - 1, 0)],
            channels[n],
            channels[min(n + 1, count - 1)],
            depths=for_each(depths[n] if kind == UP[0] else 0, layers[n] + 1),
            heads=heads[n],
            text_width=texts[n],
            text_only=text_only[n],
            upsample=n != count - 1,
            **_block_options(config),
        )
        for n, kind in enumerate(config.up_block_types)
    )


def build(config: UNetConfig, task: str) -> UNet:
    return UNet(config)


# ours -> diffusers', one after the other
SPELLINGS = (
    (r"^input\.", "conv_in."),
    (r"^time\.first\.", "time_embedding.linear_1."),
    (r"^time\.second\.", "time_embedding.linear_2."),
    (r"^norm\.", "conv_norm_out."),
    (r"^output\.", "conv_out."),
    (r"^middle\.first\.", "mid_block.resnets.0."),
    (r"^middle\.second\.", "mid_block.resnets.1."),
    (r"^middle\.transformer\.", "mid_block.attentions.0."),
    (r"^(down|up)\.(\d+)\.layers\.(\d+)\.resnet\.", r"\1_blocks.\2.resnets.\3."),
    (r"^(down|up)\.(\d+)\.layers\.(\d+)\.transformer\.", r"\1_blocks.\2.attentions.\3."),
    (r"^(down|up)\.(\d+)\.(downsample|upsample)\.", r"\1_blocks.\2.\3rs.0."),
    (r"\.time\.", ".time_emb_proj."),
    (r"\.shortcut\.", ".conv_shortcut."),
    (r"\.project_(in|out)\.", r".proj_\1."),
    (r"\.layers\.(\d+)\.", r".transformer_blocks.\1."),
    (r"\.attention_norm\.", ".norm1."),
    (r"\.cross_attention_norm\.", ".norm2."),
    (r"\.feedforward_norm\.", ".norm3."),
    (r"\.attention\.", ".attn1."),
    (r"\.cross_attention\.", ".attn2."),
    (r"\.query\.", ".to_q."),
    (r"\.key\.", ".to_k."),
    (r"\.value\.", ".to_v."),
    (r"\.(attn[12])\.output\.", r".\1.to_out.0."),
    (r"\.feedforward\.up\.", ".ff.net.0.proj."),
    (r"\.feedforward\.down\.", ".ff.net.2."),
)


def checkpoint_map(config: UNetConfig, task: str) -> CheckpointMap:
    """One matrix in the file is what goes up and its gate."""
    model = FAMILY.make(config, device="meta")
    return spelt_map(model, SPELLINGS, together={".feedforward.up.": ".feedforward.gate."})


FAMILY = Family(
    name="unet",
    title="UNet",
    config=UNetConfig,
    build=build,
    init=init_part,
    checkpoint_map=checkpoint_map,
    architectures={TASK: UNetConfig.class_name},
    default_task=TASK,
    modality="latents",
)
