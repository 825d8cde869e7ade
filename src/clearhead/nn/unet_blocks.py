"""The blocks of a UNet: several layers at one size, then a step to the next one.

A layer is a residual block and, where the UNet listens to the text, a transformer over its pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from clearhead.nn.convolution import Downsample, ResnetBlock, Upsample
from clearhead.nn.masks import BoundMask
from clearhead.nn.pixel_attention import PixelTransformer
from clearhead.nn.tracing import tap

_OF_RESNETS = ("time_width", "groups", "eps", "activation", "dropout", "time_norm")
_OF_TRANSFORMERS = ("groups", "linear", "upcast", "heads", "text_width", "text_only")


def _resnet(channels: int, out_channels: int, options: dict[str, Any], scale: float = 1.0) -> ResnetBlock:
    return ResnetBlock(channels, out_channels, scale=scale, **{name: options[name] for name in _OF_RESNETS})


def _transformer(channels: int, depth: int, options: dict[str, Any]) -> PixelTransformer | None:
    if not depth:
        return None
    chosen = {name: options[name] for name in _OF_TRANSFORMERS if name in options}
    return PixelTransformer(channels, layers=depth, **chosen)


class PixelLayer(nn.Module):
    """A residual block, then a transformer (None: none)."""

    tap_names: ClassVar[dict[str, str]] = {"transformer": ""}

    def __init__(self, channels: int, out_channels: int, depth: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.resnet = _resnet(channels, out_channels, options)
        self.transformer = _transformer(out_channels, depth, options)

    def forward(self, x: Tensor, time: Tensor, memory: Tensor, mask: BoundMask | None) -> Tensor:
        x = self.resnet(x, time)
        return x if self.transformer is None else self.transformer(x, memory, mask)


class DownBlock(nn.Module):
    """
    depths    how many layers of transformer each layer has; 0: none
    padding   of the convolution that halves the size; None: the size stays
    """

    tap_names: ClassVar[dict[str, str]] = {"layers": ""}
    taps = ("output",)

    def __init__(
        self, channels: int, out_channels: int, *, depths: Sequence[int], padding: int | None, **options: Any
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            PixelLayer(channels if n == 0 else out_channels, out_channels, depth, options)
            for n, depth in enumerate(depths)
        )
        self.downsample = None if padding is None else Downsample(out_channels, padding)

    def forward(self, x: Tensor, time: Tensor, memory: Tensor, mask: BoundMask | None, skips: list[Tensor]) -> Tensor:
        """What the way up will need is put on `skips`."""
        for layer in self.layers:
            x = layer(x, time, memory, mask)
            skips.append(x)
        if self.downsample is not None:
            x = self.downsample(x)
            skips.append(x)
        return tap(self, "output", x)


class MiddleBlock(nn.Module):
    """Two residual blocks (or one) with a transformer between them, at the smallest size."""

    tap_names: ClassVar[dict[str, str]] = {"transformer": ""}
    taps = ("output",)

    def __init__(self, channels: int, *, depth: int, scale: float, resnets: int, **options: Any) -> None:
        super().__init__()
        self.first = _resnet(channels, channels, options, scale)
        self.transformer = _transformer(channels, depth, options)
        self.second = _resnet(channels, channels, options, scale) if resnets > 1 else None

    def forward(self, x: Tensor, time: Tensor, memory: Tensor, mask: BoundMask | None) -> Tensor:
        x = self.first(x, time)
        if self.transformer is not None:
            x = self.transformer(x, memory, mask)
        return tap(self, "output", x if self.second is None else self.second(x, time))


class UpBlock(nn.Module):
    """Each layer reads what the way down had beside what comes from below.

    channels, skip_channels   of what comes from below; and of the last thing that the way down had at this size
    """

    tap_names: ClassVar[dict[str, str]] = {"layers": ""}
    taps = ("output",)

    def __init__(
        self,
        channels: int,
        out_channels: int,
        skip_channels: int,
        *,
        depths: Sequence[int],
        upsample: bool,
        **options: Any,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            PixelLayer(
                (channels if n == 0 else out_channels) + (skip_channels if n == len(depths) - 1 else out_channels),
                out_channels,
                depth,
                options,
            )
            for n, depth in enumerate(depths)
        )
        self.upsample = Upsample(out_channels) if upsample else None

    def forward(self, x: Tensor, time: Tensor, memory: Tensor, mask: BoundMask | None, skips: list[Tensor]) -> Tensor:
        for layer in self.layers:
            x = layer(torch.cat([x, skips.pop()], dim=1), time, memory, mask)
        if self.upsample is not None:
            height, width = skips[-1].shape[-2:]  # an odd size was halved to a rounded one
            x = self.upsample(x, None if (height, width) == (2 * x.shape[-2], 2 * x.shape[-1]) else (height, width))
        return tap(self, "output", x)
