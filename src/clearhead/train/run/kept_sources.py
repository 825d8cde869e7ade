"""What a run keeps of its sources: enough to go on when they are gone, and to stop at once when they have changed.

out/sources.json   of each part what it is called and its fingerprint; and the labels that were found in it
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clearhead.errors import CheckpointError, InputError
from clearhead.files import atomic_write, read_json
from clearhead.text.text_files import Advance
from clearhead.train.data import Source
from clearhead.train.data.formats import Row
from clearhead.train.data.source_options import SourceOptions
from clearhead.train.objectives import Objective

FILE = "sources.json"


class GoneSource(Source):
    """Data that is not there any more, and of which the prepared examples are."""

    def __init__(self, name: str, fingerprint: str) -> None:
        super().__init__(SourceOptions())
        self._name, self._fingerprint = name, fingerprint

    @property
    def name(self) -> str:
        return self._name

    @property
    def size(self) -> int:
        return 0

    def fingerprint(self) -> str:
        return self._fingerprint

    def rows(self, advance: Advance) -> Iterator[tuple[str, Row]]:
        raise InputError(
            f"{self.name} is gone, and its prepared examples do not fit what is asked now, or are damaged. Put the "
            "data back where it was, or name its new place."
        )


def keep_sources(folder: Path, sources: Mapping[str, Source], objective: Objective) -> None:
    parts = {part: {"name": source.name, "fingerprint": source.fingerprint()} for part, source in sources.items()}
    text = json.dumps({"parts": parts, "labels": objective.learned_labels}, ensure_ascii=False, indent=2)
    atomic_write(folder / FILE, (text + "\n").encode(), CheckpointError)


def kept_labels(folder: Path) -> Any:
    return _kept(folder).get("labels")


def kept_sources(folder: Path) -> dict[str, GoneSource]:
    """By part; empty where the run has not come as far as that."""
    return {part: GoneSource(**facts) for part, facts in _kept(folder).get("parts", {}).items()}


def _kept(folder: Path) -> dict[str, Any]:
    return read_json(folder / FILE, CheckpointError) if (folder / FILE).is_file() else {}


def check_unchanged(folder: Path, sources: Mapping[str, Source]) -> None:
    """An error where a source is another than the run began with. The test is looked at in the end only: it may be."""
    known = kept_sources(folder)
    for part in ("train", "valid"):
        if part in known and part in sources and known[part].fingerprint() != sources[part].fingerprint():
            raise CheckpointError(
                f"The {part} data ({sources[part].name}) has changed since the run in {folder} began. Put it back as "
                "it was, take it away (the run then goes on from what it has prepared), or begin anew: out=…"
            )


def notes_on_gone(sources: Mapping[str, Source]) -> list[str]:
    gone = {part: source for part, source in sources.items() if isinstance(source, GoneSource)}
    notes = [
        f"The {part} data ({source.name}) is gone; the run goes on from the examples that it has prepared."
        for part, source in gone.items()
    ]
    if "test" in gone:
        notes.append("What needs the text of the test (BLEU, exact match) will not be measured.")
    return notes
