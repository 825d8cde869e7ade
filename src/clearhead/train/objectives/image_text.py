"""Which text belongs to which picture (CLIP, 2021): every pair of a batch is right, and all other combinations wrong.

The larger the batch, the harder the task and the better the vectors. So a batch that is read in parts, or by several
devices, is still compared whole, to the same gradients: the vectors of all parts are computed first without a graph;
the loss over all of them gives the gradient of each vector; then each part is read again and hands that on (GradCache).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.image import ImageProcessor, ImageSettings, load_image_processor
from clearhead.models import Model
from clearhead.models.clip import ClipModel, contrastive_loss
from clearhead.pipeline.clip import ClipPipeline, TextImageCodec
from clearhead.text import load_tokenizer
from clearhead.text.builders.train_clip import train_clip_tokenizer
from clearhead.train.data.types import Batch, Example, Record
from clearhead.train.objectives.base import GatherRows, Objective, term_sums
from clearhead.train.objectives.fields import place, text_of
from clearhead.train.objectives.padding import padded
from clearhead.train.objectives.text import tokenizer_identity


class ImageTextContrastive(Objective):
    """
    image_size           the side of the pictures in pixels, for a model that begins with random weights; by default as
                         the starting model has it
    flip                 how often a picture is mirrored when it is seen
    mask_same_captions   two pictures with the same caption are no wrong answers to each other
    """

    name = "image-text-contrastive"
    task = "features"
    unit = "pair"
    columns = ("image", "caption")
    codec_kinds = ("bpe",)
    length_column = "input_ids"
    counts_flops = False
    higher_is_better = frozenset({"text_to_image", "image_to_text"})

    def __init__(
        self,
        codec: TextImageCodec,
        length: int,
        *,
        image_size: int | None = None,
        flip: float = 0.0,
        mask_same_captions: bool = False,
    ) -> None:
        if not isinstance(codec, TextImageCodec) or codec.tokenizer is None:
            kind = type(codec).__name__
            raise InputError(f"{self.name} needs a tokenizer and an image processor, not a {kind}.")
        if image_size is not None and image_size < 1:
            raise InputError(f"image_size is {image_size}; a picture has at least one pixel.")
        if not 0 <= flip <= 1:
            raise InputError(f"flip is {flip}; a share lies between 0 and 1.")
        processor = codec.image_processor
        if image_size is not None:
            processor = ImageProcessor(ImageSettings.square(image_size), processor.patch_size)
        if not (processor.settings.do_center_crop or "height" in processor.settings.size):
            raise InputError("The pictures would differ in size: preprocessor_config.json must set do_center_crop.")
        super().__init__(TextImageCodec(codec.tokenizer, processor), length)
        self.tokenizer, self.processor = codec.tokenizer, processor
        self.image_size, self.flip, self.mask_same_captions = image_size, flip, mask_same_captions

    # ---- the codec

    @classmethod
    def train_codec(
        cls, texts: Iterable[str], kind: str, vocab_size: int, *, lowercase: bool | None = None,
        special_tokens: Sequence[str] = (), min_count: int | None = None, show_progress: bool = True,
    ) -> TextImageCodec:  # fmt: skip
        if lowercase is False:
            raise InputError("CLIP's tokenizer ignores case: leave tokenizer.lowercase out.")
        tokenizer = train_clip_tokenizer(
            texts, vocab_size, min_frequency=2 if min_count is None else min_count, special_tokens=special_tokens
        )
        return TextImageCodec(tokenizer, ImageProcessor())

    @classmethod
    def load_codec(cls, folder: Path) -> TextImageCodec:
        return TextImageCodec(load_tokenizer(folder), load_image_processor(folder))

    @classmethod
    def texts_of(cls, record: Record) -> Iterator[str]:
        yield text_of(record, "caption")

    # ---- from records to batches

    def identity(self) -> dict[str, Any]:
        settings = self.processor.settings.to_dict()
        return super().identity() | {"tokenizer": tokenizer_identity(self.tokenizer), "image": settings}

    def encode(self, record: Record) -> Iterator[Example]:
        """The ids, and the picture as it will be seen, in whole numbers: (channels · height · width,)."""
        ids = self.tokenizer(text_of(record, "caption"), truncation=True, max_length=self.length)["input_ids"]
        try:
            whole = self.processor(record["image"], "np", do_rescale=False, do_normalize=False)["pixel_values"]
        except InputError as error:
            raise InputError(f"{place(record)}: {error}") from None
        sides = {"channels": whole.shape[1], "height": whole.shape[2]}
        yield {"input_ids": np.asarray(ids, np.int32), "pixels": whole.ravel(), **sides}

    def noise(self, example: Example, rng: np.random.Generator) -> Example:
        if self.flip and rng.random() < self.flip:
            pixels = _shaped(example)[:, :, ::-1]
            return example | {"pixels": np.ascontiguousarray(pixels).ravel()}
        return example

    def collate(self, examples: Sequence[Example]) -> Batch:
        ids = [example["input_ids"] for example in examples]
        pad = self.tokenizer.pad_token_id
        inputs = {
            "input_ids": padded(ids, self.tokenizer.eos_token_id or 0 if pad is None else pad),
            "attention_mask": padded([np.ones(len(row), dtype=np.int64) for row in ids], 0),
            "pixel_values": torch.from_numpy(np.stack([_shaped(e).astype(np.uint8) for e in examples])),
            "captions": torch.tensor([_number(row) for row in ids]),
        }
        return Batch(inputs, {"loss": len(examples)}, len(examples))

    # ---- the model

    def special_ids(self) -> dict[str, int]:
        names = ("bos_token_id", "eos_token_id", "pad_token_id")
        return {name: n for name in names if (n := getattr(self.tokenizer, name)) is not None}

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        if self.image_size is None:
            return config
        return config | {"vision_config": {**(config.get("vision_config") or {}), "image_size": self.image_size}}

    def training_module(self, model: Model) -> nn.Module:
        if not isinstance(model, ClipModel):
            raise InputError(f"{self.name} trains a CLIP, not {model.family.title}.")
        embed: Any = model.vision.embed
        crop = self.processor.settings.crop_size if self.processor.settings.do_center_crop else None
        size = crop or self.processor.settings.size
        if {size.get("height"), size.get("width")} != {embed.image_size}:
            raise InputError(
                f"The model reads pictures of {embed.image_size} × {embed.image_size} pixels, and they are prepared in "
                f"{size.get('width')} × {size.get('height')}. Set objective.image_size={embed.image_size}."
            )
        self.processor.patch_size = embed.patch_size
        return model

    def model_inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Pixels are scaled and normalised on the device: a byte each on the way there."""
        settings, pixels = self.processor.settings, batch.inputs["pixel_values"].float()
        if settings.do_rescale:
            pixels = pixels * settings.rescale_factor
        if settings.do_normalize:
            mean, std = (
                torch.tensor(values, device=pixels.device)[:, None, None]
                for values in (settings.image_mean, settings.image_std)
            )
            pixels = (pixels - mean) / std
        return {name: batch.inputs[name] for name in ("input_ids", "attention_mask")} | {"pixel_values": pixels}

    def vectors(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Of the texts and of the pictures, (pairs, width), of unit length; and what multiplies their cosines."""
        out = model(**self.model_inputs(batch))
        return out.text_embeds.float(), out.image_embeds.float(), out.scale.float()

    def compare(self, texts: Tensor, images: Tensor, captions: Tensor, scale: Tensor) -> Tensor:
        """(texts, pictures)"""
        logits = texts @ images.t() * scale
        if self.mask_same_captions:
            same = captions == captions[:, None]
            logits = logits.masked_fill(same & ~torch.eye(len(same), dtype=torch.bool, device=same.device), -torch.inf)
        return logits

    # ---- a batch in parts is one batch

    def look_ahead(self, module: nn.Module, batches: Sequence[Batch], gather: GatherRows | None) -> None:
        """The gradient of every vector of the whole batch, before the parts are read again to pass it on."""
        _head(module).hold_scale()
        if len(batches) == 1 and gather is None:
            return
        read = []
        for batch in batches:
            batch.extra["random"] = _random_state(batch.inputs["input_ids"].device)  # dropout draws the same again
            with torch.no_grad():
                read.append(self.vectors(module, batch))
        kept = [n for n, batch in enumerate(batches) if batch.counts["loss"]]  # a row that stands in counts for nothing
        counts = [batches[n].counts["loss"] for n in kept]
        own = [torch.cat([read[n][side] for n in kept] or [read[0][side][:0]]) for side in (0, 1)]
        captions = torch.cat([batches[n].inputs["captions"] for n in kept] or [batches[0].inputs["captions"][:0]])
        first = 0
        if gather is not None:
            (own[0], first), (own[1], _), (captions, _) = gather(own[0]), gather(own[1]), gather(captions)
        texts, images = (side.detach().requires_grad_() for side in own)
        scale = read[0][2].requires_grad_()
        with torch.enable_grad(), torch.autocast(texts.device.type, enabled=False):
            loss = contrastive_loss(self.compare(texts, images, captions, scale))
            grads = torch.autograd.grad(loss, (texts, images, scale))
        starts = dict(zip(kept, first + np.cumsum([0, *counts])[:-1], strict=True))
        for n, batch in enumerate(batches):
            rows = slice(int(starts.get(n, 0)), int(starts.get(n, 0)) + batch.counts["loss"])
            batch.extra["gradient"] = (loss.detach(), len(texts), grads[0][rows], grads[1][rows], grads[2])

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        if "gradient" not in batch.extra:
            texts, images, scale = self.vectors(model, batch)
            return {"loss": contrastive_loss(self.compare(texts, images, batch.inputs["captions"], scale))}
        loss, total, text_grads, image_grads, scale_grad = batch.extra["gradient"]
        with _drawing_again(batch):
            texts, images, scale = self.vectors(model, batch)
        count = batch.counts["loss"]
        if not count:
            return {"loss": (texts.sum() + images.sum() + scale.sum()) * 0.0}
        # The loop weighs this part by count / total. Its value is the whole loss; its gradient, so weighed, its share.
        handed_on = (texts * text_grads).sum() + (images * image_grads).sum()
        handed_on = handed_on * (total / count) + (scale * scale_grad).sum()
        return {"loss": loss + handed_on - handed_on.detach()}

    # ---- evaluation

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        texts, images, scale = self.vectors(model, batch)
        logits = self.compare(texts, images, batch.inputs["captions"], scale)
        if len(logits) < 2:  # nothing to be told from
            return dict.fromkeys(("loss", "loss.count", "text_to_image", "image_to_text"), 0.0)
        own = torch.arange(len(logits), device=logits.device)
        hits = {"text_to_image": logits.argmax(1) == own, "image_to_text": logits.argmax(0) == own}
        sums = {name: float(right.sum()) for name, right in hits.items()}
        return term_sums({"loss": contrastive_loss(logits)}, batch) | sums

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        if not sums["loss.count"]:
            raise InputError("The held-out batches have one pair each, and nothing to tell it from. Hold out more.")
        count = sums["loss.count"]
        return super().report(sums) | {name: sums[name] / count for name in ("text_to_image", "image_to_text")}

    def pipeline(self, model: Model, name: str) -> ClipPipeline:
        assert isinstance(self.codec, TextImageCodec)
        return ClipPipeline(model, self.codec, name)


def _head(module: nn.Module) -> Any:
    assert isinstance(module, ClipModel)
    return module.head


def _shaped(example: Example) -> np.ndarray:
    """(channels, height, width)"""
    pixels: np.ndarray = example["pixels"]
    return pixels.reshape(int(example["channels"]), int(example["height"]), -1)


def _number(ids: np.ndarray) -> int:
    """A number for a caption: the same for the same, on every device."""
    data = np.asarray(ids, np.int64).tobytes()
    return zlib.crc32(data) << 16 ^ zlib.adler32(data)


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


@contextmanager
def _drawing_again(batch: Batch) -> Iterator[None]:
    """Inside, random numbers are those that the batch was first read with."""
    device = batch.inputs["input_ids"].device
    before = _random_state(device)
    _set_random_state(batch.extra["random"], device)
    yield
    _set_random_state(before, device)


def _set_random_state(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
