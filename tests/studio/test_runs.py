"""Training runs: found below a folder, read as they grow, and nothing beside them."""

import json
import os

import pytest

from clearhead.errors import InputError
from clearhead.studio import runs as module
from clearhead.studio.app import Studio
from clearhead.studio.runs import Runs, UnknownRunError
from clearhead.train.engine.log import Log
from tests.studio.conftest import client_of


def make(folder, steps=3):
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text("seed: 1\n")
    log = Log(folder / "log.jsonl", 0)
    log({"event": "begin", "step": 0})
    for step in range(1, steps + 1):
        log({"event": "step", "step": step, "loss": 1 / step})
    log.close()
    return folder


@pytest.fixture
def folder(tmp_path):
    make(tmp_path / "runs" / "a")
    make(tmp_path / "runs" / "deep" / "b", steps=5)
    make(tmp_path / "elsewhere")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "half").mkdir()
    (tmp_path / "runs" / "half" / "log.jsonl").write_text("")
    return tmp_path / "runs"


def test_runs_are_listed_newest_first_without_their_places(folder):
    os.utime(folder / "a" / "log.jsonl", (1, 1))
    listed = Runs(folder).listing()
    assert [(run["name"], run["step"], run["ended"]) for run in listed] == [("deep/b", 5, False), ("a", 3, False)]
    assert listed[0]["loss"] == 0.2
    assert str(folder) not in json.dumps(listed)
    assert all("/" not in run["id"] for run in listed)
    assert Runs(folder / "a").listing()[0]["name"] == "a"  # the folder itself may be a run


def test_a_log_is_read_as_it_grows(folder):
    runs = Runs(folder)
    id_ = next(run["id"] for run in runs.listing() if run["name"] == "a")
    first = runs.read(id_)
    assert [event["event"] for event in first["events"]] == ["begin", "step", "step", "step"]
    assert first["recipe"] == "seed: 1\n"
    assert (first["more"], first["restart"]) == (False, False)
    log = folder / "a" / "log.jsonl"
    with log.open("a") as file:
        file.write('{"event": "step", "step": 4, "loss": 0.1}\n{"event": "st')
    then = runs.read(id_, first["next"])
    assert [event["step"] for event in then["events"]] == [4]
    assert then["recipe"] is None
    assert runs.read(id_, then["next"])["events"] == []  # half a line is not there yet
    with log.open("a") as file:
        file.write('ep", "step": 5, "loss": NaN}\nno event\n[1]\n{"event": "end", "step": 5}\n')
    last = runs.read(id_, then["next"])
    assert [event["event"] for event in last["events"]] == ["step", "end"]
    assert last["events"][0]["loss"] is None
    assert last["ended"] is True


def test_a_run_that_goes_on_cuts_its_log_and_the_page_begins_anew(folder):
    runs = Runs(folder)
    id_ = runs.listing()[0]["id"]
    end = runs.read(id_)["next"]
    path = folder / runs.listing()[0]["name"] / "log.jsonl"
    path.write_bytes(path.read_bytes()[: end // 2])
    again = runs.read(id_, end)
    assert again["restart"] is True
    assert again["events"][0]["event"] == "begin"
    path.write_bytes(path.read_bytes().ljust(end + 50, b"x") + b"\n")  # grown past the old end with other lines
    assert runs.read(id_, end)["restart"] is True


def test_a_long_log_comes_in_pieces(folder, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 60)
    runs = Runs(folder)
    id_ = next(run["id"] for run in runs.listing() if run["name"] == "deep/b")
    found, after, rounds = [], 0, 0
    while True:
        told = runs.read(id_, after)
        found += told["events"]
        after, rounds = told["next"], rounds + 1
        if not told["more"]:
            break
    assert [event["step"] for event in found] == [0, 1, 2, 3, 4, 5]
    assert rounds > 2
    path = folder / "deep" / "b" / "log.jsonl"
    with path.open("a") as file:
        file.write(json.dumps({"event": "sample", "step": 6, "text": "x" * 500}) + "\n")
    assert runs.read(id_, after)["events"][0]["step"] == 6  # a line longer than a piece


def test_a_run_that_is_deleted_while_it_is_watched_is_said(folder):
    runs = Runs(folder)
    id_ = next(run["id"] for run in runs.listing() if run["name"] == "a")
    (folder / "a" / "log.jsonl").unlink()
    with pytest.raises(UnknownRunError, match="cannot be read"):
        runs.read(id_, 3)
    assert id_ not in [run["id"] for run in runs.listing()]


def test_routes(folder):
    with client_of(Studio(runs=Runs(folder))) as client:
        assert client.get("/api/state").json()["runs"] is True
        listed = client.get("/api/runs").json()["runs"]
        assert {run["name"] for run in listed} == {"a", "deep/b"}
        told = client.get(f"/api/runs/{listed[0]['id']}?after=0").json()
        assert told["events"][0]["event"] == "begin"
        assert client.get(f"/api/runs/{listed[0]['id']}?after={told['next']}").json()["events"] == []
        for after in ("-1", "x", "1.5", "9" * 40, ""):
            assert client.get(f"/api/runs/{listed[0]['id']}", params={"after": after}).status_code == 400
        assert client.get(f"/api/runs/{listed[0]['id']}?after=999999999").json()["restart"] is True
        for path in ("a", "..", "../elsewhere", "..%2felsewhere", "%2e%2e%2felsewhere", "0" * 16, "deep/b"):
            assert client.get(f"/api/runs/{path}").status_code == 404


def test_without_a_folder_there_are_none(page, tmp_path):
    assert page.get("/api/runs").json() == {"runs": []}
    answer = page.get("/api/runs/abc")
    assert answer.status_code == 404
    assert "--runs" in answer.json()["error"]["message"]
    with pytest.raises(InputError, match="no folder"):
        Runs(tmp_path / "missing")
    with pytest.raises(UnknownRunError):
        Runs(tmp_path).read("abc")
