"""Between pictures and the numbers of an autoencoder: (batch, 3, height, width), from -1 to 1; and masks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import InputError
from clearhead.image import read_picture
from clearhead.image.reading import pillow
from clearhead.messages import say

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger("clearhead")


def as_pillow(raw: Any, mode: str) -> Image:
    """A picture, read without trust, in colour ("RGB") or grey ("L"); what is transparent lies on white."""
    library = pillow()
    picture = read_picture(raw)
    if isinstance(picture, np.ndarray):
        picture = library.fromarray(picture.squeeze(-1) if picture.shape[-1] == 1 else picture)
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        ground = library.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = library.alpha_composite(ground, picture)
    converted: Image = picture.convert(mode)
    return converted


def _listed(pictures: Any) -> list[Any]:
    several = isinstance(pictures, list | tuple)
    found = list(pictures) if several else [pictures]
    if not found:
        raise InputError(say("pictures.none"))
    return found


def is_latent(value: Any, channels: int) -> bool:
    """Whether a tensor holds latents in place of pixels, as diffusers' pipelines take them."""
    return isinstance(value, Tensor) and value.ndim == 4 and value.shape[1] == channels != 3


def to_pixels(pictures: Any, scale: int, size: tuple[int, int] | None) -> Tensor:
    """Pictures as an autoencoder reads them.

    scale   width and height come out as multiples of it: rounded down, where no size is given
    size    (width, height) to bring them to
    """
    if isinstance(pictures, Tensor) and pictures.is_floating_point():
        pixels = pictures if pictures.ndim == 4 else pictures[None]
        if pixels.ndim != 4 or pixels.shape[1] != 3:
            raise InputError(say("drawing.tensor", shape=str(tuple(pictures.shape))))
        width, height = size or _rounded((pixels.shape[-1], pixels.shape[-2]), scale)
        pixels = F.interpolate(pixels, size=(height, width)).float()
        return pixels if pixels.min() < 0 else 2 * pixels - 1
    opened = [as_pillow(picture, "RGB") for picture in _listed(pictures)]
    size = size or _rounded(opened[0].size, scale)
    resized = [picture.resize(size, resample=pillow().Resampling.LANCZOS) for picture in opened]
    stacked = np.stack([np.asarray(picture) for picture in resized]).astype(np.float32) / 255
    return 2 * torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous() - 1


def to_mask(masks: Any, size: tuple[int, int]) -> Tensor:
    """(batch, 1, height, width) of 0 and 1: 1, where it is white, is drawn anew."""
    if isinstance(masks, Tensor) and masks.is_floating_point():
        mask = masks.reshape(-1, 1, *masks.shape[-2:])
        mask = F.interpolate(mask, size=(size[1], size[0])).float()
    else:
        opened = [as_pillow(mask, "L") for mask in _listed(masks)]
        resized = [mask.resize(size, resample=pillow().Resampling.LANCZOS) for mask in opened]
        mask = torch.from_numpy(np.stack([np.asarray(mask) for mask in resized]).astype(np.float32) / 255)[:, None]
    return (mask >= 0.5).float()


def _rounded(size: tuple[int, int], scale: int) -> tuple[int, int]:
    width, height = (side - side % scale for side in size)
    if not width or not height:
        raise InputError(say("drawing.small", width=size[0], height=size[1], scale=scale))
    if (width, height) != tuple(size):
        names = {"width": size[0], "height": size[1], "new_width": width, "new_height": height}
        log.warning(say("drawing.shrunk", scale=scale, **names))
    return width, height


def to_pictures(pixels: Tensor) -> list[Image]:
    """(batch, 3, height, width) from 0 to 1, as Pillow images."""
    library = pillow()
    arrays = (pixels.float().cpu().permute(0, 2, 3, 1).numpy() * 255).round().astype(np.uint8)
    return [library.fromarray(array) for array in arrays]


def contact_sheet(pictures: Sequence[Image], columns: int | None = None) -> Image:
    """Several pictures of one size in rows."""
    columns = columns or min(len(pictures), 6)
    width, height = pictures[0].size
    rows = -(-len(pictures) // columns)
    sheet: Image = pillow().new("RGB", (columns * width, rows * height), (255, 255, 255))
    for n, picture in enumerate(pictures):
        sheet.paste(picture, (n % columns * width, n // columns * height))
    return sheet
