"""How pictures are prepared: preprocessor_config.json in all its forms, read strictly and written in the newest."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead import files
from clearhead.errors import ConfigError
from clearhead.messages import say
from clearhead.schema import shown

if TYPE_CHECKING:
    from clearhead.image.processor import ImageProcessor

log = logging.getLogger("clearhead")

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
_TYPES = ("CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPImageProcessorPil", "CLIPFeatureExtractor")
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_LARGEST = 2**15
# what says how something was made or is run, not what the pixels become
_INERT = frozenset(
    "image_processor_type feature_extractor_type processor_class transformers_version _processor_class auto_map "
    "default_to_square data_format input_data_format return_tensors device disable_grouping model_input_names "
    "_valid_processor_keys image_seq_length".split()
)
_NOT_BUILT = {"do_pad": (None, False), "pad_size": (None,), "use_square_size": (None, False)}

Size = dict[str, int]


@dataclass(kw_only=True)
class ImageSettings:
    """By the names that published files use. In the order of the steps.

    size        {"shortest_edge": n}, {"shortest_edge": n, "longest_edge": m} or {"height": n, "width": n}
    resample    Pillow's filter: 0 nearest, 1 Lanczos, 2 bilinear, 3 bicubic, 4 box, 5 Hamming
    crop_size   what is cut out of the middle; black is added where the picture is smaller
    """

    do_convert_rgb: bool = True
    do_resize: bool = True
    size: Size = field(default_factory=lambda: {"shortest_edge": 224})
    resample: int = 3
    do_center_crop: bool = True
    crop_size: Size = field(default_factory=lambda: {"height": 224, "width": 224})
    do_rescale: bool = True
    rescale_factor: float = 1 / 255
    do_normalize: bool = True
    image_mean: tuple[float, ...] = _MEAN
    image_std: tuple[float, ...] = _STD

    @classmethod
    def square(cls, pixels: int) -> ImageSettings:
        return cls(size={"shortest_edge": pixels}, crop_size={"height": pixels, "width": pixels})

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], path: str = PREPROCESSOR) -> ImageSettings:
        """path: where it stands, for an error that names it"""
        kind = raw.get("image_processor_type", raw.get("feature_extractor_type"))
        if kind is not None and kind not in _TYPES:
            raise ConfigError(say("pictures.other_processor", path=path, name=shown(kind)))
        values: dict[str, Any] = {}
        unknown = []
        for name, value in raw.items():
            if name in _NOT_BUILT and value not in _NOT_BUILT[name]:
                raise ConfigError(say("pictures.not_built", path=path, name=name, value=shown(value)))
            if name not in cls.__dataclass_fields__:
                unknown += [] if name in _INERT or name in _NOT_BUILT or value is None else [f"{name} = {shown(value)}"]
            elif value is not None:
                values[name] = _read(name, value, path)
        if unknown:
            log.warning(
                "%s has settings that Clearhead does not know and does not apply: %s.", path, ", ".join(unknown)
            )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in self.__dataclass_fields__}
        means = {name: list(own[name]) for name in ("image_mean", "image_std")}
        return {"image_processor_type": "CLIPImageProcessor", **own, **means}


def _read(name: str, value: Any, path: str) -> Any:
    def wrong(expected: str) -> ConfigError:
        return ConfigError(say("pictures.setting", path=path, name=name, value=shown(value), expected=expected))

    if name.startswith("do_"):
        if not isinstance(value, bool):
            raise wrong(say("pictures.yes_or_no"))
        return value
    if name == "size":
        if (size := _size(value, "shortest_edge")) is None:
            raise wrong(say("pictures.a_size"))
        return size
    if name == "crop_size":
        size = _size(value, None)
        if size is None or set(size) != {"height", "width"}:
            raise wrong(say("pictures.a_crop"))
        return size
    if name == "resample":
        if not _is_whole(value) or not 0 <= value <= 5:
            raise wrong(say("pictures.a_filter"))
        return value
    if name == "rescale_factor":
        if not _is_number(value):
            raise wrong(say("pictures.a_number"))
        return float(value)
    numbers = [value] * 3 if _is_number(value) else value
    if not isinstance(numbers, list | tuple) or not numbers or not all(map(_is_number, numbers)):
        raise wrong(say("pictures.numbers"))
    if name == "image_std" and any(number == 0 for number in numbers):
        raise wrong(say("pictures.numbers"))
    return tuple(map(float, numbers))


def _size(value: Any, edge: str | None) -> Size | None:
    """edge: what a plain number is the length of; None: of both sides. None for what is no size."""
    if _is_whole(value):
        value = {"height": value, "width": value} if edge is None else {edge: value}
    elif isinstance(value, list | tuple) and len(value) == 2:
        value = {"height": value[0], "width": value[1]}
    if not isinstance(value, Mapping):
        return None
    given = {key: n for key, n in value.items() if n is not None}
    known = ({"shortest_edge"}, {"shortest_edge", "longest_edge"}, {"height", "width"})
    if set(given) not in known or not all(_is_whole(n) and 0 < n < _LARGEST for n in given.values()):
        return None
    return dict(given)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def load_image_processor(folder: Path, image_size: int = 224) -> ImageProcessor:
    """What the folder says: inside processor_config.json, where newer files have it, or in preprocessor_config.json.

    image_size   what the model reads, where no file says anything
    """
    from clearhead.image.processor import ImageProcessor

    for name in (PROCESSOR, PREPROCESSOR):
        path = folder / name
        raw = files.read_json(path, ConfigError) if path.is_file() else None
        if raw is None:
            continue
        if not isinstance(raw, dict):
            raise ConfigError(f"{path} must hold a table of settings, not {type(raw).__name__}.")
        raw = raw.get("image_processor") if name == PROCESSOR else raw
        if raw is None:
            continue  # it speaks of other things
        if not isinstance(raw, dict):
            raise ConfigError(f"image_processor in {path} must be a table of settings, not {shown(raw)}.")
        return ImageProcessor(ImageSettings.from_dict(raw, str(path)))
    log.warning("%s", say("pictures.no_settings", folder=folder, size=image_size))
    return ImageProcessor(ImageSettings.square(image_size))
