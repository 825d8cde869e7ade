"""Processes that tokenise and make batches beside this one."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

WORKER_DIED = (
    "A process that reads the data has ended, perhaps for want of memory. Lower data.workers, and run the same command "
    "again: it goes on from the last checkpoint."
)


def worker_pool(workers: int, initializer: Callable[..., None], *arguments: Any) -> ProcessPoolExecutor:
    """So many processes, each of which has called the initializer with the arguments."""
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    return ProcessPoolExecutor(workers, context, _initialize, (initializer, *arguments))


def _initialize(initializer: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits for this one
    initializer(*arguments)
