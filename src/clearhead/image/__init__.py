"""Pictures: read without trust, and made into the numbers that a model reads."""

from clearhead.image.processor import ImageProcessor
from clearhead.image.reading import PICTURE_SUFFIXES, is_picture, pictures_in, read_picture
from clearhead.image.settings import ImageSettings, load_image_processor

__all__ = [
    "PICTURE_SUFFIXES",
    "ImageProcessor",
    "ImageSettings",
    "is_picture",
    "load_image_processor",
    "pictures_in",
    "read_picture",
]
