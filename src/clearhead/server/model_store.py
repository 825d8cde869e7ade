"""Which models the page may ask, and where they are kept: each is loaded once, when somebody first asks it.

The page names models by the names in this table. Names that are not in it are hub ids, and only if the user said
that those are welcome; no name from the page is ever used as a path.
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
from clearhead.errors import ClearheadError, InputError, did_you_mean

if TYPE_CHECKING:
    from clearhead.pipeline import Pipeline

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")
KEEP = 8  # models
KEEP_BYTES = 6 * 2**30
LOOK = 0.1  # seconds between two looks at whether anybody still waits
_HIDDEN = ("_name_or_path", "name_or_path")  # of a configuration: where it once lay


@dataclass
class Entry:
    """One model.

    name     what the page calls it
    source   "shipped", "folder" or "hub"
    where    what it is loaded from
    """

    name: str
    source: str
    where: str
    about: str = ""
    license: str | None = None
    trained: bool = True  # random weights are good for trying things out, not as a first choice
    family: str | None = None  # these three are known once its configuration was read
    task: str | None = None
    parameters: int | None = None
    typed: bool = False  # on the page, and not by whoever started the studio
    pipe: Future[Pipeline] | None = None
    used: float = field(default_factory=time.monotonic)

    @property
    def loaded(self) -> bool:
        return self.pipe is not None and self.pipe.done()

    def facts(self) -> dict[str, Any]:
        names = ("name", "family", "task", "parameters", "license", "about", "source", "trained", "loaded")
        return {name: getattr(self, name) for name in names}


class Shelf:
    """
    named   folders and hub ids that the user gave on the command line, first among equals
    hub     whether the page may name hub ids of its own
    check   called by whoever uses a loaded model, before each of its calls (a place to stop)
    """

    def __init__(
        self,
        named: Iterable[str] = (),
        hub: bool = False,
        check: Callable[[], None] | None = None,
        keep: int = KEEP,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        self.hub, self._check, self._keep, self._keep_bytes = hub, check, keep, keep_bytes
        self._lock = threading.Lock()
        self._read = False
        self._entries: dict[str, Entry] = {}
        for name in named:
            self._add_named(name)
        for card in zoo.SHIPPED.values():
            if card.name not in self._entries and (card.folder is None or (card.folder / "config.json").is_file()):
                where = card.name if card.folder is None else str(card.folder)
                entry = Entry(card.name, "shipped", where, about=card.about, family=card.family)
                entry.license = _license_in(card.folder)
                entry.trained = card.make is None
                self._entries[card.name] = entry

    def _add_named(self, given: str) -> None:
        """A folder gets the name of its last part, and a number where that is taken."""
        path = Path(given).expanduser()
        if given in zoo.SHIPPED and not path.is_dir():
            return
        if not path.is_dir():
            if not HUB_ID.fullmatch(given):
                near = did_you_mean(given, zoo.SHIPPED)
                raise InputError(f"There is no folder {given}, and it is no shipped name and no hub id.{near}")
            self._entries.setdefault(given, Entry(given, "hub", given, about="from the Hugging Face hub"))
            return
        path = path.resolve()
        if any(entry.source == "folder" and entry.where == str(path) for entry in self._entries.values()):
            return
        stem = path.name if path.name != "model" else path.parent.name  # a run keeps its model in run/model
        stem = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "model"
        taken, name, n = {*self._entries, *zoo.SHIPPED}, stem, 2
        while name in taken:
            name, n = f"{stem}-{n}", n + 1
        entry = Entry(name, "folder", str(path), about="a folder of yours")
        _read_facts(entry)  # a folder that is no model is said at once
        self._entries[name] = entry

    @property
    def names(self) -> list[str]:
        with self._lock:
            return list(self._entries)

    def first(self) -> str:
        """What is shown before anybody chooses: the first that learned something."""
        return next((name for name in self.names if not name.startswith("random-")), self.names[0])

    def listing(self) -> list[dict[str, Any]]:
        """Every model, with what can be known of it without loading it."""
        with self._lock:
            entries = list(self._entries.values())
            if not self._read:
                for entry in entries:
                    if entry.source == "shipped" and entry.parameters is None:
                        _read_facts(entry)
                self._read = True
        return [entry.facts() for entry in entries]

    def entry(self, name: str) -> Entry:
        """By the name that the page uses; an error in words for one that it may not use."""
        with self._lock:
            if name in self._entries:
                return self._entries[name]
            known = did_you_mean(name[:200], self._entries)
            if not HUB_ID.fullmatch(name):
                raise UnknownModelError(f"There is no model {_shown(name)} here.{known}")
            if not self.hub:
                raise UnknownModelError(
                    f"{_shown(name)} is not a model of this studio.{known} To let the page load models from the hub, "
                    f"start it with --allow-hub, or name this one: --model {name}."
                )
            if os.path.lexists(name):  # it must not become a path
                raise UnknownModelError(f"{name} is also a folder here, and the page may not open folders.")
            entry = Entry(name, "hub", name, about="from the Hugging Face hub", typed=True)
            self._entries[name] = entry
            return entry

    def get(
        self, name: str, check: Callable[[], None] = lambda: None, begins: Callable[[], None] = lambda: None
    ) -> Pipeline:
        """The model, loaded. Who asks while it is being loaded waits for the same one.

        check    called again and again while waiting; it may raise to stop waiting (the loading goes on)
        begins   called once where there is something to wait for
        """
        entry = self.entry(name)
        with self._lock:
            entry.used = time.monotonic()
            if entry.pipe is None:
                entry.pipe = Future()
                threading.Thread(target=self._load, args=(entry, entry.pipe), daemon=True).start()
            waiting = entry.pipe
        if not waiting.done():
            begins()
        while True:
            check()
            try:
                return waiting.result(timeout=LOOK)
            except TimeoutError:
                if waiting.done():  # the load itself ran into a time limit
                    raise

    def _load(self, entry: Entry, promise: Future[Pipeline]) -> None:
        try:
            pipe = self._open(entry)
        except BaseException as error:
            with self._lock:  # whoever asks next tries again
                entry.pipe = None
                if entry.typed:  # a misspelt id leaves nothing behind
                    self._entries.pop(entry.name, None)
            promise.set_exception(error)
            return
        with self._lock:
            promise.set_result(pipe)
            entry.family, entry.task = pipe.model.family.name, pipe.model.task
            entry.parameters = pipe.model.num_parameters()
            self._make_room(entry)

    def _open(self, entry: Entry) -> Pipeline:
        from clearhead.pipeline import load

        pipe = load(entry.where)
        pipe.name = entry.name  # not where it lies
        pipe.model.eval()
        if self._check is not None:
            check = self._check
            pipe.model.register_forward_pre_hook(lambda *_: check())
        return pipe

    def _make_room(self, newest: Entry) -> None:
        """Forget the models that were used longest ago. Who still works with one keeps it until the end."""
        others = [entry for entry in self._entries.values() if entry.loaded and entry is not newest]
        others.sort(key=lambda entry: entry.used)
        while others and (len(others) >= self._keep or sum(map(_bytes, [newest, *others])) > self._keep_bytes):
            others.pop(0).pipe = None


class UnknownModelError(InputError):
    """A name that is not on the shelf."""


def _bytes(entry: Entry) -> int:
    assert entry.pipe is not None
    model = entry.pipe.result().model
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def _read_facts(entry: Entry) -> None:
    """Family, task and size from the configuration alone; where it cannot be read, loading will say why."""
    from clearhead import hub
    from clearhead.pipeline import folder_of

    card = zoo.SHIPPED.get(entry.name) if entry.source == "shipped" else None
    if card is not None and card.make is not None:
        model, _ = card.make(None)
        entry.task, entry.parameters = model.task, model.num_parameters()
        return
    try:
        root = folder_of(entry.where)
        family, config, raw = hub.read_config(hub.transformer_folder(root))
        stored = [task for arch in raw.get("architectures") or [] if (task := family.task_of(str(arch)))]
        model = family.make(config, "features" if hub.is_sentence_folder(root) else next(iter(stored), None), "meta")
    except ClearheadError:
        if entry.source == "folder":
            raise
        return
    entry.family, entry.task, entry.parameters = family.name, model.task, model.num_parameters()


def card_of(entry: Entry) -> str | None:
    """The story of a shipped model, or of a folder that has one, as Markdown."""
    card = zoo.SHIPPED.get(entry.name) if entry.source == "shipped" else None
    folder = card.folder if card is not None else Path(entry.where) if entry.source == "folder" else None
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


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:79] + "…")
