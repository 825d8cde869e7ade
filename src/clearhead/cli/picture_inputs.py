"""Pictures on the command line: paths among texts, and which models read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import InputError
from clearhead.messages import say

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.pipeline import ClipPipeline, PicturePipeline, ScoredLabel


def model_for_pictures(texts: Sequence[str] | None, model: str | None) -> str | None:
    """The model that was named; an error where pictures are given and none is."""
    from clearhead.image import is_picture

    picture = next((text for text in texts or () if is_picture(text)), None)
    if model is None and picture is not None:
        raise InputError(say("pictures.name_a_model", path=picture))
    return model


def reads_pictures(pipe: Any) -> bool:
    from clearhead.pipeline import ClipPipeline, PicturePipeline

    return isinstance(pipe, ClipPipeline | PicturePipeline)


def check_kind(pipe: Any, texts: Sequence[str] | None, takes_texts: bool = False) -> None:
    """Whether a model can read what is on the command line.

    takes_texts   a model of texts and pictures may be given either
    """
    from clearhead.image import is_picture
    from clearhead.pipeline import ClipPipeline

    for text in texts or ():
        if is_picture(text) and not reads_pictures(pipe):
            raise InputError(say("pictures.text_model", path=text, title=pipe.title))
        if not is_picture(text) and reads_pictures(pipe) and not (takes_texts and isinstance(pipe, ClipPipeline)):
            raise InputError(say("pictures.picture_model", title=pipe.title, text=repr(text)))


def classify_pictures(
    pipe: ClipPipeline | PicturePipeline, paths: list[str], second: list[str] | None, options: dict[str, Any]
) -> list[list[ScoredLabel]]:
    from clearhead.pipeline import ClipPipeline

    if second is not None:
        raise InputError(say("generation.one_input", title=pipe.title))
    pictures = [Path(path) for path in paths]
    if isinstance(pipe, ClipPipeline):
        return pipe.classify(pictures, **options)  # type: ignore[return-value]
    if options:
        raise InputError(say("pictures.own_labels", title=pipe.title))
    return pipe.classify(pictures)  # type: ignore[return-value]


def embed_inputs(
    pipe: ClipPipeline | PicturePipeline, inputs: list[str], pooling: str | None, normalize: bool | None
) -> Tensor:
    from torch.nn.functional import normalize as unit_length

    from clearhead.pipeline import ClipPipeline

    if pooling is not None:
        raise InputError(say("pictures.no_pooling", title=pipe.title))
    if isinstance(pipe, ClipPipeline):
        return pipe.embed(inputs, normalize=normalize)
    vectors = pipe.embed(inputs)
    return unit_length(vectors, dim=-1) if normalize else vectors


def may_hold_pictures(where: str) -> bool:
    """Whether this is a picture, or a folder with some."""
    from clearhead.image import is_picture, pictures_in

    path = Path(where).expanduser()
    return bool(pictures_in(path)) if path.is_dir() else is_picture(where) and path.is_file()
