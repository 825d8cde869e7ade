"""Jobs: each in a thread of its own, a few at a time; one stops when nobody waits for its answer any more."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from clearhead.messages import say
from clearhead.server.errors import BusyError, error_body, message_of
from clearhead.server.limits import Limits

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.models import Model

Event = dict[str, Any]
_LAYER = re.compile(r"(?:\w+\.)?layers\.\d+\.output")
_REPORT = 0.5  # seconds between two reports of progress
_thread = threading.local()


class CancelledError(Exception):
    """Nobody waits for the answer any more."""


class Job:
    """A piece of work and the one who waits for it.

    emit    hands an event on, and None at the end; safe from any thread
    check   raises where the work was cancelled
    """

    def __init__(self, emit: Callable[[Event | None], None]) -> None:
        self.emit = emit
        self._cancelled = threading.Event()
        self._began = self._reported = time.monotonic()
        self.layers = 0  # computed so far

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError

    def progress(self, stage: str, **facts: Any) -> None:
        """stage: "waiting" for its turn, "loading" a model, or "working"."""
        self.emit({"event": "progress", "stage": stage, **facts})

    @contextmanager
    def watching(self, *models: Model) -> Iterator[None]:
        """Inside, a cancelled job stops at the next layer of these models, and long ones say that they go on."""
        from clearhead.nn.tracing import tap_points, trace

        def passed(tensor: Tensor) -> Tensor:
            self.check()
            self.layers += 1
            now = time.monotonic()
            if now - self._reported > _REPORT:
                self._reported = now
                self.progress("working", layers=self.layers, seconds=round(now - self._began, 1))
            return tensor

        opened = []
        try:
            for model in dict.fromkeys(models):
                names = [name for name in tap_points(model) if _LAYER.fullmatch(name)]
                if names:
                    opened.append(trace(model, replace=dict.fromkeys(names, passed)).__enter__())
            yield
        finally:
            for opened_trace in reversed(opened):
                opened_trace.__exit__(None, None, None)


def check_current_job() -> None:
    """Raises if this thread works for a job that was cancelled; models call it before each pass (model_store.py)."""
    job: Job | None = getattr(_thread, "job", None)
    if job is not None:
        job.check()


class JobQueue:
    """Starts jobs, a few at a time; the others wait in the order in which they came."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running = 0
        self._jobs: set[Job] = set()

    def start(self, work: Callable[[Job], None], emit: Callable[[Event | None], None]) -> Job:
        """`work` runs in a thread of its own; `emit` gets its events, and None at the end."""
        job = Job(emit)
        with self._changed:
            if len(self._jobs) >= self.limits.at_once + self.limits.waiting:
                raise BusyError(say("server.busy"))
            self._jobs.add(job)
        threading.Thread(target=self._run, args=(job, work), daemon=True, name="job").start()
        return job

    def _run(self, job: Job, work: Callable[[Job], None]) -> None:
        _thread.job = job
        try:
            work(job)
        except CancelledError:
            pass
        except BaseException as error:
            job.emit({"event": "error", **error_body(message_of(error))})
        finally:
            with self._changed:
                self._jobs.discard(job)
            job.emit(None)

    @contextmanager
    def turn(self, job: Job) -> Iterator[None]:
        """Inside, the job is one of the few that compute."""
        with self._changed:
            self._waiting.append(job)
            reported = -1
            try:
                while self._running >= self.limits.at_once or self._waiting[0] is not job:
                    ahead = self._waiting.index(job)
                    if ahead != reported:
                        reported = ahead
                        job.progress("waiting", ahead=ahead)
                    self._changed.wait(_REPORT)
                    job.check()
                self._running += 1
            finally:
                self._waiting.remove(job)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def cancel_all(self) -> None:
        """At the end of the server. It may come in the middle of anything, so it waits for no lock."""
        for job in tuple(self._jobs):
            job.cancel()
