"""Pictures for tests, drawn here."""

from __future__ import annotations

import random

import numpy as np
from PIL import Image

MODES = ("RGB", "RGBA", "L", "LA", "P", "CMYK", "1", "YCbCr", "HSV")


def noise(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Smooth noise, so that filters differ but nothing is only grey."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 5, 4), dtype=np.uint8), "RGBA")
    picture = small.resize((width, height), Image.Resampling.BILINEAR)
    return (
        picture
        if mode == "RGBA"
        else picture.convert(mode)
        if mode in ("L", "LA")
        else picture.convert("RGB").convert(mode)
    )


def sizes(count: int, seed: int = 0) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    return [(rng.randint(1, 60), rng.randint(1, 60)) for _ in range(count)]
