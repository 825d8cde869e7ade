"""How long it is: the lines of every file in models and nn, beside the reference library's for the same family.

    python benchmarks/line_counts.py

Of transformers only modeling_*.py and configuration_*.py count. What these share (modeling_utils.py, attention masks,
caches, losses) is left out, while here everything that computes a forward pass lies in models and nn.
All lines count: code, comments, documentation, blank ones.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import clearhead
from clearhead.models import FAMILIES

HERE = Path(clearhead.__file__).parent
ELSEWHERE = {"openai-gpt": "openai"}  # where the reference's folder is not called as the family is


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def reference_folder() -> Path | None:
    """Where transformers keeps its families; it is found, not imported."""
    spec = importlib.util.find_spec("transformers")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "models"


def reference_lines(models: Path | None, family: str) -> int | None:
    """None where the reference does not ship the family."""
    if models is None:
        return None
    folder = models / ELSEWHERE.get(family, family.replace("-", "_"))
    files = [*folder.glob("modeling_*.py"), *folder.glob("configuration_*.py")]
    return sum(map(lines, files)) if files else None


def show(name: str, count: int, reference: int | str = "") -> None:
    beside = reference if isinstance(reference, str) else f"{reference:,}"
    print(f"  {name:<26}{count:>10,}{beside:>14}".rstrip())


def main() -> None:
    models = reference_folder()
    there = {name: reference_lines(models, name) for name in FAMILIES}
    own_file = {name: HERE / "models" / f"{module.rpartition('.')[2]}.py" for name, module in FAMILIES.items()}

    print(f"  {'family':<26}{'clearhead':>10}{'transformers':>14}")
    for name, path in own_file.items():
        count = there[name]
        show(name, lines(path), "-" if count is None else count)
    shared = [path for path in sorted((HERE / "models").glob("*.py")) if path not in own_file.values()]
    parts = sorted((HERE / "nn").glob("*.py"))
    for title, paths in (("models, shared", shared), ("nn", parts)):
        print(f"\n  {title}")
        for path in paths:
            show(path.name, lines(path))

    families = sum(map(lines, own_file.values()))
    print("\n  totals")
    show(f"{len(own_file)} families", families)
    show("models, shared", sum(map(lines, shared)))
    show("nn", sum(map(lines, parts)))
    show("all of it", families + sum(map(lines, [*shared, *parts])))
    both = {name: count for name, count in there.items() if count is not None}
    if models is None:
        print("\n  transformers is not installed: nothing to compare with.")
        return
    show(f"the {len(both)} families in both", sum(lines(own_file[name]) for name in both), sum(both.values()))
    print(f"\n  Not in this transformers: {', '.join(name for name in there if name not in both)}.")


if __name__ == "__main__":
    main()
