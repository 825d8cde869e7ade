"""`ch.load`: from a name to a model in its pipeline. The family says what is read, and so which pipeline it is."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from clearhead import hub, zoo
from clearhead.errors import CheckpointError, ClearheadError, InputError
from clearhead.hub.adapter import base_of, is_adapter, load_adapted
from clearhead.hub.ldm import is_single_file
from clearhead.models import Family, Model
from clearhead.pipeline.base import Pipeline
from clearhead.pipeline.retrieval import with_store
from clearhead.pipeline.text import TextPipeline
from clearhead.text import has_tokenizer
from clearhead.text.builders.word_list import checked_words, read_word_list, word_tokenizer
from clearhead.zoo.folder import folder_of

log = logging.getLogger("clearhead")

# what a family reads (Family.modality) -> its pipeline, as module:class
PIPELINES = {
    "text": "clearhead.pipeline.text:TextPipeline",
    "words": "clearhead.pipeline.words:WordPipeline",
    "image": "clearhead.pipeline.pictures:PicturePipeline",
    "text-image": "clearhead.pipeline.clip:ClipPipeline",
    "word-vectors": "clearhead.pipeline.word_vectors:WordVectors",
}


def pipeline_class(family: Family) -> type[Pipeline]:
    if family.modality not in PIPELINES:
        raise InputError(
            f"{family.title} reads {family.modality}, and there is no pipeline for that: add one to "
            "clearhead.pipeline.PIPELINES."
        )
    module, _, name = PIPELINES[family.modality].partition(":")
    cls: type[Pipeline] = getattr(importlib.import_module(module), name)
    return cls


def load(
    where: str | os.PathLike[str],
    task: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    revision: str | None = None,
    ignore_options: Iterable[str] = (),
    quantize: str | None = None,
    strict: bool = False,
    vocab: str | os.PathLike[str] | Sequence[str] | None = None,
    store: Any = None,
) -> Any:
    """Load a model and its codec, as the pipeline for what its family reads.

    where            a folder, a shipped name ("random-gpt2"), a hub id ("openai-community/gpt2"), a file of fastai's
                     ("model.pth"), Stable Diffusion as one file ("v1-5.safetensors"), or a file of word vectors in
                     GloVe's or word2vec's format ("glove.txt", "vectors.bin")
    task             which head; by default the checkpoint's own
    dtype            "float32", "bfloat16" …; by default as stored
    device           where to put it; by default the CPU
    revision         a branch, tag or commit of a hub repository
    ignore_options   configuration keys that Clearhead does not know and you know to be harmless
    strict           refuse what is otherwise named in a warning: options that Clearhead does not know, tensors of
                     somebody's own head, a class or family that has to be guessed
    quantize         "int8" or "int4": round the weights: faster on a CPU, less memory (nn/fast/quantized.py);
                     "auto": measure this machine and choose (hub/precision.py)
    vocab            of a file of fastai's: its words, as a list or a file with a JSON list; by default vocab.json
                     beside it. Of Stable Diffusion as one file: the folder of its tokenizer, by default the file's own
    store            of a model that retrieves (RETRO): where it looks passages up, a store or its folder
    """
    if store is not None:
        pipe = load(where, task, dtype, device, revision, ignore_options, quantize, strict, vocab)
        return with_store(pipe, store)
    place, kind = hub.as_device(device), hub.as_dtype(dtype)
    hub.check_quantize(quantize, kind, place)
    name = os.fspath(where) if isinstance(where, str | os.PathLike) else ""
    if name and hub.is_fastai_file(hub.user_path(name)):
        return _fastai(hub.user_path(name), vocab, task, dtype, device, quantize)
    if name and is_single_file(hub.user_path(name)):
        return _single_file(hub.user_path(name), vocab, task, kind, place, quantize)
    if vocab is not None:
        raise InputError(f"vocab= is for a file of fastai's ({', '.join(hub.FASTAI_SUFFIXES)}); {name!r} is none.")
    card = zoo.cards().get(name) if not os.path.isdir(name) else None  # noqa: PTH112 (a name, not yet a path)
    if card is not None and card.make is not None:
        if revision is not None:
            raise InputError(f"{name} is made anew each time; only a model from the hub has a revision.")
        model, made = card.make(task)
        model = model.to(device=place, dtype=kind) if quantize is None else hub.apply_precision(model, quantize)
        return TextPipeline(model, made, name=name)
    if name and hub.user_path(name).is_file():
        return _load_file(hub.user_path(name), name, task, kind, place, revision, quantize)
    root = folder_of(where, revision)
    if hub.has_parts(root) and not (root / "config.json").is_file():
        return _parts(root, name, task, kind, place, quantize, strict)
    if is_adapter(root):
        model, base = _adapted(root, task, dtype, device, ignore_options, strict)
        model = model if quantize is None else hub.apply_precision(model, quantize)
        return pipeline_class(model.family).from_folder(root if has_tokenizer(root) else base, model, name)
    folder = hub.transformer_folder(root)
    if task is None and hub.is_sentence_folder(root):
        task = "features"
    model = hub.load_model(folder, task, dtype, device, ignore_options, quantize, strict=strict)
    if hub.user_path(where).is_dir():  # of a run's folder, the part of it that was taken
        name = str(root)
    return pipeline_class(model.family).from_folder(root, model, name)


def _parts(
    root: Path,
    name: str,
    task: str | None,
    dtype: torch.dtype | None,
    device: torch.device,
    quantize: str | None,
    strict: bool,
) -> Any:
    """A folder of several parts. They have one task, and their convolutions are not rounded."""
    from clearhead.pipeline.diffusion import DiffusionPipeline

    _check_drawing(str(root), task, quantize)
    return DiffusionPipeline.from_parts(root, name, dtype, device, strict)


def _single_file(
    path: Path,
    vocab: str | os.PathLike[str] | Sequence[str] | None,
    task: str | None,
    dtype: torch.dtype | None,
    device: torch.device,
    quantize: str | None,
) -> Any:
    """Stable Diffusion as one file, with the folder of its tokenizer."""
    from clearhead.pipeline.diffusion import DiffusionPipeline

    _check_drawing(str(path), task, quantize)
    if vocab is not None and not isinstance(vocab, str | os.PathLike):
        raise InputError(f"{path} draws pictures: vocab is the folder of its tokenizer, not a list.")
    return DiffusionPipeline.from_file(path, None if vocab is None else hub.user_path(vocab), dtype, device)


def _check_drawing(name: str, task: str | None, quantize: str | None) -> None:
    if task not in (None, "draw"):
        raise InputError(f"{name} draws pictures, and has no other task: leave task out.")
    if quantize is not None:
        raise InputError(f'{name} draws pictures; its weights are not rounded. Load it with dtype="bfloat16" instead.')


def _fastai(
    path: Path,
    vocab: str | os.PathLike[str] | Sequence[str] | None,
    task: str | None,
    dtype: torch.dtype | str | None,
    device: torch.device | str | None,
    quantize: str | None,
) -> TextPipeline:
    """A file of fastai's, with the words that were given or that lie beside it."""
    given = hub.words_beside(path) if vocab is None else vocab
    if given is None:
        words = None
    elif isinstance(given, str | os.PathLike):
        words = read_word_list(hub.user_path(given))
    elif isinstance(given, Sequence):
        words = checked_words(given, "vocab=")
    else:
        raise InputError(f"vocab= takes a list of words, or a file that holds one, not {type(given).__name__}.")
    model = hub.load_fastai(path, words, task, dtype, device, quantize)
    if words is not None:
        return TextPipeline(model, word_tokenizer(words), name=str(path))
    missing = f"{path} came without its words, so it takes token ids only. Give them: vocab='vocab.json', a JSON list."
    log.warning(missing)
    return TextPipeline(model, None, name=str(path), no_tokenizer=missing)


