"""From the name of any model to its folder: a shipped one's, its own, or where the hub's files were put."""

from __future__ import annotations

import os
from pathlib import Path

from clearhead import hub, zoo
from clearhead.errors import InputError


def folder_of(where: str | os.PathLike[str], revision: str | None = None) -> Path:
    """The folder of a model: its own, a shipped one's, or where a hub's files were put."""
    name = os.fspath(where) if isinstance(where, str | os.PathLike) else ""
    if name in zoo.cards() and not os.path.isdir(name):  # noqa: PTH112 (a name, not yet a path)
        folder = zoo.cards()[name].folder
        if folder is None:
            raise InputError(f"{name} has no files: it is drawn anew each time. Begin with a family instead.")
        if revision is not None:
            raise InputError(f"{name} comes with the package; only a model from the hub has a revision.")
        return folder
    zoo.check_installed(name)
    return hub.locate(where, revision, zoo.hint(name))
