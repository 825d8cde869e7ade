"""Embedding on Ray Data: two local workers make the same store as one process."""

import os
import subprocess
import sys

import pytest

from clearhead.errors import StoreError
from clearhead.retrieval import Document, Store, build
from clearhead.retrieval.building import RayOptions
from tests.retrieval.conftest import prose

# In a process of its own: what Ray starts is gone when it is.
PROGRAM = """
import sys
import clearhead.retrieval.building as building
from tests.retrieval.test_ray import corpus
building.GROUP = 200  # several groups for each worker
where, encoder = sys.argv[1:]
report = building.build(where, corpus(), encoder=encoder, chunk_size=8, ray=building.RayOptions("local", 2))
assert (report.added, report.empty) == (12, ["empty"]), report
"""


def corpus():
    return [Document(f"doc {n}", prose(n, 20 + n), "rows.jsonl") for n in range(12)] + [Document("empty", "")]


@pytest.mark.slow
def test_two_workers_make_the_same_store(tmp_path, encoders):
    pytest.importorskip("ray")
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "ray"), encoders["one"]]
    quick = os.environ | {"RAY_worker_niceness": "0"}  # on a busy machine its workers would wait long
    done = subprocess.run(words, capture_output=True, text=True, env=quick)
    assert done.returncode == 0, done.stderr
    build(tmp_path / "one", corpus(), encoder=encoders["one"], chunk_size=8)
    stores = [Store(tmp_path / name) for name in ("ray", "one")]
    assert stores[0].settings == stores[1].settings and stores[0].documents() == stores[1].documents()
    for name in stores[0].documents():
        plain = [[(chunk.position, chunk.text, chunk.tokens) for chunk in store.chunks(name)] for store in stores]
        assert plain[0] == plain[1]
    found = [[(hit.document, hit.position) for hit in store.search("a dog sat", k=5)] for store in stores]
    assert found[0] == found[1] and stores[0].check().is_good
    # and again, with a process of its own: all is there
    assert build(tmp_path / "ray", corpus()[:-1]).unchanged == 12


def test_without_ray_it_is_said_how_to_get_it(tmp_path, encoders, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(StoreError, match=r'pip install "clearhead\[ray\]"'):
        build(tmp_path / "s", corpus(), encoder=encoders["one"], chunk_size=8, ray=RayOptions("local"))
    assert not (tmp_path / "s").exists()
