"""Where a checkpoint is: a folder, or a repository on the Hugging Face hub, which is fetched into its cache."""

from __future__ import annotations

import os
import re
from pathlib import Path

from clearhead.errors import CheckpointError, InputError
from clearhead.hub.config import ADAPTER, CONFIG
from clearhead.hub.download import download
from clearhead.hub.elmo_folder import is_elmo_folder, refuse_half
from clearhead.hub.parts import INDEX
from clearhead.hub.run_folder import is_run, model_of_run
from clearhead.hub.sentence import MODULES
from clearhead.messages import say

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def locate(
    where: str | os.PathLike[str],
    revision: str | None = None,
    hint: str = "",
    weights: bool = True,
) -> Path:
    """The folder that holds the checkpoint. A hub id is downloaded, or found in the cache when offline.

    hint      what to add where there is no such model: a name that is like it
    weights   False fetches the configuration and tokenizer only
    """
    if not isinstance(where, str | os.PathLike) or not os.fspath(where):
        raise InputError(say("loading.not_a_name", where=repr(where)))
    path = user_path(where)
    if path.is_dir():
        if revision is not None:
            raise InputError(f"{path} is a folder; only a model from the hub has a revision.")
        if is_run(path):
            return model_of_run(path)
        if not any((path / name).is_file() for name in (CONFIG, MODULES, INDEX, ADAPTER)) and not is_elmo_folder(path):
            refuse_half(path)
            listing = sorted(p.name for p in path.iterdir())[:8] or say("loading.nothing")
            raise CheckpointError(say("loading.no_model_folder", path=path, config=CONFIG, listing=listing))
        return path
    text = os.fspath(where)
    if path.exists():
        raise CheckpointError(say("loading.is_a_file", name=text, config=CONFIG))
    looks_like_path = (
        text.startswith((".", "/", "~", "\\")) or text.endswith("/") or text.count("/") > 1 or "\\" in text
    )
    if looks_like_path or not _HUB_ID.fullmatch(text):
        raise CheckpointError(say("loading.no_folder", name=text, hint=hint))
    return download(text, revision, hint, weights)


def user_path(name: str | os.PathLike[str]) -> Path:
    """A path as a person writes it, ~ being home; what can be none is an error."""
    try:
        path = Path(name).expanduser()
        path.exists()  # a name that is too long, or a NUL
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"The path {os.fspath(name)[:100]!r} cannot be used: {reason}.") from None
    return path
