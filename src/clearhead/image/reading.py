"""From a file, an array or a Pillow image to a picture in memory: broken, huge and odd ones are told, not trusted.

Pillow, which is an extra, reads the formats. A file is turned as its EXIF tag says, and of an animation the first
picture is taken.
"""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.errors import InputError
from clearhead.files import MAX_BYTES
from clearhead.messages import say

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 120_000_000  # of one picture: 360 MB in memory
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
_SIXTEEN_BITS = 65535


def pillow() -> Any:
    """The package's Image module, or how to get it."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError(say("pictures.no_pillow")) from None
    return Image


def is_picture(raw: Any) -> bool:
    """Whether this is a picture, by its kind. A string is one where it ends like one and is a file, or one word."""
    if isinstance(raw, os.PathLike):
        return True
    if isinstance(raw, str):
        ends = raw.lower().endswith(PICTURE_SUFFIXES) and not any(sign in raw for sign in "\n\0")
        return ends and (" " not in raw or Path(raw).expanduser().is_file())
    return isinstance(raw, bytes | np.ndarray) or hasattr(raw, "getbands") or hasattr(raw, "detach")


def pictures_in(folder: str | os.PathLike[str]) -> list[Path]:
    """The pictures of a folder and of those inside it, by their endings, in order of their names."""
    found = [path for path in Path(folder).rglob("*") if path.suffix.lower() in PICTURE_SUFFIXES]
    return sorted(path for path in found if path.is_file() and not path.name.startswith("."))


def read_picture(raw: Any) -> Image | np.ndarray:
    """A Pillow image, whole in memory; or an array (height, width, channels) of whole numbers from 0 to 255.

    raw   a path, the bytes of a file, a Pillow image (taken as it is: only files are turned by their EXIF tag), an
          array or a tensor of whole numbers from 0 to 255, or of others between 0 and 1
    """
    if isinstance(raw, str | os.PathLike):
        return _from_file(Path(raw).expanduser())
    if isinstance(raw, bytes):
        return _decoded(io.BytesIO(raw), say("pictures.given"))
    if hasattr(raw, "detach"):  # a tensor
        raw = raw.detach().cpu().numpy()
    if isinstance(raw, np.ndarray):
        return _from_array(raw)
    if isinstance(raw, pillow().Image):
        _check_size(raw, say("pictures.given"))
        return _eight_bits(raw)
    raise InputError(say("pictures.not_a_picture", kind=type(raw).__name__))


def _from_file(path: Path) -> Image:
    try:
        if path.is_dir():
            raise InputError(say("pictures.is_folder", path=path))
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(say("pictures.unreadable", path=path, reason=f"{size / 2**20:.0f} MB"))
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(say("pictures.no_file", path=path)) from None
    except (OSError, ValueError) as error:
        raise InputError(
            say("pictures.unreadable", path=path, reason=getattr(error, "strerror", None) or error)
        ) from None
    if not data:
        raise InputError(say("pictures.unreadable", path=path, reason=say("pictures.is_empty")))
    return _decoded(io.BytesIO(data), str(path))


def _decoded(file: io.BytesIO, name: str) -> Image:
    library = pillow()
    from PIL import ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a large one, which is measured below; of a tag that makes no sense
            picture = library.open(file)
            _check_size(picture, name)  # before anything is unpacked
            picture.load()
            return _eight_bits(ImageOps.exif_transpose(picture))
    except library.UnidentifiedImageError:
        reason = say("pictures.unknown_format")
        raise InputError(say("pictures.unreadable", path=name, reason=reason)) from None
    except library.DecompressionBombError:
        raise InputError(say("pictures.huge", path=name, pixels="> 178 M", most=MOST_PIXELS // 10**6)) from None
    except InputError:
        raise
    except Exception as error:  # whatever a decoder trips over in a file that is not what it says
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(say("pictures.broken", path=name, reason=why)) from None


def _check_size(picture: Image, name: str) -> None:
    width, height = picture.size
    if width * height > MOST_PIXELS:
        raise InputError(say("pictures.huge", path=name, pixels=f"{width * height:,}", most=MOST_PIXELS // 10**6))
    if not width or not height:
        raise InputError(say("pictures.no_pixels", width=width, height=height))


def _eight_bits(picture: Image) -> Image:
    """Grey of 16 bits, or of numbers between 0 and 1, in 8: Pillow itself would cut off all that is above 255."""
    if picture.mode not in ("I", "F") and not picture.mode.startswith("I;16"):
        return picture
    values = np.asarray(picture).astype(np.float64)
    high = float(values.max())
    if picture.mode == "F":
        values = values * 255 if values.min() >= 0 and high <= 1 else values
    elif picture.mode.startswith("I;16") or high > 255:
        values = values * (255 / _SIXTEEN_BITS)
    image: Image = pillow().fromarray(np.round(values).clip(0, 255).astype(np.uint8))
    return image


def _from_array(array: np.ndarray) -> np.ndarray:
    """(height, width, channels), whole numbers from 0 to 255. Which axis the channels are tells its length."""
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or not {array.shape[0], array.shape[2]} & {1, 3, 4}:
        raise InputError(say("pictures.array_shape", shape=str(array.shape)))
    if array.shape[0] in (1, 3, 4):  # first where both could be, as transformers reads it
        array = np.moveaxis(array, 0, -1)
    height, width = array.shape[:2]
    if height * width > MOST_PIXELS:
        name, most = say("pictures.given"), MOST_PIXELS // 10**6
        raise InputError(say("pictures.huge", path=name, pixels=f"{height * width:,}", most=most))
    if not height or not width:
        raise InputError(say("pictures.no_pixels", width=width, height=height))
    if array.dtype == np.uint8:
        return array
    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    low, high = float(array.min()), float(array.max())
    whole = bool(np.all(array == np.floor(array))) and high > 1
    if not (low >= 0 and high <= (255 if whole else 1)):  # nan is neither
        raise InputError(say("pictures.array_values", low=f"{low:g}", high=f"{high:g}"))
    return np.round(array if whole else array.astype(np.float64) * 255).astype(np.uint8)
