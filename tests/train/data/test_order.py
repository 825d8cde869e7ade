"""Every example once an epoch, the same order for the same seed, whatever the devices; batches within their limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import InputError
from clearhead.train.data import Order, micro_batches, rank_shard

lengths = st.lists(st.integers(0, 20), min_size=1, max_size=60).map(np.array)


def epoch_of(order, epoch):
    first = sum(order.steps_per_epoch(e) for e in range(epoch))
    found = [order.at(first + n) for n in range(order.steps_per_epoch(epoch))]
    assert {e for e, _ in found} == {epoch}
    return [numbers for _, numbers in found]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 50), st.integers(1, 12), st.integers(0, 3), st.booleans())
def test_batches_of_one_size(count, size, epoch, shuffle):
    order = Order(count, batch_size=size, seed=3, shuffle=shuffle)
    batches = epoch_of(order, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(count))
    assert all(len(batch) == size for batch in batches[:-1])
    if not shuffle:
        assert np.concatenate(batches).tolist() == list(range(count))


@settings(max_examples=120, deadline=None)
@given(
    lengths,
    st.integers(20, 60),
    st.none() | st.integers(1, 7),
    st.integers(1, 30),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)
def test_batches_by_tokens(lengths, tokens, size, window, shuffle, bucket, epoch):
    order = Order(lengths, batch_tokens=tokens, batch_size=size, window=window, shuffle=shuffle, bucket=bucket, seed=1)
    batches = epoch_of(order, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= (size or len(lengths))
        assert len(batch) * max(lengths[batch].max(), 1) <= tokens
    if not shuffle and not bucket:
        assert np.concatenate(batches).tolist() == list(range(len(lengths)))


def test_like_lengths_stand_together():
    lengths = np.random.default_rng(0).integers(1, 100, 20_000)
    padded = {}
    for bucket in (False, True):
        order = Order(lengths, batch_tokens=4000, bucket=bucket, seed=1)
        padded[bucket] = sum(len(b) * lengths[b].max() for b in epoch_of(order, 0)) / lengths.sum()
    assert padded[True] < 1.06
    assert padded[False] > 1.6
    order = Order(lengths, batch_tokens=4000, seed=1)
    firsts = [lengths[batch].max() for batch in epoch_of(order, 0)]
    assert np.abs(np.corrcoef(firsts[:-1], firsts[1:])[0, 1]) < 0.2  # their order is shuffled


def test_a_step_needs_nothing_but_its_number():
    lengths = np.random.default_rng(0).integers(1, 100, 500)
    for options in ({"batch_size": 7}, {"batch_tokens": 300, "window": 50}, {"batch_size": 7, "bucket": True}):
        running = Order(lengths, seed=5, **options)
        seen = [running.at(step) for step in range(3 * running.steps_per_epoch())]
        for step in (len(seen) - 1, 0, len(seen) // 2):
            epoch, numbers = Order(lengths, seed=5, **options).at(step)
            assert epoch == seen[step][0]
            assert numbers.tolist() == seen[step][1].tolist() == running.at(step)[1].tolist()
        assert running.at(0)[1].tolist() != Order(lengths, seed=6, **options).at(0)[1].tolist()
        again = Order(lengths, seed=5, **options).at(running.steps_per_epoch(0))
        assert again[0] == 1
        assert again[1].tolist() != seen[0][1].tolist()  # another epoch, another order


def test_the_order_is_pinned_down():
    """A run that is continued with a later version must meet the same examples."""
    assert Order(10, batch_size=5, seed=1).at(0)[1].tolist() == [8, 4, 7, 0, 1]
    assert Order(10, batch_size=5, seed=1).at(3)[1].tolist() == [0, 3, 5, 9, 8]
    assert Order(np.arange(1, 11), batch_tokens=20, seed=1).at(1)[1].tolist() == [2, 1, 0]


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 5))
def test_shares_and_parts(rows, world, parts):
    numbers = np.arange(rows)
    shares = [rank_shard(numbers, rank, world) for rank in range(world)]
    assert np.concatenate(shares).tolist() == numbers.tolist()
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(map(len, shares)) or rows < world
    pieces = micro_batches(shares[0], parts)
    assert len(pieces) == parts
    assert np.concatenate(pieces).tolist() == shares[0].tolist()


def test_epochs_to_steps():
    order = Order(100, batch_size=8)
    assert order.steps_per_epoch() == 13
    assert [order.steps_in(epochs) for epochs in (1, 2, 0.5, 2.25, 0.001)] == [13, 26, 6, 29, 1]
    lengths = np.random.default_rng(0).integers(1, 100, 500)
    bucketed = Order(lengths, batch_tokens=300, window=50)
    assert bucketed.steps_in(3) == sum(bucketed.steps_per_epoch(epoch) for epoch in range(3))
    assert bucketed.at(bucketed.steps_in(3))[0] == 3


def test_many_examples_take_four_bytes_each():
    order = Order(3_000_000, batch_size=512)
    order.at(5)
    assert order._numbers.nbytes == 12_000_000


@pytest.mark.parametrize(
    ("examples", "options", "word"),
    [
        (0, {"batch_size": 1}, "no examples"),
        (5, {}, "size"),
        (5, {"batch_size": 0}, "at least 1"),
        (5, {"batch_tokens": 10}, "length of every example"),
        (5, {"batch_size": 2, "bucket": True}, "length of every example"),
        (np.array([3, 30]), {"batch_tokens": 10}, "Example 1 has 30 tokens"),
    ],
)
def test_what_cannot_be(examples, options, word):
    with pytest.raises(InputError, match=word):
        Order(examples, **options)
