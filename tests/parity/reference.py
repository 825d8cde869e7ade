"""How the parity harness talks to a family's reference implementation.

A family is listed by a file `family_NAME.py` beside this one that holds `REFERENCE`: a `Reference` that can draw a
small random config, build the reference model, save it to a folder, and open a folder that Clearhead saved.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transformers
from packaging.version import Version
from torch import nn

from tests.tiny import shake

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()


def older_than(version: str) -> bool:
    """Whether the installed transformers still has a fault that `version` mended."""
    return Version(transformers.__version__) < Version(version)


@dataclass
class Reference:
    """
    classes           task -> reference class
    draw              (random source, task) -> the values of a small random config
    takes_positions   whether the reference's forward takes position_ids
    shows_inside      whether it gives hidden states and attention weights
    caches            whether a causal model's cache is one of keys and values, with the same answer as without
    generates         tasks whose `generate` is compared
    faults            task -> what the installed reference does wrong, which is why it is not compared
    """

    name: str
    classes: dict[str, Any]
    draw: Callable[[random.Random, str], dict[str, Any]]
    config_class: Any = None
    takes_positions: bool = True
    shows_inside: bool = True
    caches: bool = True
    generates: tuple[str, ...] = ()
    faults: dict[str, str] = field(default_factory=dict)

    def config(self, rng: random.Random, task: str) -> Any:
        return self.config_class(**self.draw(rng, task))

    def build(self, config: Any, task: str) -> nn.Module:
        config._attn_implementation = "eager"
        return shake(self.classes[task](config))

    def save(self, model: Any, folder: Path) -> None:
        model.save_pretrained(folder)

    def open(self, folder: Path, task: str) -> nn.Module:
        return self.classes[task].from_pretrained(folder, attn_implementation="eager").eval()
