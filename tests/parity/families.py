"""The list: every `family_*.py` beside this file."""

import importlib
from pathlib import Path

from .reference import Reference

FAMILIES: dict[str, Reference] = {}
for _path in sorted(Path(__file__).parent.glob("family_*.py")):
    _reference = importlib.import_module(f"{__package__}.{_path.stem}").REFERENCE
    FAMILIES[_reference.name] = _reference
