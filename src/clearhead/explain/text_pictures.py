"""Texts × pictures: how well each text fits each picture, and which text a picture would be given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.capabilities import compares_texts_with_pictures
from clearhead.explain.finding import Finding
from clearhead.explain.inference import eval_mode
from clearhead.explain.question import Question
from clearhead.image import pictures_in
from clearhead.messages import say
from clearhead.pipeline import ClipPipeline, Pipeline

SEPARATOR = ";"


@dataclass(frozen=True, repr=False, eq=False)
class TextPictureMatrix(Finding):
    """
    logits          (texts, pictures): the cosine of their vectors times the model's scale
    probabilities   (texts, pictures): of each picture, the softmax over the texts: a column sums to one
    """

    kind: ClassVar[str] = "text-picture-matrix"

    model: str
    texts: list[str]
    pictures: list[str]
    logits: np.ndarray
    probabilities: np.ndarray

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["text", "picture", "logit", "probability"]
        for t, p in np.ndindex(self.logits.shape):
            yield [self.texts[t], self.pictures[p], float(self.logits[t, p]), float(self.probabilities[t, p])]


def text_picture_matrix(pipe: Pipeline, texts: Sequence[str], pictures: Sequence[Any]) -> TextPictureMatrix:
    """Every text with every picture. Pictures are paths, Pillow images or arrays."""
    if not isinstance(pipe, ClipPipeline):
        raise InputError(say("explain.compares_no_pictures", title=pipe.title))
    texts, pictures = ([texts] if isinstance(texts, str) else list(texts)), list(pictures)
    with eval_mode(pipe.model):
        logits = pipe.similarity(texts, pictures).float()
    names = [Path(one).name if isinstance(one, str | Path) else f"{n + 1}" for n, one in enumerate(pictures)]
    return TextPictureMatrix(pipe.name, texts, names, logits.cpu().numpy(), logits.softmax(0).cpu().numpy())


def _answer(pipe: Pipeline, text: str, second: str) -> TextPictureMatrix:
    pictures: list[Path] = []
    for part in _parts(second):
        path = Path(part).expanduser()
        pictures += pictures_in(path) if path.is_dir() else [path]
    return text_picture_matrix(pipe, _parts(text), pictures)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(SEPARATOR) if part.strip()]


QUESTION = Question(
    name="text-picture-matrix", kind="text-picture-matrix", group="answer", answer=_answer,
    checks=(compares_texts_with_pictures,), second="needed", params=(),
)  # fmt: skip
