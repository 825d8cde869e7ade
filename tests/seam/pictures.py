"""Pictures in: a codec that knows patches, and the pipeline that `ch.load` picks for a family that reads them."""

import json
from pathlib import Path

import numpy as np
import torch

from clearhead.pipeline import Pipeline
from clearhead.units import PatchUnit


class PatchCodec:
    """Pictures as arrays (height, width) from 0 to 1."""

    def __init__(self, patch_size: int) -> None:
        self.patch_size = patch_size

    def __call__(self, image: np.ndarray) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.as_tensor(image, dtype=torch.float32)[None, None] * 2 - 1}

    def units(self, image: np.ndarray) -> list[PatchUnit]:
        rows, columns, size = image.shape[0] // self.patch_size, image.shape[1] // self.patch_size, self.patch_size
        return [
            PatchUnit(f"{r},{c}", r, c, c * size, r * size, size, size) for r in range(rows) for c in range(columns)
        ]

    def save(self, folder) -> list[Path]:
        path = Path(folder) / "preprocessor_config.json"
        path.write_text(json.dumps({"patch_size": self.patch_size}))
        return [path]


class ImagePipeline(Pipeline):
    @classmethod
    def from_folder(cls, folder, model, name=""):
        settings = json.loads((Path(folder) / "preprocessor_config.json").read_text())
        return cls(model, PatchCodec(settings["patch_size"]), name)
