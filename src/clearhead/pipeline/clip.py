"""Texts and pictures in one space: compared, embedded, classified by labels of one's own, searched."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import ClearheadError, InputError, TokenizerError
from clearhead.generate.session import check_numbers
from clearhead.image import ImageProcessor, is_picture, pictures_in
from clearhead.image.processor import as_list
from clearhead.messages import say
from clearhead.models import Model
from clearhead.models.clip import ClipModel, with_labels
from clearhead.pipeline.base import Pipeline, Reading
from clearhead.pipeline.batches import encode_cut, run_batches, texts_of
from clearhead.pipeline.classify import ScoredLabel, checked_labels, ranked
from clearhead.pipeline.label_words import check_template
from clearhead.pipeline.pictures import PicturePipeline, is_one, processor_for, run_pictures
from clearhead.pipeline.search import TOP_K
from clearhead.text import Tokenizer, has_tokenizer, load_tokenizer
from clearhead.units import ShownPicture, Unit

log = logging.getLogger("clearhead")


@dataclass(frozen=True)
class PictureHit:
    """A picture that was found."""

    picture: Any  # as it was given: of a folder, its path
    score: float  # the cosine, from -1 to 1
    index: int  # which of the pictures it is


class TextImageCodec:
    """A tokenizer and an image processor: what is given decides."""

    def __init__(self, tokenizer: Tokenizer | None, image_processor: ImageProcessor) -> None:
        self.tokenizer, self.image_processor = tokenizer, image_processor

    @property
    def target(self) -> Tokenizer:
        """What names the words of the model's vocabulary."""
        assert self.tokenizer is not None
        return self.tokenizer

    def __call__(self, raw: Any, /) -> dict[str, Tensor]:
        if is_picture(raw):
            return self.image_processor(raw)
        assert self.tokenizer is not None
        return dict(self.tokenizer(raw, return_tensors="pt"))

    def units(self, raw: Any, /) -> list[Unit]:
        if is_picture(raw):
            return self.image_processor.units(raw)
        assert self.tokenizer is not None
        return list(self.tokenizer.units(raw))

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        return [*([] if self.tokenizer is None else self.tokenizer.save(folder)), *self.image_processor.save(folder)]


