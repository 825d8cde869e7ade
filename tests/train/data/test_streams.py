"""Streams: every row reads on where it stopped, windows jitter, and all of it is known from the seed and the step."""

import pickle

import numpy as np
import pytest

from clearhead.errors import InputError
from clearhead.train.data import StreamOrder, Streams, Table, TableWriter


@pytest.fixture
def table(tmp_path):
    """23 documents, 1,000 tokens: each token says where it stands."""
    draw = np.random.default_rng(0)
    ends = np.sort(draw.choice(np.arange(1, 1000), 22, replace=False))
    with TableWriter(tmp_path / "table") as writer:
        for start, stop in zip([0, *ends], [*ends, 1000], strict=True):
            writer.add({"input_ids": np.arange(start, stop)})
    return Table(tmp_path / "table")


def read(streams, steps):
    """What each stream has read in these steps, and what it was to guess."""
    order = StreamOrder(streams)
    rows = [[streams[n] for n in order.at(step)[1]] for step in steps]
    return [
        [np.concatenate([row[stream][name] for row in rows]) for stream in range(streams.rows)]
        for name in ("input_ids", "next_ids")
    ]


@pytest.mark.parametrize(("rows", "length"), [(1, 10), (4, 7), (7, 33), (30, 70)])
def test_held_out_text_is_read_once_in_order(table, rows, length):
    streams = Streams(table, rows, length)
    tokens, follow = read(streams, range(streams.steps_per_epoch()))
    each = 999 // rows
    for n in range(rows):
        assert np.array_equal(tokens[n], np.arange(n * each, (n + 1) * each))
        assert np.array_equal(follow[n], tokens[n] + 1)
    assert len(streams) == rows * streams.steps_per_epoch()


def test_windows_jitter_and_documents_change_places(table):
    streams = Streams(table, 3, 20, seed=5, jitter=True)
    texts = []
    for epoch in range(3):
        first = sum(streams.steps_per_epoch(n) for n in range(epoch))
        steps = range(first, first + streams.steps_per_epoch(epoch))
        assert [streams.place(step) for step in steps] == [(epoch, n) for n in range(len(steps))]
        tokens, follow = read(streams, steps)
        assert all(len(row) == 333 for row in tokens)
        whole = np.concatenate(tokens)
        assert np.array_equal(np.concatenate([whole, follow[-1][-1:]])[1:][: len(whole)][332:333], follow[0][-1:])
        texts.append(whole)
        assert len(np.unique(whole)) == 999  # no token twice
        begins = [streams[step * 3]["begins"] for step in steps]
        assert begins == [True] + [False] * (len(steps) - 1)
    assert not np.array_equal(texts[0], texts[1])


def test_lengths_are_drawn_as_the_paper_says(table, tmp_path):
    with TableWriter(tmp_path / "long") as writer:
        writer.add({"input_ids": np.zeros(300_000, dtype=np.int64)})
    streams = Streams(Table(tmp_path / "long"), 1, 70, jitter=True)
    order = StreamOrder(streams)
    lengths = np.diff([streams.window(step)[0] for step in range(streams.steps_per_epoch())])
    short = lengths < 52
    assert 0.03 < short.mean() < 0.07
    assert abs(lengths[~short].mean() - 69.5) < 0.5 and abs(lengths[~short].std() - 5) < 0.5
    assert abs(lengths[short].mean() - 34.5) < 1.5
    assert order.rate(3) == pytest.approx(lengths[3] / 70)
    assert StreamOrder(Streams(table, 2, 10)).rate(0) == 1.0


def test_any_process_sees_the_same(table):
    streams = Streams(table, 3, 20, seed=5, jitter=True)
    twin = pickle.loads(pickle.dumps(streams))
    for n in (400, 3, 77):
        assert all(np.array_equal(streams[n][name], twin[n][name]) for name in ("input_ids", "next_ids"))
    other = Streams(table, 3, 20, seed=6, jitter=True)
    assert not np.array_equal(other[77]["input_ids"], twin[77]["input_ids"])


def test_too_little_text(table):
    with pytest.raises(InputError, match=r"too few for 1000 rows .* lower batch\.size"):
        Streams(table, 1000, 10)
