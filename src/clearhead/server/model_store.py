"""The models that a server may use, by name: each is loaded once, when it is first asked for, and shared by all.

Requests name models by the names in this table. Names that are not in it are hub ids, and only if the user said that
those are welcome; no name from a request is ever used as a path.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead import zoo
from clearhead.errors import ClearheadError, InputError
from clearhead.messages import say
from clearhead.schema import shown
from clearhead.server.errors import UnknownModelError

if TYPE_CHECKING:
    from clearhead.pipeline import Pipeline

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")
MAX_LOADED = 8  # models
MAX_BYTES = 6 * 2**30
_POLL = 0.1  # seconds between two looks at whether anybody still waits
_HIDDEN = ("_name_or_path", "name_or_path")  # of a configuration: where it once lay


@dataclass
class StoredModel:
    """One model.

    name         what requests call it
    source       "shipped", "folder" or "hub"
    path_or_id   what it is loaded from
    """

    name: str
    source: str
    path_or_id: str
    about: str = ""
    license: str | None = None
    trained: bool = True  # random weights are good for trying things out, not as a first choice
    family: str | None = None  # these three are known once its configuration was read
    task: str | None = None
    parameters: int | None = None
    from_request: bool = False  # a hub id that a request named, not whoever started the server
    pipe: Future[Pipeline] | None = None
    last_used: float = field(default_factory=time.monotonic)

    @property
    def loaded(self) -> bool:
        return self.pipe is not None and self.pipe.done()

    def facts(self) -> dict[str, Any]:
        names = ("name", "family", "task", "parameters", "license", "about", "source", "trained", "loaded")
        return {name: getattr(self, name) for name in names}


class ModelStore:
    """
    models        folders and hub ids that the user named on the command line, first among equals
    allow_hub     whether requests may name hub ids of their own
    before_pass   called before each forward pass of a loaded model (a place to stop)
    """

    def __init__(
        self,
        models: Iterable[str] = (),
        allow_hub: bool = False,
        before_pass: Callable[[], None] | None = None,
        max_loaded: int = MAX_LOADED,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.allow_hub, self._before_pass = allow_hub, before_pass
        self._max_loaded, self._max_bytes = max_loaded, max_bytes
        self._lock = threading.Lock()
        self._facts_read = False
        self._models: dict[str, StoredModel] = {}
        for name in models:
            self._add(name)
        for card in zoo.cards().values():
            if card.name not in self._models and (card.folder is None or (card.folder / "config.json").is_file()):
                path_or_id = card.name if card.folder is None else str(card.folder)
                model = StoredModel(card.name, "shipped", path_or_id, about=card.about, family=card.family)
                model.license = _license_in(card.folder)
                model.trained = card.make is None
                self._models[card.name] = model

    def _add(self, path_or_id: str) -> None:
        """A folder gets the name of its last part, and a number where that is taken."""
        path = Path(path_or_id).expanduser()
        if path_or_id in zoo.cards() and not path.is_dir():
            return
        if not path.is_dir():
            if not HUB_ID.fullmatch(path_or_id):
                near = zoo.hint(path_or_id)
                raise InputError(say("server.unknown_folder", name=path_or_id, near=near))
            self._models.setdefault(path_or_id, _hub_model(path_or_id))
            return
        path = path.resolve()
        if any(model.source == "folder" and model.path_or_id == str(path) for model in self._models.values()):
            return
        stem = path.name if path.name != "model" else path.parent.name  # a run keeps its model in run/model
        stem = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "model"
        taken, name, n = {*self._models, *zoo.cards()}, stem, 2
        while name in taken:
            name, n = f"{stem}-{n}", n + 1
        model = StoredModel(name, "folder", str(path), about=say("server.own_folder"))
        _read_facts(model)  # a folder that is no model is said at once
        self._models[name] = model

    @property
    def names(self) -> list[str]:
        with self._lock:
            return list(self._models)

    def first(self) -> str:
        """What is shown before anybody chooses: the first that learned something."""
        return next((name for name in self.names if not name.startswith("random-")), self.names[0])

    def listing(self) -> list[dict[str, Any]]:
        """Every model, with what can be known of it without loading it."""
        with self._lock:
            models = list(self._models.values())
            if not self._facts_read:
                for model in models:
                    if model.source == "shipped" and model.parameters is None:
                        _read_facts(model)
                self._facts_read = True
        return [model.facts() for model in models]

    def find(self, name: str) -> StoredModel:
        """By the name that requests use; an error in words for one that they may not use."""
        with self._lock:
            if name in self._models:
                return self._models[name]
            near = zoo.hint(name[:200], self._models)
            if not HUB_ID.fullmatch(name):
                raise UnknownModelError(say("server.unknown_model", name=shown(name), near=near))
            if not self.allow_hub:
                raise UnknownModelError(say("server.hub_not_allowed", name=shown(name), near=near, bare=name))
            if os.path.lexists(name):  # it must not become a path
                raise UnknownModelError(say("server.model_is_folder", name=name))
            self._models[name] = _hub_model(name, from_request=True)
            return self._models[name]

    def get(
        self, name: str, check: Callable[[], None] = lambda: None, on_wait: Callable[[], None] = lambda: None
    ) -> Pipeline:
        """The model, loaded. Who asks while it is being loaded waits for the same one.

        check     called again and again while waiting; it may raise to stop waiting (the loading goes on)
        on_wait   called once where there is something to wait for
        """
        model = self.find(name)
        with self._lock:
            model.last_used = time.monotonic()
            if model.pipe is None:
                model.pipe = Future()
                threading.Thread(target=self._load, args=(model, model.pipe), daemon=True).start()
            waiting = model.pipe
        if not waiting.done():
            on_wait()
        while True:
            check()
            try:
                return waiting.result(timeout=_POLL)
            except TimeoutError:
                if waiting.done():  # the load itself ran into a time limit
                    raise

    def _load(self, model: StoredModel, promise: Future[Pipeline]) -> None:
        try:
            pipe = self._open(model)
        except BaseException as error:
            with self._lock:  # whoever asks next tries again
                model.pipe = None
                if model.from_request:  # a misspelt id leaves nothing behind
                    self._models.pop(model.name, None)
            promise.set_exception(error)
            return
        with self._lock:
            promise.set_result(pipe)
            model.family, model.task = pipe.model.family.name, pipe.model.task
            model.parameters = pipe.model.num_parameters()
            self._unload_others(model)

    def _open(self, model: StoredModel) -> Pipeline:
        from clearhead.pipeline import load

        pipe = load(model.path_or_id)
        pipe.name = model.name  # not where it lies
        pipe.model.eval()
        if self._before_pass is not None:
            before_pass = self._before_pass
            pipe.model.register_forward_pre_hook(lambda *_: before_pass())
        return pipe

    def _unload_others(self, newest: StoredModel) -> None:
        """Forget the models that were used longest ago. Who still works with one keeps it until the end."""
        others = [model for model in self._models.values() if model.loaded and model is not newest]
        others.sort(key=lambda model: model.last_used)
        while others and (len(others) >= self._max_loaded or sum(map(_bytes, [newest, *others])) > self._max_bytes):
            others.pop(0).pipe = None


def _hub_model(name: str, from_request: bool = False) -> StoredModel:
    return StoredModel(name, "hub", name, about=say("server.from_hub"), from_request=from_request)


def _bytes(stored: StoredModel) -> int:
    assert stored.pipe is not None
    model = stored.pipe.result().model
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def _read_facts(stored: StoredModel) -> None:
    """Family, task and size from the configuration alone; where it cannot be read, loading will say why."""
    from clearhead import hub
    from clearhead.pipeline import folder_of

    card = zoo.cards().get(stored.name) if stored.source == "shipped" else None
    if card is not None and card.make is not None:
        model, _ = card.make(None)
        stored.task, stored.parameters = model.task, model.num_parameters()
        return
    try:
        root = folder_of(stored.path_or_id)
        family, config, raw = hub.read_config(hub.transformer_folder(root))
        task = family.task_of(hub.architecture_of(raw) or "")
        model = family.make(config, "features" if hub.is_sentence_folder(root) else task, "meta")
    except ClearheadError:
        if stored.source == "folder":
            raise
        return
    stored.family, stored.task, stored.parameters = family.name, model.task, model.num_parameters()


def card_of(stored: StoredModel) -> str | None:
    """The card of a shipped model, or of a folder that has one, as Markdown."""
    card = zoo.cards().get(stored.name) if stored.source == "shipped" else None
    folder = card.folder if card is not None else Path(stored.path_or_id) if stored.source == "folder" else None
    for name in ("card.md", "README.md"):
        if folder is not None and (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8", errors="replace")[:100_000]
    return None


def config_of(pipe: Pipeline) -> dict[str, Any]:
    """The configuration, without where it was once kept."""
    return {key: value for key, value in pipe.model.config.to_dict().items() if key not in _HIDDEN}


def _license_in(folder: Path | None) -> str | None:
    """What a card says last under "Data and licence"."""
    if folder is None or not (folder / "card.md").is_file():
        return None
    text = (folder / "card.md").read_text(encoding="utf-8")
    section = re.search(r"^#+ [^\n]*licence[^\n]*\n(.+?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    return None if section is None else " ".join(section[1].strip().split("\n\n")[-1].split())
