"""Killed anywhere, run again: nothing lost, nothing twice. And a store that was damaged is told from a good one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from clearhead.errors import StoreError
from clearhead.retrieval import Document, Store, build
from tests.retrieval.conftest import prose

SIZE, COUNT = 8, 24
# A build of its own process, which commits after every document and says so; the last word is the moment of its death.
PROGRAM = """
import os, signal, sys
sys.path.insert(0, {root!r})
import clearhead.retrieval.building as building
from clearhead.retrieval.table import ChunkTable
from tests.retrieval.test_crash import corpus
building.GROUP, building.COMMIT_SECONDS = 1, 0.0
where, encoder, version, moment, number = sys.argv[1:]
calls = 0

def dies(name, before):
    real = getattr(ChunkTable, name)
    def call(self, *values):
        global calls
        calls += 1
        if before and calls == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(self, *values)
        if not before and calls == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(ChunkTable, name, call)

if moment != "any":
    what, when = moment.split()
    dies(what, when == "before")
print("ready", flush=True)
building.build(where, corpus(version), encoder=encoder, chunk_size={size})
print("done", flush=True)
"""


def corpus(version):
    """The second version has changed a third of the documents, lost one and gained one."""
    if str(version) == "1":
        return [Document(f"doc {n}", prose(n, 20 + n), "rows.jsonl") for n in range(COUNT)]
    texts = {n: prose(n, 20 + n) if n % 3 else prose(n + 50, 31) for n in range(1, COUNT + 1)}
    return [Document(f"doc {n}", text, "rows.jsonl") for n, text in texts.items()]


def start(where, encoder, version, moment, number=0):
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120
    program = PROGRAM.format(root=root, size=SIZE)
    words = [sys.executable, "-c", program, str(where), encoder, str(version), moment, str(number)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def holds(store):
    """(document, position) -> text, each once."""
    found = [(chunk.document, chunk.position, chunk.text) for name in store.documents() for chunk in store.chunks(name)]
    assert len(found) == len(set(found)) == len(store)
    return sorted(found)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, encoders):
    """What both versions look like when nobody is killed."""
    folder = tmp_path_factory.mktemp("whole")
    stores = {}
    for version in (1, 2):
        build(folder / str(version), corpus(version), encoder=encoders["one"], chunk_size=SIZE)
        stores[version] = holds(Store(folder / str(version)))
    return folder, stores


@pytest.mark.parametrize(
    ("version", "moment", "number"),
    [
        (1, "create before", 1), (1, "create after", 1), (1, "add before", 5), (1, "add after", 5),
        (1, "tidy before", 1), (2, "replace before", 2), (2, "replace after", 2), (2, "delete before", 1),
        (2, "delete after", 1),
    ],
)  # fmt: skip
def test_killed_at_a_commit(tmp_path, encoders, whole, version, moment, number):
    where = tmp_path / "store"
    if version == 2:
        shutil.copytree(whole[0] / "1", where)
    if moment.startswith("create"):  # a class method: the folder with its lock alone, or with an empty table
        where.mkdir()
        if moment.endswith("after"):
            from clearhead.retrieval.encoder import Encoder
            from clearhead.retrieval.settings import AskedSettings
            from clearhead.retrieval.table import ChunkTable

            encoder = Encoder(encoders["one"])
            settings = AskedSettings(chunk_size=SIZE).settle(encoder, encoder.name, encoder.tokenizer)
            assert len(ChunkTable.create(str(where), settings)) == 0
    else:
        process = start(where, encoders["one"], version, moment, number)
        out, err = process.communicate()
        assert process.returncode == -signal.SIGKILL and "done" not in out, err
        assert holds(Store(where)) and Store(where).check().is_good  # readable, and every document whole
    build(where, corpus(version), encoder=encoders["one"], chunk_size=SIZE)
    assert holds(Store(where)) == whole[1][version]
    assert Store(where).check().is_good
    report = build(where, corpus(version), encoder=encoders["one"], chunk_size=SIZE)
    assert (report.added, report.replaced, report.removed, report.unchanged) == (0, 0, 0, len(corpus(version)))


def test_killed_at_any_moment(tmp_path, encoders, whole):
    """Again and again, after a little longer each time."""
    where, killed = tmp_path / "store", 0
    for seconds in (0.05, 0.3, 0.8):
        process = start(where, encoders["one"], 1, "any")
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        time.sleep(seconds)
        process.kill()
        out, _ = process.communicate()
        killed += "done" not in out
    assert killed, "it was too quick to be killed"
    build(where, corpus(1), encoder=encoders["one"], chunk_size=SIZE)
    assert holds(Store(where)) == whole[1][1] and Store(where).check().is_good


def test_two_builds_at_once(tmp_path, encoders):
    """The second is refused in words while the first writes."""
    from clearhead.retrieval.table import locked

    with locked(str(tmp_path / "store")), pytest.raises(StoreError, match="Another process is writing"):
        build(tmp_path / "store", corpus(1), encoder=encoders["one"], chunk_size=SIZE)


def test_ctrl_c_keeps_what_was_embedded(tmp_path, encoders):
    def documents():
        yield from corpus(1)[:3]
        raise KeyboardInterrupt

    import clearhead.retrieval.building as building

    before, building.GROUP = building.GROUP, 1
    try:
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "store", documents(), encoder=encoders["one"], chunk_size=SIZE)
    finally:
        building.GROUP = before
    assert set(Store(tmp_path / "store").documents()) == {"doc 0", "doc 1", "doc 2"}


# ---- damage


def first_of(folder):
    return max(folder.iterdir(), key=lambda path: path.stat().st_size)


def cut_short(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE = {
    "data cut short": lambda table: cut_short(first_of(table / "data")),
    "data gone": lambda table: first_of(table / "data").unlink(),
    "data overwritten": lambda table: first_of(table / "data").write_bytes(b"\xff" * 4096),
    "versions cut short": lambda table: [cut_short(path) for path in (table / "_versions").glob("*.manifest")],
    "versions gone": lambda table: shutil.rmtree(table / "_versions"),
    "a file in its place": lambda table: (shutil.rmtree(table), table.write_text("x")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_store_is_told_in_words_and_not_touched(tmp_path, encoders, whole, damage):
    where = tmp_path / "store"
    shutil.copytree(whole[0] / "1", where)
    DAMAGE[damage](where / "chunks.lance")
    files = {path: path.read_bytes() for path in where.rglob("*") if path.is_file()}

    def use():
        store = Store(where)
        store.search("cat")
        store.check()

    for attempt in (use, lambda: build(where, corpus(2), encoder=encoders["one"])):
        with pytest.raises(StoreError, match=r"damaged|is no store|no store at"):
            attempt()
    assert {path: path.read_bytes() for path in where.rglob("*") if path.is_file() and path.name != ".lock"} == {
        path: data for path, data in files.items() if path.name != ".lock"
    }


def test_folders_that_are_no_stores(tmp_path, encoders):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for where, words in (("notes", "holds other files"), ("file", "is a file"), ("nowhere", "There is no store")):
        with pytest.raises(StoreError, match=words):
            Store(tmp_path / where)
    for where in ("notes", "file"):
        with pytest.raises(StoreError):
            build(tmp_path / where, corpus(1), encoder=encoders["one"], chunk_size=SIZE)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.txt", "file", "notes"]


def test_a_table_of_somebody_else(tmp_path):
    import lancedb

    lancedb.connect(tmp_path).create_table("chunks", [{"vector": [1.0, 2.0], "text": "mine"}])
    with pytest.raises(StoreError, match="Clearhead has not made"):
        Store(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("text = 'other'", "its text is not the one"),
        ("chunks = 9", "each once"),
        ("position = 7", "chunks are there"),
    ],
)
def test_check_finds_rows_that_were_changed(tmp_path, whole, change, words):
    import lancedb

    where = tmp_path / "store"
    shutil.copytree(whole[0] / "1", where)
    table = lancedb.connect(where).open_table("chunks")
    column, _, value = change.partition(" = ")
    table.update(where="document = 'doc 3' AND position = 1", values_sql={column: value})
    report = Store(where).check()
    assert not report.is_good and all("doc 3" in problem for problem in report.problems)
    assert words in report.problems[0]


def test_check_finds_chunks_that_are_there_twice_and_foreign_vectors(tmp_path, whole):
    import lancedb
    import numpy as np
    import pyarrow as pa

    where = tmp_path / "store"
    shutil.copytree(whole[0] / "1", where)
    table = lancedb.connect(where).open_table("chunks")
    rows = table.search().where("document = 'doc 4'").to_arrow()
    table.add(rows.drop(["_rowid"]) if "_rowid" in rows.column_names else rows)
    assert any("doc 4" in problem and "each once" in problem for problem in Store(where).check().problems)

    everything = table.to_arrow()
    unit = np.zeros((len(everything), 24), np.float32)
    unit[:, 0] = 1
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(unit.ravel()), 24)
    table.delete("true")
    table.add(everything.set_column(everything.column_names.index("vector"), table.schema.field("vector"), vectors))
    assert any("embedded again" in problem for problem in Store(where).check().problems)


def test_the_settings_are_checked_when_they_are_read(whole):
    from clearhead.retrieval.settings import StoreSettings

    good = Store(whole[0] / "1").settings.to_metadata()
    raw = json.loads(next(iter(good.values())))
    for change, words in (
        ({"version": 9}, "another version"),
        ({"chunk_size": "x"}, "damaged"),
        ({"odd": 1}, "damaged"),
    ):
        with pytest.raises(StoreError, match=words):
            StoreSettings.from_metadata({b"clearhead.store": json.dumps(raw | change).encode()}, "here")
