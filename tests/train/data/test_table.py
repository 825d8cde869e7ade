"""What goes into a table comes out again, in the smallest type, across shards; a damaged one is refused."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import CheckpointError
from clearhead.train.data import table as table_module
from clearhead.train.data.table import Table, TableWriter


def written(folder, examples, **options):
    with TableWriter(folder, "print", **options) as writer:
        for example in examples:
            writer.add(example)
    return Table(folder)


numbers = st.lists(st.integers(-(2**40), 2**40) | st.integers(-3, 300), max_size=6)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(numbers, st.integers(-5, 70000)), min_size=1, max_size=12), st.integers(1, 20), st.integers(1, 9)
)
def test_round_trip(tmp_path_factory, rows, shard, buffer):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "BUFFER", buffer)
        folder = tmp_path_factory.mktemp("table") / "t"
        table = written(folder, [{"ids": np.array(ids, dtype=np.int64), "label": n} for ids, n in rows], shard=shard)
    assert len(table) == len(rows)
    assert [(example["ids"].tolist(), example["label"]) for example in table] == rows
    assert table.lengths("ids").tolist() == [len(ids) for ids, _ in rows]
    whole = [n for ids, _ in rows for n in ids]
    assert table.ends("ids").tolist() == np.cumsum([len(ids) for ids, _ in rows]).tolist()
    for start in range(0, len(whole), 3):
        for stop in (start, start + 1, len(whole)):
            assert table.view("ids", start, stop).tolist() == whole[start:stop]


@pytest.mark.parametrize(
    ("values", "kind"),
    [([0, 255], "|u1"), ([-1, 5], "|i1"), ([50256], "<u2"), ([-100, 30000], "<i2"), ([70000], "<u4"),
     ([-100, 70000], "<i4"), ([2**40], "<i8"), ([0.5], "<f4"), ([True, False], "|u1")],
)  # fmt: skip
def test_smallest_type(tmp_path, values, kind):
    table = written(tmp_path / "t", [{"ids": np.array(values)}])
    said = json.loads((tmp_path / "t" / "manifest.json").read_text())
    assert said["shards"][0]["columns"]["ids"] == {"type": kind, "count": len(values)}
    (found,) = table
    assert found["ids"].tolist() == values
    assert found["ids"].dtype == (np.float32 if kind == "<f4" else np.int64)
    found["ids"][0] = 1  # objectives may write to what they get


def test_files_are_little_endian(tmp_path):
    written(tmp_path / "t", [{"ids": np.array([1, 2**10])}])
    assert (tmp_path / "t" / "ids.00000.bin").read_bytes() == bytes([1, 0, 0, 4])


def test_type_grows_while_a_shard_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module, "BUFFER", 2)
    rows = [[1, 2], [300, 4], [5, 70000], [-1, 2]]
    table = written(tmp_path / "t", [{"ids": np.array(row)} for row in rows])
    assert [example["ids"].tolist() for example in table] == rows
    assert not list((tmp_path / "t").glob("*.narrow"))


def test_rows_may_be_joined(tmp_path):
    with TableWriter(tmp_path / "t", shard=2) as writer:
        for ids, joined in (([1], False), ([2, 3], True), ([], True), ([4], False), ([5], False)):
            writer.add({"ids": np.array(ids, dtype=int), "n": 7}, joined=joined)
    table = Table(tmp_path / "t")
    assert [example["ids"].tolist() for example in table] == [[1, 2, 3], [4], [5]]
    assert len(list(table)) == 3


def test_longest(tmp_path):
    table = written(
        tmp_path / "t", [{"a": [1, 2], "b": [1], "n": 1}, {"a": [], "b": [1, 2, 3], "n": 1}, {"a": [], "b": [], "n": 1}]
    )
    assert table.longest().tolist() == [2, 3, 1]


def test_rows_must_agree(tmp_path):
    for wrong in ({"ids": [1], "other": [2]}, {"ids": 1}, {"ids": [[1]]}, {"ids": ["a"]}, {}):
        with pytest.raises(ValueError):
            written(tmp_path / "t", [{"ids": [1]}, wrong])
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ids.00000.bin", "ids.ends.bin", "ids.lengths.bin", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "gone", "long"])
def test_damage_is_noticed(tmp_path, name, damage):
    written(tmp_path / "t", [{"ids": np.arange(9)}])
    path = tmp_path / "t" / name
    data = path.read_bytes()
    path.unlink() if damage == "gone" else path.write_bytes(data[:-3] if damage == "cut" else data + b"{}")
    with pytest.raises(CheckpointError, match=r"(?i)delete the folder"):
        Table(tmp_path / "t")


def test_other_versions_are_refused(tmp_path):
    written(tmp_path / "t", [{"ids": [1]}])
    path = tmp_path / "t" / "manifest.json"
    path.write_text(path.read_text().replace('"version": 2', '"version": 99'))
    with pytest.raises(CheckpointError, match="version"):
        Table(tmp_path / "t")


def test_nothing_appears_after_an_error(tmp_path):
    with pytest.raises(KeyboardInterrupt), TableWriter(tmp_path / "t") as writer:
        writer.add({"ids": [1]})
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_who_comes_second_keeps_what_is_there(tmp_path):
    with TableWriter(tmp_path / "t") as slow:
        slow.add({"ids": [1]})
        written(tmp_path / "t", [{"ids": [1, 2]}])
    assert len(Table(tmp_path / "t")[0]["ids"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_full_disk_says_so(tmp_path, monkeypatch):
    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(table_module._Column, "_write", full)
    with pytest.raises(CheckpointError, match="No space left"):
        written(tmp_path / "t", [{"ids": [1]}])
    assert list(tmp_path.iterdir()) == []


def test_outside(tmp_path):
    table = written(tmp_path / "t", [{"ids": [1]}, {"ids": [2]}])
    assert table[-1]["ids"].tolist() == [2]
    with pytest.raises(IndexError):
        table[2]
