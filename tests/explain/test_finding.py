"""A finding is plain data: it can be saved whole, read back, and shown."""

import csv
import importlib
import io
import json
import math
import pkgutil
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import pytest

import clearhead.explain
from clearhead.errors import InputError
from clearhead.explain.finding import Finding
from clearhead.units import TokenUnit


@dataclass(frozen=True, repr=False, eq=False)
class Numbers(Finding):
    kind: ClassVar[str] = "numbers"

    name: str
    tokens: list[TokenUnit]
    values: np.ndarray
    one: float = 0.5
    whole: np.ndarray | None = None
    pairs: tuple[tuple[int, str], ...] = ()

    def table(self):
        yield ["name", "value"]
        for value in self.values:
            yield [self.name, float(value)]


def test_everything_becomes_what_json_can_hold():
    values = np.array([[1.5, math.nan], [math.inf, -2.0]], dtype=np.float32)
    found = Numbers("é", [TokenUnit("a", 1, None)], values, np.float64(0.25), np.arange(3), ((1, "x"),))
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data == {
        "kind": "numbers",
        "name": "é",
        "tokens": [{"kind": "token", "text": "a", "id": 1, "word": None, "segment": 0, "start": 0, "end": 0}],
        "values": [[1.5, None], [None, -2.0]],
        "one": 0.25,
        "whole": [0, 1, 2],
        "pairs": [[1, "x"]],
    }
    assert Numbers("a", [], np.zeros(1), math.nan).to_dict()["one"] is None
    assert Numbers("a", [], np.zeros(1), np.float32(math.inf)).to_dict()["one"] is None


def test_saved_by_its_ending(tmp_path):
    found = Numbers('a "quoted", name\nof two lines', [], np.array([0.1, 2.0]))
    rows = list(csv.reader(io.StringIO(found.save(tmp_path / "x.csv").read_text())))
    assert rows == [["name", "value"], [found.name, "0.1"], [found.name, "2.0"]]
    assert json.loads(found.save(tmp_path / "x.JSON").read_text())["name"] == found.name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.JSON", "x.csv"]


def test_what_cannot_be_saved(tmp_path):
    found = Numbers("a", [], np.zeros(1))
    with pytest.raises(InputError, match=r"not as 'x\.png'"):
        found.save(tmp_path / "x.png")
    with pytest.raises(InputError, match="cannot be written"):
        found.save(tmp_path / "nowhere" / "x.json")
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        found.save(tmp_path / "x.csv", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_a_failed_save_leaves_the_old_file(tmp_path):
    class Broken(Numbers):
        def table(self):
            raise RuntimeError

    path = Numbers("a", [], np.ones(1)).save(tmp_path / "x.csv")
    before = path.read_text()
    with pytest.raises(RuntimeError):
        Broken("a", [], np.ones(1)).save(path, overwrite=True)
    assert path.read_text() == before


def test_a_file_is_replaced_only_where_it_is_asked_for(tmp_path):
    path = Numbers("a", [], np.ones(1)).save(tmp_path / "x.csv")
    with pytest.raises(InputError, match=r"x\.csv is there already.*overwrite=True"):
        Numbers("b", [], np.ones(1)).save(path)
    assert "a" in path.read_text()
    assert "b" in Numbers("b", [], np.ones(1)).save(path, overwrite=True).read_text()


def test_all_findings_keep_the_promise():
    for module in pkgutil.iter_modules(clearhead.explain.__path__):
        importlib.import_module(f"clearhead.explain.{module.name}")
    kinds = {}
    for kind in Finding.__subclasses__():
        if kind.__module__.startswith("clearhead.explain"):
            assert kind.__repr__ is Finding.__repr__, f"{kind.__name__} needs @dataclass(repr=False)"
            assert kind.table is not Finding.table and fields(kind)
            assert kinds.setdefault(kind.kind, kind) is kind, f"two findings are called {kind.kind}"
    assert {"attention", "query-key", "ablation", "hidden-states", "comparison"} <= set(kinds)
