"""The image processor, a codec: pictures → pixel values, step by step the same as the Pillow one in `transformers`."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.errors import ConfigError, InputError, did_you_mean
from clearhead.files import write_json
from clearhead.image.reading import MOST_PIXELS, pillow, read_picture
from clearhead.image.settings import PREPROCESSOR, ImageSettings
from clearhead.messages import say
from clearhead.units import MarkUnit, PatchUnit, ShownPicture, Unit

if TYPE_CHECKING:
    from PIL.Image import Image

SHOWN = 460  # pixels of a side of a picture that is drawn over


class PixelBatch(dict[str, Any]):
    """What a model is called with: {"pixel_values": (pictures, channels, height, width)}."""

    @property
    def pixel_values(self) -> Any:
        return self["pixel_values"]


@dataclass(frozen=True)
class Frame:
    """What part of a picture a model sees: (left, top) of it, and how many of its pixels are one of the model's."""

    left: float
    top: float
    across: float
    down: float


class ImageProcessor:
    """Calling it prepares one picture or several; `settings` says how.

    patch_size   how large the pieces are that its model reads, which `units` names; None: not known
    """

    def __init__(self, settings: ImageSettings | None = None, patch_size: int | None = None) -> None:
        self.settings = settings or ImageSettings()
        self.patch_size = patch_size

    def __call__(self, images: Any, return_tensors: str | None = "pt", **changes: Any) -> PixelBatch:
        """
        images           one picture or several: paths, Pillow images, arrays, tensors
        return_tensors   "pt", "np", or None for a list of arrays
        changes          settings for this call alone, such as do_center_crop=False
        """
        settings = self._changed(changes)
        arrays = [pixels(picture, settings) for picture in as_list(images)]
        if not arrays:
            raise InputError(say("pictures.none"))
        if return_tensors is None:
            return PixelBatch(pixel_values=arrays)
        if return_tensors not in ("pt", "np"):
            raise InputError(f"return_tensors is {return_tensors!r}; it can be 'pt', 'np' or None.")
        sizes = {f"{array.shape[2]} × {array.shape[1]}" for array in arrays}
        if len({array.shape for array in arrays}) > 1:
            raise InputError(say("pictures.sizes_differ", sizes=sorted(sizes)))
        batch = np.stack(arrays)
        if return_tensors == "np":
            return PixelBatch(pixel_values=batch)
        import torch

        return PixelBatch(pixel_values=torch.from_numpy(batch))

    def _changed(self, changes: dict[str, Any]) -> ImageSettings:
        if not changes:
            return self.settings
        known = list(ImageSettings.__dataclass_fields__)
        for name in changes:
            if name not in known:
                raise InputError(f"The image processor has no setting {name!r}.{did_you_mean(name, known)}")
        read = ImageSettings.from_dict(changes, "the call")
        return replace(self.settings, **{name: getattr(read, name) for name in changes})

    def units(self, image: Any) -> list[Unit]:
        """The class vector, then the patches row by row, each with its rectangle in the picture as given."""
        if self.patch_size is None:
            raise InputError("This image processor was loaded without its model, so nobody knows the size of a patch.")
        picture = read_picture(image)
        height, width = size_of(picture)
        frame, (rows, columns) = self._frame(height, width)
        size = self.patch_size
        return [MarkUnit("[class]")] + [
            PatchUnit(
                f"{row},{column}",
                row,
                column,
                frame.left + column * size * frame.across,
                frame.top + row * size * frame.down,
                size * frame.across,
                size * frame.down,
            )
            for row in range(rows // size)
            for column in range(columns // size)
        ]

    def shown(self, image: Any) -> ShownPicture:
        """The picture as given, no larger than it is drawn."""
        picture = read_picture(image)
        height, width = size_of(picture)
        small = pillow().fromarray(in_colour(picture))
        small.thumbnail((SHOWN, SHOWN))
        data = io.BytesIO()
        small.save(data, "JPEG", quality=85)
        return ShownPicture(f"data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}", width, height)

    def _frame(self, height: int, width: int) -> tuple[Frame, tuple[int, int]]:
        """Where the prepared picture lies in the given one, and its own height and width."""
        settings = self.settings
        resized = target_size(height, width, settings.size) if settings.do_resize else (height, width)
        across, down = width / resized[1], height / resized[0]
        if not settings.do_center_crop:
            return Frame(0, 0, across, down), resized
        crop = settings.crop_size["height"], settings.crop_size["width"]
        top, left = ((whole - part) // 2 for whole, part in zip(resized, crop, strict=True))
        return Frame(left * across, top * down, across, down), crop

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        path = Path(folder) / PREPROCESSOR
        write_json(path, self.settings.to_dict(), ConfigError, sort_keys=True)
        return [path]

    def __repr__(self) -> str:
        return f"ImageProcessor({self.settings})"


def as_list(images: Any) -> list[Any]:
    """One picture or several, as several: a list, or arrays and tensors with an axis for the pictures."""
    if isinstance(images, list | tuple):
        return list(images)
    if isinstance(images, Sequence) and not isinstance(images, str | bytes):
        return list(images)
    if getattr(images, "ndim", None) == 4:
        return list(images)
    return [images]


def size_of(picture: Image | np.ndarray) -> tuple[int, int]:
    """(height, width)"""
    return picture.shape[:2] if isinstance(picture, np.ndarray) else (picture.size[1], picture.size[0])


# ---- the steps


def pixels(image: Any, settings: ImageSettings) -> np.ndarray:
    """One picture, (channels, height, width)."""
    picture = read_picture(image)
    array = in_colour(picture) if settings.do_convert_rgb else np.asarray(picture)
    if array.ndim == 2:
        array = array[:, :, None]
    if settings.do_resize:
        array = resized(array, target_size(*size_of(array), settings.size), settings.resample)
    if settings.do_center_crop:
        array = cropped(array, settings.crop_size["height"], settings.crop_size["width"])
    if settings.do_rescale:  # in double precision, then narrowed, as the reference does
        array = (array.astype(np.float64) * settings.rescale_factor).astype(np.float32)
    if settings.do_normalize:
        mean, std = np.asarray(settings.image_mean, np.float32), np.asarray(settings.image_std, np.float32)
        if not len(mean) == len(std) == array.shape[2]:
            raise InputError(say("pictures.channels", count=array.shape[2], wanted=len(mean)))
        array = (array.astype(np.float32) - mean) / std
    return np.ascontiguousarray(np.moveaxis(array, -1, 0))


def in_colour(picture: Image | np.ndarray) -> np.ndarray:
    """(height, width, 3), with white behind what is transparent."""
    if isinstance(picture, np.ndarray):
        if picture.shape[2] == 1:
            return np.repeat(picture, 3, axis=2)
        if picture.shape[2] == 4:
            alpha = picture[..., 3:] / 255
            return np.round(alpha * picture[..., :3] + (1 - alpha) * 255).astype(np.uint8)
        return picture
    if "A" in picture.getbands() or picture.info.get("transparency") is not None:
        white: Image = pillow().new("RGBA", picture.size, (255, 255, 255, 255))
        white.alpha_composite(picture.convert("RGBA"))
        picture = white
    return np.asarray(picture.convert("RGB"))


def target_size(height: int, width: int, size: dict[str, int]) -> tuple[int, int]:
    """(height, width) to resize to."""
    if "height" in size:
        return size["height"], size["width"]
    short, long = min(height, width), max(height, width)
    edge, longest = size["shortest_edge"], size.get("longest_edge")
    exact: float = edge
    if longest is not None and long / short * edge > longest:  # it would become too long: that side decides
        exact = longest * float(short) / long
        edge = round(exact)
    unchanged = longest is not None and short == edge
    new_long = long if unchanged else int(exact * long / short)
    edge, new_long = max(edge, 1), max(new_long, 1)
    if edge * new_long > MOST_PIXELS:
        raise InputError(say("pictures.narrow", width=width, height=height))
    return (new_long, edge) if width <= height else (edge, new_long)


def resized(array: np.ndarray, size: tuple[int, int], resample: int) -> np.ndarray:
    """(height, width, channels), through Pillow's filter."""
    if array.dtype != np.uint8:
        array = array.astype(np.uint8)
    picture = pillow().fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    out = np.asarray(picture.resize((size[1], size[0]), resample=resample))
    return out[:, :, None] if out.ndim == 2 else out


def cropped(array: np.ndarray, height: int, width: int) -> np.ndarray:
    """The middle, with black around where it reaches beyond the picture."""
    top, left = (array.shape[0] - height) // 2, (array.shape[1] - width) // 2
    out = np.zeros((height, width, array.shape[2]), array.dtype)
    rows, columns = slice(max(top, 0), top + height), slice(max(left, 0), left + width)
    part = array[rows, columns]
    y, x = max(-top, 0), max(-left, 0)
    out[y : y + part.shape[0], x : x + part.shape[1]] = part
    return out
