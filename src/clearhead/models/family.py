"""What a family is to the rest of the house: a name, a config, a way to build it, and its checkpoint map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from clearhead.errors import ConfigError, InputError, did_you_mean
from clearhead.models.checkpoint import CheckpointMap
from clearhead.models.config import Config
from clearhead.models.model import Model


@dataclass(frozen=True)
class Family:
    """
    name            `model_type` in config.json
    architectures   task -> the class name that published checkpoints give in `architectures`
    older_names     class names that old checkpoints give, where they differ -> task
    default_task    what to load when the checkpoint does not say
    init            draws first weights: (config, the model or a part of it)
    parent          the family it grew from; what it changed is computed, not written down (models/compare.py)
    modality        what it reads, which decides its pipeline: "text" …
    presets         published sizes by name: the config values that differ from the family's defaults
    own_format      its folders are Clearhead's own: `transformers` does not know the family
    """

    name: str
    title: str
    config: type[Config]
    build: Callable[[Any, str], Model]
    init: Callable[[Any, nn.Module], None]
    checkpoint_map: Callable[[Any, str], CheckpointMap]
    architectures: Mapping[str, str]
    default_task: str
    parent: str | None = None
    modality: str = "text"
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    older_names: Mapping[str, str] = field(default_factory=dict)
    own_format: bool = False

    def task_of(self, architecture: str) -> str | None:
        """What a class is for, whichever framework it was written in; None for a class that is not the family's."""
        architecture = architecture.removeprefix("TF").removeprefix("Flax")
        return {name: task for task, name in self.architectures.items()}.get(
            architecture, self.older_names.get(architecture)
        )

    def check_task(self, task: str) -> str:
        if task not in self.architectures:
            raise InputError(
                f"{self.title} has no head for the task {task!r}.{did_you_mean(task, self.architectures)} "
                f"It has: {', '.join(self.architectures)}."
            )
        return task

    def make(self, config: Config, task: str | None = None, device: str | torch.device = "cpu") -> Model:
        """A model with freshly drawn weights (on the meta device: shapes only)."""
        task = self.check_task(task or self.default_task)
        with torch.device(device), _NoDefaultInit():
            model = self.build(config, task)
        model.family, model.task = self, task
        model.tie_weights()
        if torch.device(device).type != "meta":
            self.init(config, model)
        return model.eval()

    def preset(self, name: str) -> Config:
        if name not in self.presets:
            raise ConfigError(f"{self.title} has no preset {name!r}.{did_you_mean(name, self.presets)}")
        return self.config(**self.presets[name])


class _NoDefaultInit(TorchFunctionMode):
    """torch's modules draw weights when they are made. Families draw their own, or load them: save the work.

    (On the meta device the drawing alone would import a second's worth of torch.)
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
