"""What a run needs to go on after a stop: written whole or not at all, so that the last good one is never lost.

A checkpoint is a folder `checkpoints/step-…`: tensors in safetensors (of a model that is sharded over processes, in
the files of torch.distributed.checkpoint), the rest in state.json. It is written under another name, flushed to the
disk, and renamed. Draws depend on the seed and the step alone, so none are stored.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.errors import CheckpointError
from clearhead.files import commit_folder, crc32
from clearhead.train.engine.world import World

FORMAT = 4
SHARDED = ".metadata"  # among the files of a checkpoint that many processes wrote, each its part
_NAME = re.compile(r"step-(\d{9})")


@dataclass
class Progress:
    """How far a run is, in numbers."""

    step: int = 0  # steps that are done
    steps: int = 0  # that the run was to take when this was written
    units: int = 0  # read so far
    seconds: float = 0.0  # of training, over all its sittings
    best: float | None = None
    best_step: int | None = None
    evaluations_since_best: int = 0
    first_loss: float | None = None
    exploded_steps: int = 0  # steps in a row whose loss was far above the first one
    data: str = ""  # fingerprints of the examples learned from and held out: others would make another run of it
    log_bytes: int = 0  # the log holds so much when the checkpoint is written; what follows is written again
    optimizer: dict[str, Any] = field(default_factory=dict)  # its state, but for tensors


class Checkpoints:
    """The checkpoints of one run. Where there are several processes, all of them save and load together."""

    def __init__(
        self, folder: Path, keep: int, world: World | None = None, describe: Callable[[Path], object] | None = None
    ) -> None:
        """describe: writes into a checkpoint's folder what else is needed to use it as a model"""
        self.folder, self.keep, self.describe = folder, keep, describe
        self.world = world or World(torch.device("cpu"))

    def steps(self) -> list[int]:
        """The steps at which there is a whole checkpoint, oldest first."""
        matches = [_NAME.fullmatch(path.name) for path in self.folder.glob("step-*")]
        return sorted(int(match[1]) for match in matches if match)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}"

    def save(self, progress: Progress, tensors: Mapping[str, Mapping[str, Tensor]]) -> Path:
        """Write one: `tensors` are files by name. Older ones go once this one stands."""
        target = self.path(progress.step)
        temporary = self.folder / f".{target.name}.part"
        try:
            if self.world.is_main:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._delete_leftovers()
                temporary.mkdir()
            if self.world.sharded_parameters is not None:
                from clearhead.train.engine.distributed import save_sharded

                self.world.barrier()
                save_sharded(temporary, tensors)
            elif self.world.is_main:
                for name, table in tensors.items():
                    on_cpu = {key: t.detach().cpu().contiguous() for key, t in table.items()}
                    save_file(on_cpu, temporary / f"{name}.safetensors")
            if self.world.is_main:
                self._finish(progress, temporary, target)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            last = self.steps()
            kept = f"The checkpoint of step {last[-1]} is untouched" if last else "There is no earlier checkpoint"
            raise CheckpointError(
                f"The checkpoint of step {progress.step} could not be written to {self.folder}: {error}. {kept}. "
                "Make room or choose another `out`, and run the same command again."
            ) from None
        self.world.barrier()
        return target

    def _finish(self, progress: Progress, temporary: Path, target: Path) -> None:
        """The tensors are written: add the numbers, and let it stand."""
        if self.describe is not None:
            self.describe(temporary)
        checksums = {path.name: _checksum(path) for path in sorted(temporary.iterdir())}
        state = {"format": FORMAT, "files": checksums, "progress": asdict(progress)}
        (temporary / "state.json").write_text(
            json.dumps(state | {"checksum": _state_checksum(state)}), encoding="utf-8"
        )
        commit_folder(temporary, target)  # a target that exists is a broken one, behind which the run went back
        self._delete_old()

    def load(self, step: int) -> tuple[Progress, dict[str, dict[str, Tensor]]]:
        """The numbers and the tensors of a checkpoint."""
        folder = self.path(step)
        try:
            state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            if state["format"] != FORMAT:
                raise CheckpointError(f"{folder} is of format {state['format']}; this version reads {FORMAT}.")
            if state.pop("checksum") != _state_checksum(state):
                raise CheckpointError(f"{folder / 'state.json'} is not what was written: it is damaged.")
            for name, checksum in state["files"].items():
                if _checksum(folder / name) != checksum:
                    raise CheckpointError(f"{folder / name} is not what was written: it is damaged.")
            if SHARDED in state["files"]:
                from clearhead.train.engine.distributed import load_sharded

                tensors = load_sharded(folder, self.world.sharded_parameters or {})
            else:
                files = [folder / name for name in state["files"] if name.endswith(".safetensors")]
                tensors = {path.stem: load_file(path) for path in files}
            return Progress(**state["progress"]), tensors
        except CheckpointError:
            raise
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise CheckpointError(f"The checkpoint {folder} is broken: {error}.") from None

    def newest(self) -> tuple[Progress, dict[str, dict[str, Tensor]], list[str]] | None:
        """The newest one that can be read, and what was wrong with newer ones; None where there is none at all."""
        problems: list[str] = []
        for step in reversed(self.steps()):
            try:
                return (*self.load(step), problems)
            except CheckpointError as error:
                problems.append(str(error))
        if problems:
            raise CheckpointError(
                "No checkpoint of this run can be read: " + " ".join(problems) + " Delete the folder to begin anew."
            )
        return None

    def _delete_old(self) -> None:
        for step in self.steps()[: -self.keep]:  # in one move: a half of it must not pass for a checkpoint
            self.path(step).rename(self.folder / f".{self.path(step).name}.old")
        self._delete_leftovers()

    def _delete_leftovers(self) -> None:
        """What is not needed any more, and what a process that was killed has left."""
        for path in self.folder.glob(".step-*"):
            shutil.rmtree(path, ignore_errors=True)


def _state_checksum(state: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(state, sort_keys=True).encode())


def _checksum(path: Path) -> list[int]:
    """The size of a file and its CRC-32; not of the parts that many processes wrote, which may be huge."""
    return [path.stat().st_size, crc32(path) if path.suffix == ".safetensors" else 0]
