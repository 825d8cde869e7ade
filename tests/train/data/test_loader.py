"""Batches are the same made ahead or not, on one device or several; errors reach the one who asks."""

import threading
import time

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.train.data import Blocks, Loader, Order, Table, TableWriter, evaluation_batches


class Rows:
    """Examples that tell their number: row n holds n + 1 times n."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, n):
        return {"input_ids": np.full(n % 5 + 1, n)}


def tensors(batches):
    return [batch.inputs["input_ids"].tolist() for batch in batches]


def rows_of(batches):
    """The rows without their padding, each as a list."""
    found = []
    for batch in batches:
        for row, mask in zip(batch.inputs["input_ids"], batch.inputs["attention_mask"], strict=True):
            found.append(row[mask.bool()].tolist())
    return found


def test_made_ahead_or_not(noisy):
    made = []
    for prefetch in (0, 1, 4):
        with Loader(
            Rows(20), noisy, Order(20, batch_size=6, seed=2), seed=9, prefetch=prefetch, gradient_accumulation_steps=2
        ) as loader:
            made.append([tensors(loader.at(step)) for step in (0, 1, 2, 3, 4, 9, 10, 3)])
    assert made[0] == made[1] == made[2]
    assert made[0][3] == made[0][7]
    assert all(len(step) == 2 for step in made[0][:3])
    assert not [t for t in threading.enumerate() if t.name == "clearhead-batches"]


def test_noise_is_the_examples_own(noisy):
    """It depends on (seed, epoch, number), not on the batch, the device or the part."""

    def by_number(seed, epoch, **options):
        order = Order(20, seed=3, **options.pop("batch", {"batch_size": 6}))
        found = {}
        for step in range(epoch * order.steps_per_epoch(), (epoch + 1) * order.steps_per_epoch()):
            for rank in range(options.get("world_size", 1)):
                loader = Loader(Rows(20), noisy, order, seed=seed, prefetch=0, **(options | {"rank": rank}))
                numbers = np.array_split(order.at(step)[1], options.get("world_size", 1))[rank]
                found |= zip(numbers.tolist(), rows_of(loader.at(step)), strict=False)
        assert len(found) == 20
        return found

    plain = by_number(1, 0)
    assert (
        plain
        == by_number(1, 0, world_size=3, gradient_accumulation_steps=2)
        == by_number(1, 0, batch={"batch_size": 20})
    )
    assert plain != by_number(2, 0)
    assert plain != by_number(1, 1)
    assert len({str(row[:1]) for row in plain.values()}) > 10


@pytest.mark.parametrize(("rows", "world", "parts"), [(10, 2, 2), (7, 3, 2), (2, 4, 2), (5, 2, 3), (1, 2, 1)])
def test_devices_share_a_batch_and_do_equal_work(documents, rows, world, parts):
    order = Order(rows, batch_size=rows, shuffle=False)
    shares = [
        Loader(
            Rows(rows), documents, order, rank=rank, world_size=world, gradient_accumulation_steps=parts, prefetch=0
        ).at(0)
        for rank in range(world)
    ]
    assert len({len(batches) for batches in shares}) == 1
    assert len(shares[0]) == min(parts, -(-rows // world))
    counted = [batch for batches in shares for batch in batches if batch.units]
    assert rows_of(counted) == [[n] * (n % 5 + 1) for n in range(rows)]
    for batch in (batch for batches in shares for batch in batches if not batch.units):
        assert batch.counts == {"loss": 0}
        assert rows_of([batch]) == [[0]]  # a row to compute with that counts for nothing


def test_errors_arrive_with_the_step(documents, monkeypatch):
    collate = documents.collate

    def broken(error):
        def raises(examples):
            if any(example["input_ids"][0] == 7 for example in examples):
                raise error
            return collate(examples)

        return raises

    for error, word in ((InputError("bad row"), "At step 3: bad row"), (ZeroDivisionError("oops"), "oops")):
        monkeypatch.setattr(documents, "collate", broken(error))
        with Loader(Rows(10), documents, Order(10, batch_size=2, shuffle=False)) as loader:
            assert [len(loader.at(step)) for step in range(3)] == [1, 1, 1]
            for _ in range(2):  # asked again, it fails again rather than waits for ever
                with pytest.raises(type(error), match=word) as caught:
                    loader.at(3)
        if word == "oops":
            assert "step 3" in caught.value.__notes__[0]


def test_closes_while_a_batch_is_being_made(documents, monkeypatch):
    collate = documents.collate

    def slow(examples):
        time.sleep(0.05)
        return collate(examples)

    monkeypatch.setattr(documents, "collate", slow)
    loader = Loader(Rows(10), documents, Order(10, batch_size=2))
    loader.at(0)
    loader.close()
    loader.close()
    assert not [t for t in threading.enumerate() if t.name == "clearhead-batches"]
    assert len(loader.at(0)) == 1
    loader.close()


def test_making_batches_leaves_torchs_draws_alone(noisy):
    torch.manual_seed(1)
    wanted = torch.rand(1)
    torch.manual_seed(1)
    with Loader(Rows(10), noisy, Order(10, batch_size=2)) as loader:
        loader.at(0)
    assert torch.equal(torch.rand(1), wanted)


def test_evaluation_is_the_same_every_time(noisy):
    order = Order(11, batch_size=4, shuffle=False)
    once, twice = (rows_of(evaluation_batches(Rows(11), noisy, order, seed=1)) for _ in range(2))
    assert once == twice
    assert list(map(len, once)) == [n % 5 + 1 for n in range(11)]
    assert once != rows_of(Loader(Rows(11), noisy, Order(11, batch_size=11, shuffle=False), seed=1, prefetch=0).at(0))
    shares = [rows_of(evaluation_batches(Rows(11), noisy, order, seed=1, rank=rank, world_size=3)) for rank in range(3)]
    assert sorted(row for rows in shares for row in rows) == sorted(once)
    assert len(rows_of(evaluation_batches(Rows(11), noisy, order, limit=2))) == 8
    order = Order(9, batch_size=8, shuffle=False)
    last = [list(evaluation_batches(Rows(9), noisy, order, rank=rank, world_size=2, equal=True)) for rank in (0, 1)]
    assert [[batch.units for batch in batches] for batches in last] == [[10, 4], [11, 0]]
    assert last[1][1].counts == {"loss": 0}
    with pytest.raises(InputError, match="shuffle=False"):
        next(evaluation_batches(Rows(11), noisy, Order(11, batch_size=4)))


def test_the_order_must_fit_the_data(documents):
    with pytest.raises(InputError, match="5 examples"):
        Loader(Rows(4), documents, Order(5, batch_size=1))


def test_processes_make_the_same_batches(noisy, tmp_path):
    """What a batch holds depends on the seed and the step, not on who made it; data on disk is opened, not sent."""
    with TableWriter(tmp_path / "table") as writer:
        for n in range(20):
            writer.add(Rows(20)[n])
    data = Blocks(Table(tmp_path / "table"), 3)
    order = Order(len(data), batch_size=4, seed=3)
    steps = [0, 1, 2, 3, 1]  # going back makes a new start
    with Loader(data, noisy, order, seed=3, gradient_accumulation_steps=2, prefetch=0) as plain:
        wanted = [tensors(plain.at(step)) for step in steps]
    with Loader(data, noisy, order, seed=3, gradient_accumulation_steps=2, workers=1) as loader:
        assert [tensors(loader.at(step)) for step in steps] == wanted
        for process in loader._prefetcher._pool._processes.values():
            process.kill()  # as the system does where memory runs out
        with pytest.raises(InputError, match=r"Lower data\.workers"):
            for step in range(2, 9):
                loader.at(step)
