"""The log of a run: plain JSON lines that any program reads, cut back to where a run goes on."""

import json
import math
import sys
import types

import pytest

from clearhead.errors import CheckpointError
from clearhead.train.engine.log import Log, read_log, tensorboard


def test_what_follows_a_checkpoint_is_written_again(tmp_path):
    path = tmp_path / "run/log.jsonl"
    log = Log(path, 0)
    log({"event": "step", "step": 1})
    kept = log.bytes
    log({"event": "step", "step": 2})
    log.close()
    log = Log(path, kept)
    log({"event": "step", "step": 2, "again": True})
    log.close()
    assert read_log(path) == [{"event": "step", "step": 1}, {"event": "step", "step": 2, "again": True}]
    assert Log(path, 10**9).bytes == path.stat().st_size  # shorter than it was: somebody cut it
    Log(path, 0).close()
    assert path.read_bytes() == b""


def test_any_text_is_one_line(tmp_path):
    path = tmp_path / "log.jsonl"
    log = Log(path, 0)
    texts = ["a\nb\rc", "line \u2028 separator \u2029 and \x85 next", "null \x00", "雪 🙂", '"quoted" \\']
    for text in texts:
        log({"event": "sample", "text": text})
    assert path.read_bytes().count(b"\n") == len(texts)
    assert [event["text"] for event in read_log(path)] == texts


def test_plain_json_has_no_infinity(tmp_path):
    path = tmp_path / "log.jsonl"
    Log(path, 0)({"event": "evaluation", "metrics": {"perplexity": math.inf, "loss": math.nan, "good": 1.5}, "n": 3})
    line = path.read_text()
    json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert read_log(path)[0] == {
        "event": "evaluation",
        "metrics": {"perplexity": None, "loss": None, "good": 1.5},
        "n": 3,
    }


def test_a_line_that_is_still_being_written(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"event": "step", "step": 1}\n{"event": "sample", "text": "\xe9\x9b')
    assert read_log(path) == [{"event": "step", "step": 1}]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk(tmp_path):
    log = Log(tmp_path / "log.jsonl", 0)
    log._file.close()
    log._file = open("/dev/full", "wb")  # noqa: PTH123, SIM115
    with pytest.raises(CheckpointError, match=r"No space left.*goes on from the last checkpoint"):
        log({"event": "step"})
    log.close()


def test_tensorboard(tmp_path, monkeypatch):
    """What is sent to it, where it is installed; None where it is not."""
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert tensorboard(tmp_path, 0) is None
    sent = []

    class SummaryWriter:
        def __init__(self, folder, purge_step):
            sent.append(("open", folder, purge_step))

        def __getattr__(self, name):
            return lambda *args: sent.append((name, *args))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    watch = tensorboard(tmp_path, 4)
    for event in (
        {"event": "begin", "step": 4, "steps": 9, "parameters": 5},
        {"event": "step", "step": 5, "loss": 2.5, "terms": {"a": 1.0}},
        {"event": "evaluation", "step": 5, "metrics": {"loss": 1.5}, "best": True},
        {"event": "note", "step": 5, "text": "careful"},
        {"event": "sample", "step": 5, "text": "once"},
        {"event": "end", "step": 5, "finished": True, "metrics": {"loss": 1.5}},
    ):
        watch(event)
    assert sent == [
        ("open", str(tmp_path), 5),
        ("add_scalar", "train/loss", 2.5, 5),
        ("add_scalar", "evaluation/loss", 1.5, 5),
        ("add_text", "sample", "once", 5),
        ("close",),
    ]
