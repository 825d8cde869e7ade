"""The training runs below a folder: a run is a folder with log.jsonl and recipe.yaml, and its log is read as it grows.

The page knows a run by an id that says nothing of where it lies.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from clearhead.errors import InputError
from clearhead.messages import say

LOG, RECIPE = "log.jsonl", "recipe.yaml"
DEEP = 4  # folders below the one that was named
MOST = 500  # runs
PIECE = 2 * 2**20  # bytes of a log that are read at a time
TAIL = 64 * 1024  # bytes at the end of a log in which the newest events are looked for


class UnknownRunError(InputError):
    """An id that is not in the listing."""


class Runs:
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser().resolve()
        if not self.folder.is_dir():
            raise InputError(say("studio.runs_folder", folder=folder))
        self._known: dict[str, Path] = {}  # of the last look around

    def _scan(self) -> dict[str, Path]:
        """Every run by its id, the newest first. Links are not followed: what is shown lies below the folder."""
        paths: list[Path] = []
        for directory, folders, files in os.walk(self.folder):
            deep = len(Path(directory).relative_to(self.folder).parts)
            folders[:] = [] if deep >= DEEP else sorted(name for name in folders if not name.startswith("."))
            if {LOG, RECIPE} <= set(files) and not (Path(directory) / LOG).is_symlink():
                paths.append(Path(directory))
                folders[:] = []
        paths.sort(key=lambda path: -_changed(path / LOG))
        self._known = {self._id(path): path for path in paths[:MOST]}
        return self._known

    def _id(self, path: Path) -> str:
        return hashlib.sha256(path.relative_to(self.folder).as_posix().encode()).hexdigest()[:16]

    def listing(self) -> list[dict[str, Any]]:
        """Every run: its name, when it last said something, and the last step and how it ended, where it has."""
        return [{"id": id_, **self._facts(path)} for id_, path in self._scan().items()]

    def _facts(self, path: Path) -> dict[str, Any]:
        name = path.relative_to(self.folder).as_posix()
        log = path / LOG
        facts: dict[str, Any] = {"name": self.folder.name if name == "." else name, "changed": _changed(log)}
        newest = _events(_tail(log))
        steps = [event for event in newest if event.get("event") == "step"]
        return facts | {
            "step": steps[-1].get("step") if steps else None,
            "loss": steps[-1].get("loss") if steps else None,
            "ended": bool(newest) and newest[-1].get("event") == "end",
        }

    def read(self, id_: str, after: int = 0) -> dict[str, Any]:
        """The events of complete lines from byte `after` on.

        next      where to go on reading
        more      whether there is more already
        restart   the log is not the one that was read before (a run that goes on cuts its log): begin anew
        """
        path = self._known.get(id_) or self._scan().get(id_)
        if path is None:
            raise UnknownRunError(say("studio.unknown_run"))
        try:
            with (path / LOG).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                restart = after > size
                if 0 < after <= size:
                    file.seek(after - 1)
                    restart = file.read(1) != b"\n"
                start = 0 if restart else after
                file.seek(start)
                piece = file.read(PIECE)
                while b"\n" not in piece and (longer := file.read(PIECE)):  # a line longer than a piece
                    piece += longer
            recipe = (path / RECIPE).read_text(encoding="utf-8", errors="replace")[:50_000] if start == 0 else None
        except OSError as error:
            raise UnknownRunError(say("studio.unreadable_log", reason=error.strerror)) from None
        complete = piece[: piece.rfind(b"\n") + 1]
        end = start + len(complete)
        return {
            "id": id_, **self._facts(path), "recipe": recipe, "events": _events(complete), "next": end,
            "more": bool(complete) and end < size and start + len(piece) < size, "restart": restart,
        }  # fmt: skip


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted meanwhile
        return 0.0


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            tail = file.read(TAIL)
    except OSError:
        return b""
    return tail if size <= TAIL else tail[tail.find(b"\n") + 1 :]


def _events(lines: bytes) -> list[dict[str, Any]]:
    """Lines that are no events are left out, as in train/engine/log.py."""
    events = []
    for line in lines.split(b"\n"):
        try:
            event = json.loads(line, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            events.append(event)
    return events
