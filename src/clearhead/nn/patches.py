"""A picture as a row of vectors: patches through one convolution, a class vector before them, positions, a norm."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.nn.embedding import Embedder
from clearhead.nn.positions import LearnedPositions
from clearhead.nn.tracing import tap


class PatchEmbedder(Embedder):
    """[class] patch patch … + positions → norm. Patches are numbered row by row.

    image_size, patch_size   of a square picture, in pixels; what is left over at its right and bottom is not read
    """

    content = "patches"
    taps = ("patches", "positions", "output")

    def __init__(self, channels: int, width: int, image_size: int, patch_size: int, norm: nn.Module) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch_size, stride=patch_size, bias=False)
        self.class_vector = nn.Parameter(torch.empty(width))
        self.image_size, self.patch_size = image_size, patch_size
        self.positions = LearnedPositions((image_size // patch_size) ** 2 + 1, width)
        self.norm = norm

    def forward(self, pixel_values: Tensor, interpolate: bool = False) -> Tensor:
        """(batch, channels, height, width) -> (batch, 1 + patches, width).

        interpolate   take a picture of another size, with the table of positions stretched to its grid
        """
        self._check(pixel_values, interpolate)
        rows = self.patches(pixel_values.to(self.patches.weight.dtype)).flatten(2).transpose(1, 2)
        first = self.class_vector.expand(len(rows), 1, -1)
        x = tap(self, "patches", torch.cat([first.to(rows.dtype), rows], 1))
        height, width = pixel_values.shape[-2:]
        x = x + tap(self, "positions", self._positions(height, width, x.shape[1])).to(x.dtype)
        return tap(self, "output", self.norm(x))

    def _positions(self, height: int, width: int, count: int) -> Tensor:
        """(1, count, width of a vector): the table, or its grid stretched to that of the picture."""
        if count == self.positions.length and height == width:
            return self.positions(torch.arange(count, device=self.positions.weight.device))[None]
        side = self.image_size // self.patch_size
        table = self.positions.weight
        grid = table[1:].unflatten(0, (side, side)).permute(2, 0, 1)[None]
        there = (height // self.patch_size, width // self.patch_size)
        grid = F.interpolate(grid, size=there, mode="bicubic", align_corners=False)
        return torch.cat([table[None, :1], grid.flatten(2).transpose(1, 2)], 1)

    def _check(self, pixel_values: Tensor, interpolate: bool) -> None:
        if not isinstance(pixel_values, Tensor) or not pixel_values.is_floating_point():
            kind = getattr(pixel_values, "dtype", type(pixel_values).__name__)
            raise InputError(f"pixel_values must be a tensor of floating-point numbers, not {kind}.")
        channels, size = self.patches.in_channels, self.image_size
        if pixel_values.ndim != 4 or pixel_values.shape[1] != channels:
            raise InputError(
                f"pixel_values must have the shape (pictures, {channels} channels, height, width), not "
                f"{tuple(pixel_values.shape)}."
            )
        height, width = pixel_values.shape[-2:]
        if not interpolate and (height, width) != (size, size):
            raise InputError(
                f"The pictures are {width} × {height} pixels; this model reads {size} × {size}. Let its image "
                "processor resize them, or pass interpolate_pos_encoding=True."
            )
        if min(height, width) < self.patch_size:
            raise InputError(f"A picture of {width} × {height} pixels has no patch of {self.patch_size}.")
