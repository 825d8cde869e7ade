"""The stores of passages that a server may search, by name: each is opened when it is first asked for, and shared.

Requests name stores by the names in this table; no name from a request is ever used as a path.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead import zoo
from clearhead.errors import InputError, did_you_mean
from clearhead.messages import say
from clearhead.schema import shown
from clearhead.server.errors import UnknownModelError

if TYPE_CHECKING:
    from clearhead.retrieval import EditedStore, Store

PassageText = tuple[str, int, str]  # document, which chunk of it, and what stands there instead


class StoreTable:
    """stores: folders that the user named on the command line, each called by its last part. Beside them those that
    ship."""

    def __init__(self, stores: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._opened: dict[str, Store] = {}
        self._places = {name: str(folder) for name, folder in zoo.stores().items()}
        for where in stores:
            if where in self._places and not Path(where).is_dir():
                continue
            path = Path(where).expanduser()
            if not path.is_dir():
                raise InputError(say("retrieval.no_store", where=where))
            name, n = path.resolve().name, 2
            while name in self._places:
                name, n = f"{path.resolve().name}-{n}", n + 1
            self._places[name] = str(path.resolve())

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def listing(self) -> list[dict[str, Any]]:
        return [{"name": name} for name in self._places]

    def check(self, name: str) -> None:
        """An error in words for a name that is none."""
        if name not in self._places:
            near = did_you_mean(name[:200], self._places)
            raise UnknownModelError(say("server.unknown_store", name=shown(name), near=near))

    def get(self, name: str, edits: Sequence[PassageText] = ()) -> Store | EditedStore:
        """The store; with some passages written otherwise for whoever asks, and for nobody else."""
        from clearhead.retrieval import EditedStore, PassageEdit, Store

        self.check(name)
        with self._lock:
            if name not in self._opened:
                self._opened[name] = Store(self._places[name])
            store = self._opened[name]
        return EditedStore(store, [PassageEdit(*edit) for edit in edits]) if edits else store
