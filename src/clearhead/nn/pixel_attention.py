"""Attention where the positions are pixels: layers that look at each other and at a text, and an autoencoder's one.

(batch, channels, height, width) becomes rows of pixels, (batch, height · width, channels), and a picture again.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.attention import Attention
from clearhead.nn.block import Block
from clearhead.nn.convolution import group_norm
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.linear import Linear
from clearhead.nn.masks import BoundMask
from clearhead.nn.norms import LayerNorm
from clearhead.nn.tracing import tap


def as_rows(picture: Tensor) -> Tensor:
    """(batch, channels, height, width) -> (batch, height · width, channels)"""
    return picture.flatten(2).transpose(1, 2)


def as_picture(rows: Tensor, like: Tensor) -> Tensor:
    """The way back, to the height and width of `like`."""
    return rows.transpose(1, 2).unflatten(2, like.shape[-2:])


class TextOnlyBlock(Block):
    """A layer whose first attention looks at the text as well, and at no other pixel (`only_cross_attention`)."""

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: BoundMask, *, memory: Tensor | None = None, memory_mask: BoundMask | None = None
    ) -> Tensor:
        x = tap(self, "input", x)
        x = x + self.attention(self.attention_norm(x), mask, memory)
        x = self._look_across(x, memory, memory_mask, None)
        assert self.feedforward_norm is not None
        return tap(self, "output", x + self.feedforward(self.feedforward_norm(x)))


def _block(width: int, heads: int, text_width: int, upcast: bool, text_only: bool) -> Block:
    options: dict[str, Any] = {"head_dim": width // heads, "bias": False, "out_bias": True, "upcast": upcast}
    kind = TextOnlyBlock if text_only else Block
    return kind(
        Attention(width, heads, cross=text_only, memory_width=text_width if text_only else None, **options),
        FeedForward(width, 4 * width, gated=True),
        attention_norm=LayerNorm(width),
        cross_attention=Attention(width, heads, cross=True, memory_width=text_width, **options),
        cross_attention_norm=LayerNorm(width),
        feedforward_norm=LayerNorm(width),
    )


class PixelTransformer(nn.Module):
    """x + out(layers(in(norm(x)))): pre-norm layers over pixels, each with cross-attention to a text.

    linear   `in` and `out` are matrices; else 1 × 1 convolutions: the same numbers, with two axes more
    """

    tap_names: ClassVar[dict[str, str]] = {"layers": ""}
    NORM_EPS = 1e-6

    def __init__(
        self,
        channels: int,
        heads: int,
        *,
        layers: int,
        text_width: int,
        groups: int,
        linear: bool,
        upcast: bool = False,
        text_only: bool = False,
    ) -> None:
        super().__init__()
        if heads < 1 or channels < heads:
            raise ConfigError(f"{channels} channels cannot be split into {heads} heads.")
        width = heads * (channels // heads)
        self.norm = group_norm(groups, channels, self.NORM_EPS)
        self.linear = linear
        self.project_in: nn.Module = Linear(channels, width) if linear else nn.Conv2d(channels, width, 1)
        self.layers = nn.ModuleList(_block(width, heads, text_width, upcast, text_only) for _ in range(layers))
        self.project_out: nn.Module = Linear(width, channels) if linear else nn.Conv2d(width, channels, 1)
        if layers == 1:  # the usual case: down.0.1.cross_attention, without a number that is always 0
            self.layers.tap_names = {"0": ""}  # type: ignore[assignment]

    def forward(self, x: Tensor, memory: Tensor, memory_mask: BoundMask | None) -> Tensor:
        normed = self.norm(x)
        rows = self.project_in(as_rows(normed)) if self.linear else as_rows(self.project_in(normed))
        for layer in self.layers:
            rows = layer(rows, BoundMask(), memory=memory, memory_mask=memory_mask)
        if self.linear:
            return x + as_picture(self.project_out(rows), x)
        return x + self.project_out(as_picture(rows, x))


class PixelAttention(nn.Module):
    """x + attention(norm(x)) over pixels, with one head: the middle of an autoencoder."""

    tap_names: ClassVar[dict[str, str]] = {"attention": ""}

    def __init__(self, channels: int, groups: int, eps: float) -> None:
        super().__init__()
        self.norm = group_norm(groups, channels, eps)
        self.attention = Attention(channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + as_picture(self.attention(as_rows(self.norm(x)), BoundMask()), x)