class ClipPipeline(Pipeline):
    """`tokenizer` reads texts, `image_processor` pictures; `model` compares them."""

    model: ClipModel
    codec: TextImageCodec
    no_text = "pictures.reads_both"

    def __init__(self, model: Model, codec: TextImageCodec, name: str = "", no_tokenizer: str = "") -> None:
        """no_tokenizer: why there is none, where files of one were there."""
        super().__init__(model, codec, name)
        self._no_tokenizer = no_tokenizer

    @classmethod
    def from_folder(cls, folder: os.PathLike[str], model: Model, name: str = "") -> Pipeline:
        if not isinstance(model, ClipModel):  # its vision tower alone, with labels
            return PicturePipeline.from_folder(folder, model, name)
        where, tokenizer, missing = Path(folder), None, ""
        try:
            if has_tokenizer(where):
                tokenizer = load_tokenizer(where).limited_to(model.text.embed.max_length, None)
        except ClearheadError as error:  # it takes token ids
            missing = str(error)
            log.warning("The model is loaded without its tokenizer, so it takes token ids only. %s", missing)
        return cls(model, TextImageCodec(tokenizer, processor_for(where, model)), name, missing)

    @property
    def tokenizer(self) -> Tokenizer:
        if self.codec.tokenizer is None:
            raise TokenizerError(self._no_tokenizer or say("generation.no_tokenizer", title=self.title))
        return self.codec.tokenizer

    @property
    def image_processor(self) -> ImageProcessor:
        return self.codec.image_processor

    # ---- jobs

    def similarity(self, texts: str | Sequence[str], images: Any, *, batch_size: int = 32) -> Tensor:
        """(texts, pictures): how well each text fits each picture, the model's `logits_per_text`: 100 × the cosine of
        their vectors in the published models. Down a column, their softmax is the probability of each text."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        with torch.no_grad():
            vectors = self.embed_texts(texts, batch_size=batch_size), self.embed_pictures(as_list(images), batch_size)
            return self.model.head.compare(*vectors, self.model.head.scale())

    def embed(self, inputs: Any, *, normalize: bool | None = None, batch_size: int = 32) -> Tensor:
        """Vectors of unit length: of a text or a picture (width,), of a list of either, or of both, (inputs, width).

        A string is a text, unless it is the path of a picture (it ends in .jpg, .png …).

        normalize   False is refused: the space that both share is one of directions
        """
        if normalize is False:
            raise InputError(say("pictures.always_normalized", title=self.title))
        items = as_list(inputs)
        if not items:
            raise InputError(say("pictures.none"))
        pictures = [n for n, item in enumerate(items) if is_picture(item)]
        texts = [n for n in range(len(items)) if n not in set(pictures)]
        found: dict[int, Tensor] = {}
        if pictures:
            found |= zip(pictures, self.embed_pictures([items[n] for n in pictures], batch_size), strict=True)
        if texts:
            found |= zip(texts, self.embed_texts([items[n] for n in texts], batch_size=batch_size), strict=True)
        vectors = torch.stack([found[n] for n in range(len(items))])
        return vectors[0] if is_one(inputs) else vectors

    @torch.no_grad()
    def embed_texts(self, texts: Sequence[str], *, batch_size: int = 32) -> Tensor:
        """(texts, width). A text that is too long is cut, and a warning says so."""

        def vectors(batch: Any) -> Tensor:
            found: Tensor = self.model(**batch.inputs).text_embeds
            check_numbers(found, self.model)
            return found

        return torch.stack(run_batches(self, encode_cut(self, texts_of(list(texts))), vectors, batch_size))

    @torch.no_grad()
    def embed_pictures(self, images: Sequence[Any], batch_size: int = 32) -> Tensor:
        """(pictures, width)"""
        return run_pictures(
            self.model, self.image_processor, images, lambda p: self.model(pixel_values=p).image_embeds, batch_size
        )

    def classify(
        self, images: Any, labels: Sequence[str] | None = None, template: str | None = None, *, batch_size: int = 32
    ) -> list[ScoredLabel] | list[list[ScoredLabel]]:
        """Which of these labels fits a picture, best first, with probabilities that sum to one; a list of pictures
        gives a list of these.

        template   a sentence with {} for the label, such as "a photo of a {}."; without one the label alone is read
        """
        if labels is None:
            raise InputError(say("pictures.give_labels", title=self.title))
        names = checked_labels(labels)
        if template is not None:
            check_template(template)
        texts = names if template is None else [template.format(name) for name in names]
        scores = self.similarity(texts, images, batch_size=batch_size).t().float().softmax(-1)
        found = [ranked(names, row) for row in scores.tolist()]
        return found[0] if is_one(images) else found

    def search(
        self, query: Any, images: Any, *, top_k: int = 10, vectors: Tensor | None = None, batch_size: int = 32
    ) -> list[PictureHit]:
        """The pictures nearest to a text (or to another picture), best first, each with its cosine.

        images    a list of pictures, or a folder
        vectors   pipe.embed(pictures), kept from before: then only the query is embedded
        """
        top_k = TOP_K.check(top_k)
        if isinstance(images, str | os.PathLike) and Path(images).expanduser().is_dir():
            folder = Path(images).expanduser()
            images = pictures_in(folder)
            if not images:
                raise InputError(say("pictures.none_in_folder", folder=folder))
        pictures = as_list(images)
        if vectors is None:
            vectors = self.embed_pictures(pictures, batch_size)
        wanted = self.embed(query)
        if wanted.ndim != 1:
            raise InputError(say("pictures.one_query"))
        vectors = torch.as_tensor(vectors, dtype=wanted.dtype, device=wanted.device)
        if vectors.shape != (len(pictures), len(wanted)):
            raise InputError(
                f"vectors must have the shape ({len(pictures)}, {len(wanted)}), a row for each picture as pipe.embed "
                f"gives them, not {tuple(vectors.shape)}."
            )
        best = (vectors @ wanted).topk(min(top_k, len(pictures)))
        return [
            PictureHit(pictures[n], score, n)
            for score, n in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def with_labels(self, labels: Sequence[str], template: str | None = None) -> PicturePipeline:
        """The same model as a classifier of pictures with these labels, its weights shared: what explanations of a
        picture ask, such as which patches speak for one label and against another."""
        names = checked_labels(labels)
        if template is not None:
            check_template(template)
        vectors = self.embed_texts(names if template is None else [template.format(name) for name in names])
        return PicturePipeline(with_labels(self.model, names, vectors), self.image_processor, self.name)

    def __call__(self, images: Any, labels: Sequence[str] | None = None, **options: Any) -> Any:
        return self.classify(images, labels, **options)

    # ---- what explanations look at

    def read(self, raw: Any, /, pair: Any = None, target: Any = None) -> Reading:
        """How the model reads a picture or a text.

        pair   what it is compared with: a text for a picture, a picture for a text
        """
        if target is not None:
            raise InputError(say("reading.no_target", title=self.title))
        if pair is not None and is_picture(raw) == is_picture(pair):
            raise InputError(say("pictures.one_of_each"))
        if not is_picture(raw):
            self._check_text(raw)
        inputs = self.codec(raw)
        if pair is not None:
            if not is_picture(pair):
                self._check_text(pair)
            inputs |= self.codec(pair)
        stack = "vision" if is_picture(raw) else "text"
        moved = {name: tensor.to(self.model.device) for name, tensor in inputs.items()}
        return Reading(moved, self.codec.units(raw), [], stack=stack)

    def shown(self, raw: Any, /) -> ShownPicture | None:
        return self.image_processor.shown(raw) if is_picture(raw) else None

    def _check_text(self, text: Any) -> None:
        texts_of(text)
        limit, count = self.model.text.embed.max_length, len(self.tokenizer.encode(text))
        if limit is not None and count > limit:
            what = say("reading.text")
            raise InputError(say("reading.too_long", what=what, count=count, title=self.title, limit=limit))
