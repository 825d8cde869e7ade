"""What a run says while it goes: a plain JSONL file, and TensorBoard where it is installed.

Every line is an event: {"event": "step" | "evaluation" | "sample" | "begin" | "note" | "end", "step": n, …}.
What is not a number (a perplexity without bounds) is null: plain JSON has no word for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from clearhead.errors import CheckpointError

Event = dict[str, Any]
Watcher = Callable[[Event], None]


class Log:
    """The file log.jsonl of a run. A run that goes on from a checkpoint cuts off what it will write again."""

    def __init__(self, path: Path, keep_bytes: int) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")
            self._file.truncate(min(keep_bytes, path.stat().st_size))
        except OSError as error:
            raise self._unwritable(error) from None

    @property
    def bytes(self) -> int:
        return self._file.seek(0, 2)

    def __call__(self, event: Event) -> None:
        try:
            self._file.write(json.dumps(_numbers(event), ensure_ascii=False).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"{self.path} could not be written: {error.strerror or error}. Make room, and run the same command again: "
            "it goes on from the last checkpoint."
        )

    def close(self) -> None:
        with suppress(OSError):  # a full disk was reported already
            self._file.close()


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_log(path: Path) -> list[Event]:
    """The events of a log; a last line that is still being written is left out."""
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events


def tensorboard(folder: Path, step: int) -> Watcher | None:
    """A watcher that writes for TensorBoard, from a step on; None where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # type: ignore[attr-defined, unused-ignore]
    except ImportError:
        return None
    writer = SummaryWriter(str(folder), purge_step=step + 1)  # type: ignore[no-untyped-call, unused-ignore]

    def watch(event: Event) -> None:
        if event["event"] == "step":
            for name, value in event.items():
                if isinstance(value, int | float) and name != "step":
                    writer.add_scalar(f"train/{name}", value, event["step"])
        if event["event"] == "evaluation":
            for name, value in event["metrics"].items():
                writer.add_scalar(f"evaluation/{name}", value, event["step"])
        if event["event"] == "sample":
            writer.add_text("sample", event["text"], event["step"])
        if event["event"] == "end":
            writer.close()

    return watch
