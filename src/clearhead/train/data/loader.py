"""The batches of a step, made ahead of time by a thread: example, noise, padding, tensors.

What a batch holds depends on the seed and the step alone. Making it early, late or on another device changes nothing.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future
from typing import Any

import numpy as np
import torch

from clearhead.errors import ClearheadError, InputError
from clearhead.train.data.order import Order, micro_batches, rank_shard
from clearhead.train.data.types import Batch, Examples, Preprocessor
from clearhead.train.data.workers import WORKER_DIED, worker_pool

HELD_OUT = 0x48454C44  # draws for held-out data are apart from those for training


class Loader:
    """`loader.at(step)` is the list of micro-batches of this device; those of the next steps are under way.

    Every device gets the same number of micro-batches in a step. Where there are too few rows, one gets a row again
    that counts for nothing, so that all devices can do the same work together.
    """

    def __init__(
        self,
        data: Examples,
        preprocessor: Preprocessor,
        order: Order,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        gradient_accumulation_steps: int = 1,
        device: torch.device | str = "cpu",
        prefetch: int = 2,
        workers: int = 0,
    ) -> None:
        """
        prefetch   how many steps are made ahead; 0: none
        workers    processes that make them, where a thread is not enough; 0: a thread
        """
        if order.count != len(data):
            raise InputError(f"The order is for {order.count} examples, but the data has {len(data)}.")
        self.data, self.preprocessor, self.order = data, preprocessor, order
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.device, self.prefetch, self.workers = torch.device(device), prefetch, workers
        self._prefetcher: _ThreadPrefetcher | _ProcessPrefetcher | None = None

    def at(self, step: int) -> list[Batch]:
        """The micro-batches of a step. Asked for in order they are ready; any other step makes a new start."""
        if not self.prefetch:
            return self._to_device(self._make(step))
        if self._prefetcher is None or self._prefetcher.next != step:
            self.close()
            self._prefetcher = _ProcessPrefetcher(self, step) if self.workers else _ThreadPrefetcher(self, step)
        return self._to_device(self._prefetcher.take())

    def close(self) -> None:
        """Stop working ahead. The loader can still be asked afterwards."""
        if self._prefetcher is not None:
            self._prefetcher.stop()
            self._prefetcher = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _to_device(self, batches: list[Batch]) -> list[Batch]:
        return batches if self.device.type == "cpu" else [batch.to(self.device) for batch in batches]

    def _rows(self, step: int) -> tuple[int, np.ndarray, list[np.ndarray]]:
        """The epoch of a step, all examples of the step, and those of each micro-batch of this device."""
        epoch, numbers = self.order.at(step)
        parts = min(self.gradient_accumulation_steps, -(-len(numbers) // self.world_size))  # the same for every device
        return epoch, numbers, micro_batches(rank_shard(numbers, self.rank, self.world_size), parts)

    def _make(self, step: int) -> list[Batch]:
        epoch, numbers, parts = self._rows(step)
        return self._pinned([_batch(self.data, self.preprocessor, rows, numbers, self.seed, epoch) for rows in parts])

    def _pinned(self, batches: list[Batch]) -> list[Batch]:
        return [_pinned(batch) for batch in batches] if self.device.type == "cuda" else batches


class _ThreadPrefetcher:
    """The thread that makes batches from a step on, a few ahead of the one that is asked for."""

    def __init__(self, loader: Loader, first: int) -> None:
        self.next = first  # what `take` will give
        self._loader = loader
        self._ready: queue.Queue[list[Batch] | BaseException] = queue.Queue(loader.prefetch)
        self._stopped = threading.Event()
        self._worker = threading.Thread(target=self._work, args=(first,), name="clearhead-batches", daemon=True)
        self._worker.start()

    def _work(self, step: int) -> None:
        if self._loader.device.type == "cuda" and self._loader.device.index is not None:
            torch.cuda.set_device(self._loader.device)  # each thread has its own; memory is pinned for this one
        while not self._stopped.is_set():
            result: list[Batch] | BaseException
            try:
                result = self._loader._make(step)
            except BaseException as error:  # whatever it is, the one who asks for the step must hear of it
                result = error
            while not self._stopped.is_set():
                try:
                    self._ready.put(result, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if isinstance(result, BaseException):
                return
            step += 1

    def take(self) -> list[Batch]:
        result, step = self._ready.get(), self.next
        if isinstance(result, BaseException):
            self.next = -1  # the thread has ended: who asks again makes a new start
            if isinstance(result, ClearheadError):
                raise type(result)(f"At step {step}: {result}") from result
            result.add_note(f"This happened while the batch of step {step} was made.")
            raise result
        self.next = step + 1
        return result

    def stop(self) -> None:
        self._stopped.set()
        self._worker.join()


class _ProcessPrefetcher:
    """Processes that make batches from a step on, each a step at a time; they are taken in order."""

    def __init__(self, loader: Loader, first: int) -> None:
        self.next = first
        self._loader = loader
        self._pool = worker_pool(loader.workers, _begin, loader.data, loader.preprocessor, loader.seed)
        self._waiting: deque[Future[list[Batch]]] = deque()
        for step in range(first, first + loader.workers + loader.prefetch):
            self._ask(step)

    def _ask(self, step: int) -> None:
        self._waiting.append(self._pool.submit(_work, *self._loader._rows(step)))

    def take(self) -> list[Batch]:
        step, self.next = self.next, -1  # an error ends it: who asks again makes a new start
        try:
            batches = self._waiting.popleft().result()
        except ClearheadError as error:
            raise type(error)(f"At step {step}: {error}") from error
        except BrokenExecutor:
            raise InputError(WORKER_DIED) from None
        self._ask(step + self._loader.workers + self._loader.prefetch)
        self.next = step + 1
        for batch in batches:
            batch.inputs = {name: torch.from_numpy(array) for name, array in batch.inputs.items()}
        return self._loader._pinned(batches)

    def stop(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


_worker_state: tuple[Examples, Preprocessor, int] | None = None  # of a process that makes batches


def _begin(data: Examples, preprocessor: Preprocessor, seed: int) -> None:
    global _worker_state
    torch.set_num_threads(1)
    _worker_state = data, preprocessor, seed


def _work(epoch: int, numbers: np.ndarray, parts: list[np.ndarray]) -> list[Batch]:
    """The batches of a step, with arrays in place of tensors: those travel as plain bytes."""
    assert _worker_state is not None
    data, preprocessor, seed = _worker_state
    batches = [_batch(data, preprocessor, rows, numbers, seed, epoch) for rows in parts]
    for batch in batches:
        batch.inputs = {name: tensor.numpy() for name, tensor in batch.inputs.items()}  # type: ignore[misc]
    return batches


def evaluation_batches(
    data: Examples,
    preprocessor: Preprocessor,
    order: Order,
    *,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
    limit: int | None = None,
    equal: bool = False,
) -> Iterator[Batch]:
    """This device's share of one pass over held-out data: the same batches and the same noise every time.

    order   one that does not shuffle
    limit   so many batches and no more
    equal   every device gets the same number of batches, as models that are spread over devices need. Where there
            is nothing left, a row comes again in a batch of 0 units, and what is measured on it must not be added
    """
    if order.shuffle:
        raise InputError("Held-out data is read in order: make the Order with shuffle=False.")
    steps = order.steps_per_epoch()
    for step in range(steps if limit is None else min(limit, steps)):
        _, numbers = order.at(step)
        rows = rank_shard(numbers, rank, world_size)
        if len(rows) or equal:
            yield _batch(data, preprocessor, rows, numbers, seed, 0, HELD_OUT).to(torch.device(device))


def _batch(data: Examples, preprocessor: Preprocessor, rows: np.ndarray, step_rows: np.ndarray, *key: int) -> Batch:
    """The examples with these numbers, each with noise from a generator of its own: (seed, epoch, number).

    Without any, the first one of the step stands in, and counts for nothing.
    """
    numbers = (rows if len(rows) else step_rows[:1]).tolist()
    examples = [data[n] for n in numbers]
    if preprocessor.has_noise:
        seed, epoch, *extra_key = key
        examples = [
            preprocessor.noise(example, _generator(seed, epoch, n, *extra_key))
            for n, example in zip(numbers, examples, strict=True)
        ]
    batch = preprocessor.collate(examples)
    if not len(rows):
        batch.counts, batch.units = dict.fromkeys(batch.counts, 0), 0
    return batch


def _generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def _pinned(batch: Batch) -> Batch:
    """In memory from which a GPU copies while it computes."""
    inputs: dict[str, Any] = {name: tensor.pin_memory() for name, tensor in batch.inputs.items()}
    return Batch(inputs, batch.counts, batch.units, batch.extra)
