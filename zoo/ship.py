"""From a finished run to a shipped model: `python zoo/ship.py runs/stories stories [5 [part]]`. For maintainers.

The folder gets the model packed to eight bits (or five), its tokenizer and its training curve. The card is written by a
person, who has looked at what the model does; a card and a recipe that are there already stay.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from clearhead.files import atomic_folder
from clearhead.hub.packed import PACKED, pack
from clearhead_zoo import MODELS

POINTS = 200  # of the training curve
BY_HAND = ("card.md", "*.yaml")


def ship(run: Path, name: str, bits: int = 8, part: str = "model") -> Path:
    """Copy what is worth shipping of a run; returns the folder.

    part   the folder in the run that holds the model: `model`, or what was made of it (ELMo without its softmax)
    """
    target = MODELS / name
    with atomic_folder(target) as folder:
        pack_run(run, folder, bits, part)
        for path in (path for pattern in BY_HAND for path in target.glob(pattern)):
            shutil.copy(path, folder / path.name)
    return target


def pack_run(run: Path, folder: Path, bits: int = 8, part: str = "model") -> None:
    """The model of a run into an empty folder: packed, with its tokenizer, its sentence modules and its curve."""
    model = run / part
    for path in sorted(model.rglob("*")):
        if path.suffix in (".json", ".txt", ".model"):
            copy = folder / path.relative_to(model)
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(path, copy)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | {"dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    pack(model, folder, bits)
    (folder / PACKED).chmod(0o644)
    (folder / "curve.json").write_text(json.dumps(curve_of(run / "log.jsonl")) + "\n", encoding="utf-8")


def curve_of(log: Path) -> dict[str, list[list[object]]]:
    """The losses of a run, thinned out, and all its evaluations."""
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [e for e in events if e["event"] == "step"]
    return {
        "train": [[e["step"], round(e["loss"], 4)] for e in steps[:: max(1, len(steps) // POINTS)]],
        "valid": [
            [e["step"], {name: round(v, 4) for name, v in e["metrics"].items()}]
            for e in events
            if e["event"] == "evaluation"
        ],
    }


if __name__ == "__main__":
    run, name, *more = sys.argv[1:]
    shipped = ship(Path(run), name, bits=int(more[0]) if more else 8, part=more[1] if more[1:] else "model")
    print(f"{shipped}: {(shipped / PACKED).stat().st_size / 1e6:.1f} MB. Now write its card.md.")
