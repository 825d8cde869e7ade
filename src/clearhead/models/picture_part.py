"""What the convolutional parts of a diffusion model share: a configuration as diffusers writes it, and no stacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.models.config import Config
from clearhead.models.heads import FeaturesHead
from clearhead.models.model import Model
from clearhead.nn.stack import Stack

DIFFUSERS_VERSION = "0.42.1"  # whose files these are
ACTIVATIONS = ("silu", "swish", "mish", "gelu", "relu")
TASK = "features"  # a part has one


@dataclass(kw_only=True)
class PartConfig(Config):
    """Read and written as diffusers does: `_class_name` in place of model_type, and nothing about labels."""

    class_name: ClassVar[str]
    published: ClassVar[dict[str, str]] = {"written_by": "_diffusers_version"}
    tie_word_embeddings: ClassVar[bool] = False

    # the version of diffusers that wrote the file, where it says so; some old ones are read differently
    written_by: str | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        raw = super().to_dict()
        for key in ("id2label", "label2id", "problem_type", "_diffusers_version"):
            raw.pop(key, None)
        return {"_class_name": self.class_name, "_diffusers_version": DIFFUSERS_VERSION, **raw}

    def _check_blocks(self, lists: Mapping[str, Any], count: int, of: str) -> None:
        """Every list has a value for each block."""
        for name, value in lists.items():
            if isinstance(value, list | tuple) and len(value) != count:
                raise ConfigError(f"{name} has {len(value)} values, but there are {count} blocks ({of}).")

    def _check_types(self, name: str, known: tuple[str, ...]) -> None:
        for kind in getattr(self, name):
            if kind not in known:
                raise ConfigError(
                    f"This {self.family} configuration has a block {kind!r} in {name}, which Clearhead does not "
                    f"implement. It has: {', '.join(known)}."
                )

    def _check_activation(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value.lower() not in ACTIVATIONS:
                raise ConfigError(f"{name} is {value!r}; diffusers' pictures know {', '.join(ACTIVATIONS)}.")


class PicturePart(Model):
    """A network over pictures or latents: no tokens, no stacks of layers, no head."""

    def __init__(self, config: PartConfig) -> None:
        super().__init__(config, FeaturesHead())

    @property
    def stacks(self) -> dict[str, Stack]:
        return {}

    @staticmethod
    def _check_picture(value: Any, name: str, channels: int) -> Tensor:
        if not isinstance(value, Tensor) or value.ndim != 4:
            got = f"the shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"{name} must be a tensor (batch, {channels} channels, height, width), not {got}.")
        if value.shape[1] != channels:
            raise InputError(f"{name} has {value.shape[1]} channels; this model reads {channels}.")
        return value


def init_part(config: PartConfig, module: nn.Module) -> None:
    """First weights as torch draws them for each kind of layer, which is what diffusers' models start from."""
    for part in module.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()


def for_each(value: Any, count: int) -> list[Any]:
    """One value for all blocks, or a list with one for each."""
    return list(value) if isinstance(value, list | tuple) else [value] * count
