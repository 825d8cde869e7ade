"""clearhead search among pictures: their vectors are kept by what is in each file, and broken ones are told."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from clearhead.cli.passages import DOCUMENTS
from clearhead.cli.picture_inputs import may_hold_pictures
from clearhead.cli.style import note, out, print_json
from clearhead.errors import InputError
from clearhead.image.reading import is_picture, pictures_in
from clearhead.messages import say


def check_text_place(pipe: Any, where: str) -> None:
    """A model of texts finds nothing among pictures: that is said, and not that there are no texts."""
    if not may_hold_pictures(where):
        return
    path = Path(where).expanduser()
    texts = (file for file in path.rglob("*") if file.suffix.lower() in DOCUMENTS)
    if path.is_file() or next(texts, None) is None:
        picture = path if path.is_file() else pictures_in(path)[0]
        raise InputError(say("pictures.text_model", path=picture, title=pipe.title))


def search_pictures(
    pipe: Any, model: str, query: str, where: str, top_k: int, cache: Path | None, as_json: bool
) -> None:
    """cache: the folder where vectors are kept; None: nowhere"""
    import torch

    from clearhead.cli.vector_cache import VectorCache, vectors_of
    from clearhead.hub.fingerprint import fingerprint
    from clearhead.pipeline import ClipPipeline

    place = Path(where).expanduser()
    if not isinstance(pipe, ClipPipeline):
        raise InputError(say("pictures.give_whole_clip", title=pipe.title))
    pictures = pictures_in(place) if place.is_dir() else [place] if is_picture(where) else []
    if not pictures:
        raise InputError(say("pictures.none_in_folder", folder=where))
    kept = None
    if cache is not None:
        settings = json.dumps(pipe.image_processor.settings.to_dict(), sort_keys=True)
        name = f"{fingerprint(pipe.model, pipe.tokenizer)} {settings}"
        kept = VectorCache(cache, name, str(place.resolve()))
    names = [_content(path) for path in pictures]
    found = vectors_of(pipe, model, [str(path) for path in pictures], names, kept, _embedded)
    whole = [n for n, vector in enumerate(found) if vector is not None]
    if not whole:
        raise InputError(say("pictures.none_in_folder", folder=where))
    vectors = torch.stack([found[n] for n in whole])
    hits = pipe.search(query, [pictures[n] for n in whole], top_k=top_k, vectors=vectors)
    if as_json:
        results = [{"picture": str(hit.picture), "score": hit.score} for hit in hits]
        print_json({"model": model, "query": query, "results": results})
        return
    if not out().is_terminal:
        for hit in hits:
            print(f"{hit.score:.4f}", hit.picture, sep="\t")
        return
    from clearhead.views.terminal.results import draw_found

    out().print(draw_found([(hit.score, str(hit.picture)) for hit in hits]))


def _content(path: Path) -> str:
    """What is in a file, in short: the picture is the same wherever it lies."""
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return str(path)


def _embedded(pipe: Any, paths: list[str]) -> list[Any]:
    """A vector for each; None for one that cannot be read, which is told."""
    try:
        return list(pipe.embed([Path(path) for path in paths]).float().cpu().numpy())
    except InputError as error:
        if len(paths) > 1:
            return [vector for path in paths for vector in _embedded(pipe, [path])]
        note(f"Left out: {error}")
        return [None]