def _load_file(
    path: Path,
    name: str,
    task: str | None,
    dtype: torch.dtype | None,
    device: torch.device,
    revision: str | None,
    quantize: str | None,
) -> Any:
    """A file of word vectors. They have one task, and no matrices that could be rounded."""
    from clearhead.pipeline.vector_files import load_vectors

    if revision is not None:
        raise InputError(f"{path} is a file; only a model from the hub has a revision.")
    vectors = load_vectors(path, name, dtype, device)
    if task is not None:
        vectors.model.family.check_task(task)
    if quantize is not None:
        raise InputError(f"{path} holds word vectors, which are looked up and not multiplied with: leave quantize out.")
    return vectors


def _adapted(
    root: Path,
    task: str | None,
    dtype: torch.dtype | str | None,
    device: torch.device | str | None,
    ignore_options: Iterable[str],
    strict: bool,
) -> tuple[Model, Path]:
    """The model that an adapter makes of its base, and the base's folder."""
    name = base_of(root)
    try:
        base = folder_of(name)
    except ClearheadError as error:
        raise CheckpointError(
            f"{root} is an adapter for the model {name}, and that cannot be had: {error} Where it is elsewhere, write "
            "so in adapter_config.json (base_model_name_or_path)."
        ) from None
    return load_adapted(root, hub.transformer_folder(base), task, dtype, device, ignore_options, strict), base
