"""Pictures in, vectors or labels out: what `ch.load` returns for a model that reads pictures alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.session import check_numbers
from clearhead.image import ImageProcessor, load_image_processor
from clearhead.image.processor import as_list
from clearhead.messages import say
from clearhead.models import Model
from clearhead.nn.patches import PatchEmbedder
from clearhead.pipeline.base import Pipeline
from clearhead.pipeline.classify import ScoredLabel, ranked
from clearhead.schema import Field
from clearhead.units import ShownPicture

_BATCH_SIZE = Field(name="batch_size", type=int, default=32, least=1)


def is_one(images: Any) -> bool:
    """One picture, and not a list that happens to have one."""
    return not isinstance(images, list | tuple) and getattr(images, "ndim", 3) != 4


def vision_embedder(model: Model) -> PatchEmbedder:
    embed = model.output_stack.embed
    assert isinstance(embed, PatchEmbedder)
    return embed


def processor_for(folder: Path, model: Model) -> ImageProcessor:
    """The folder's image processor, which then knows the patches of the model."""
    embed = vision_embedder(model)
    processor = load_image_processor(folder, embed.image_size)
    processor.patch_size = embed.patch_size
    return processor


def run_pictures(
    model: Model, processor: ImageProcessor, images: Iterable[Any], run: Callable[[Tensor], Tensor], batch_size: int
) -> Tensor:
    """`run` over the pixel values of all pictures, some at a time: a row for each. Only a batch is unpacked at once."""
    batch_size = _BATCH_SIZE.check(batch_size)
    pictures = list(images)
    if not pictures:
        raise InputError(say("pictures.none"))
    rows = []
    for start in range(0, len(pictures), batch_size):
        pixels = processor(pictures[start : start + batch_size])["pixel_values"]
        rows.append(run(pixels.to(model.device)))
        check_numbers(rows[-1], model)
    return torch.cat(rows)


class PicturePipeline(Pipeline):
    """`image_processor` is its codec."""

    codec: ImageProcessor
    no_text = "pictures.reads_pictures"

    @classmethod
    def from_folder(cls, folder: os.PathLike[str], model: Model, name: str = "") -> PicturePipeline:
        return cls(model, processor_for(Path(folder), model), name)

    @property
    def image_processor(self) -> ImageProcessor:
        return self.codec

    def shown(self, raw: Any, /) -> ShownPicture:
        return self.codec.shown(raw)

    @torch.no_grad()
    def embed(self, images: Any, *, batch_size: int = 32) -> Tensor:
        """The vector of each picture, (pictures, width), or (width,) of a single one: the projected one, where the
        model has a projection, else that of its class vector."""

        def vectors(pixels: Tensor) -> Tensor:
            out = self.model(pixel_values=pixels)
            found: Tensor | None = out.image_embeds if out.image_embeds is not None else out.pooler_output
            if found is None:
                raise InputError(say("pictures.no_vectors", title=self.title, task=self.model.task))
            return found

        found = run_pictures(self.model, self.codec, as_list(images), vectors, batch_size)
        return found[0] if is_one(images) else found

    @torch.no_grad()
    def classify(self, images: Any, *, batch_size: int = 32) -> list[ScoredLabel] | list[list[ScoredLabel]]:
        """All labels that the model was trained on, best first; a list of pictures gives a list of these."""
        if self.model.head.answers != "label":
            raise InputError(say("pictures.no_labels", title=self.title, task=self.model.task))
        config = self.model.config
        logits = run_pictures(
            self.model, self.codec, as_list(images), lambda pixels: self.model(pixel_values=pixels).logits, batch_size
        ).float()
        several = config.problem_type == "multi_label_classification"
        several |= config.num_labels == 1 and config.problem_type is None
        scores = logits.sigmoid() if several else logits.softmax(-1)
        found = [ranked(list(config.id2label.values()), row) for row in scores.tolist()]
        return found[0] if is_one(images) else found

    def __call__(self, images: Any, **options: Any) -> Any:
        """The job that its head was made for: labels, or vectors."""
        return (self.classify if self.model.head.answers == "label" else self.embed)(images, **options)
