"""A picture in a terminal: two pixels in each place, the upper one the colour of a half block, the lower its ground."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from PIL.Image import Image

HALF_BLOCK = "▀"


def half_blocks(picture: Image, columns: int = 40) -> Text:
    """So many columns wide; as high as the picture asks for."""
    from PIL import Image as pillow

    width, height = picture.size
    rows = max(1, round(columns * height / width / 2))
    small = picture.convert("RGB").resize((columns, 2 * rows), pillow.Resampling.BOX)
    text = Text()
    pixels = list(small.tobytes())

    def colour(column: int, row: int) -> str:
        start = 3 * (row * columns + column)
        red, green, blue = pixels[start : start + 3]
        return f"rgb({red},{green},{blue})"

    for row in range(0, 2 * rows, 2):
        for column in range(columns):
            text.append(HALF_BLOCK, style=f"{colour(column, row)} on {colour(column, row + 1)}")
        if row + 2 < 2 * rows:
            text.append("\n")
    return text
