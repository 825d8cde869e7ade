"""What is written appears complete or not at all: files, several files, folders; also when the disk is full."""

import zlib

import pytest

from clearhead.errors import CheckpointError
from clearhead.files import (
    atomic_folder,
    atomic_paths,
    atomic_write,
    commit_folder,
    crc32,
    remove_parts,
    temporary_path,
)


def full_disk(*_):
    raise OSError(28, "No space left on device")


def content(folder):
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_a_file(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    atomic_write(path, b"one", CheckpointError)
    atomic_write(path, b"two", CheckpointError)
    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(CheckpointError, match=r"result\.json cannot be written: No space left"):
        atomic_write(path, b"three", CheckpointError)
    assert content(tmp_path) == {"result.json": "two"}


def test_a_missing_folder_is_an_error_in_words(tmp_path):
    with pytest.raises(CheckpointError, match="No such file or directory"):
        atomic_write(tmp_path / "missing" / "file", b"", CheckpointError)


def test_several_files_are_renamed_when_all_are_written(tmp_path):
    targets = tmp_path / "weights", tmp_path / "config"
    with atomic_paths(*targets) as parts:
        for part in parts:
            part.write_text("old")
        assert not any(target.exists() for target in targets)
    with pytest.raises(KeyboardInterrupt), atomic_paths(*targets) as [weights, _]:
        weights.write_text("new")
        raise KeyboardInterrupt
    assert content(tmp_path) == {"weights": "old", "config": "old"}


def test_a_folder_replaces_the_one_before(tmp_path):
    target = tmp_path / "deep" / "model"
    with atomic_folder(target) as folder:
        (folder / "only-in-the-first").write_text("1")
        assert not target.exists()
    with atomic_folder(target) as folder:
        (folder / "part").mkdir()
        (folder / "part" / "config").write_text("2")
        assert content(target) == {"only-in-the-first": "1"}
    assert content(tmp_path) == {"deep/model/part/config": "2"}
    assert [p.name for p in target.parent.iterdir()] == ["model"]


def test_a_folder_that_fails_leaves_the_one_before(tmp_path, monkeypatch):
    target = tmp_path / "model"
    with atomic_folder(target) as folder:
        (folder / "config").write_text("1")
    with pytest.raises(ZeroDivisionError), atomic_folder(target) as folder:
        (folder / "config").write_text("2")
        raise ZeroDivisionError
    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"), atomic_folder(target) as folder:
        (folder / "config").write_text("3")
    assert content(tmp_path) == {"model/config": "1"}


def test_a_folder_comes_back_when_the_new_one_cannot_take_its_place(tmp_path):
    target = tmp_path / "model"
    with atomic_folder(target) as folder:
        (folder / "config").write_text("1")
    part = tmp_path / "part"
    part.mkdir()

    class Stubborn(type(part)):
        def rename(self, _):
            full_disk()

    with pytest.raises(OSError, match="No space left"):
        commit_folder(Stubborn(part), target)
    assert content(tmp_path) == {"model/config": "1"}


def test_what_a_killed_process_left_can_be_removed(tmp_path):
    target, other = tmp_path / "model", tmp_path / "model-2"
    temporary_path(target).mkdir()
    temporary_path(target).write_text("half")
    temporary_path(other).mkdir()
    target.mkdir()
    remove_parts(target)
    assert [p.name.startswith(".model-2.") for p in tmp_path.iterdir() if p != target] == [True]


def test_the_checksum(tmp_path):
    (tmp_path / "file").write_bytes(b"abc" * 2**21)
    assert crc32(tmp_path / "file") == zlib.crc32(b"abc" * 2**21)
