"""From a finished run to a shipped model: `python -m clearhead.zoo.ship runs/stories stories [5]`. For maintainers.

The folder gets the model packed to eight bits (or five), its tokenizer, its training curve and its measures. The card
is written by a person, who has looked at what the model does.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from clearhead.hub.packed import PACKED, pack
from clearhead.zoo import MODELS

POINTS = 200  # of the training curve


def ship(run: Path, name: str, bits: int = 8) -> Path:
    """Copy what is worth shipping of a run; returns the folder."""
    target = MODELS / name
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted((run / "model").iterdir()):
        if path.suffix in (".json", ".txt", ".model"):
            shutil.copy(path, target / path.name)
    config = json.loads((target / "config.json").read_text(encoding="utf-8")) | {"dtype": "float32"}
    (target / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    pack(run / "model", target, bits)
    (target / PACKED).chmod(0o644)
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [e for e in events if e["event"] == "step"]
    curve = {
        "train": [[e["step"], round(e["loss"], 4)] for e in steps[:: max(1, len(steps) // POINTS)]],
        "valid": [
            [e["step"], {name: round(v, 4) for name, v in e["metrics"].items()}]
            for e in events
            if e["event"] == "evaluation"
        ],
    }
    (target / "curve.json").write_text(json.dumps(curve) + "\n", encoding="utf-8")
    return target


if __name__ == "__main__":
    made = ship(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
    print(f"{made}: {(made / PACKED).stat().st_size / 1e6:.1f} MB. Now write its card.md.")
