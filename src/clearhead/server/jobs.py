"""One question, one thread: events go out as they come, and the work stops when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from clearhead.errors import ClearheadError
from clearhead.server.limits import Limits

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.models import Model
    from clearhead.server.guard import Receive, Scope, Send

log = logging.getLogger("clearhead.studio")
Event = dict[str, Any]
_LAYER = re.compile(r"(?:\w+\.)?layers\.\d+\.output")
_TELL = 0.5  # seconds between two words of progress
_here = threading.local()


class CancelledError(Exception):
    """Nobody waits for the answer any more."""


class BusyError(ClearheadError):
    """Too many questions at once."""


class Job:
    """A piece of work and the one who waits for it.

    tell    hands an event on, and None at the end; safe from any thread
    check   raises where the work was cancelled
    """

    def __init__(self, tell: Callable[[Event | None], None]) -> None:
        self.tell = tell
        self._cancelled = threading.Event()
        self._began = self._told = time.monotonic()
        self.layers = 0  # computed so far

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError

    def progress(self, stage: str, **facts: Any) -> None:
        """stage: "waiting" for its turn, "loading" a model, or "working"."""
        self.tell({"event": "progress", "stage": stage, **facts})

    @contextmanager
    def watching(self, *models: Model) -> Iterator[None]:
        """Inside, a cancelled job stops at the next layer of these models, and long ones say that they go on."""
        from clearhead.nn.tracing import tap_points, trace

        def passed(tensor: Tensor) -> Tensor:
            self.check()
            self.layers += 1
            now = time.monotonic()
            if now - self._told > _TELL:
                self._told = now
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
            for one in reversed(opened):
                one.__exit__(None, None, None)


def check_here() -> None:
    """Raises if this thread works for a job that was cancelled; models call it before each pass (model_store.py)."""
    job: Job | None = getattr(_here, "job", None)
    if job is not None:
        job.check()


class Desk:
    """Starts jobs, a few at a time; the others wait in the order in which they came."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running = 0
        self._jobs: set[Job] = set()

    def start(self, work: Callable[[Job], None], tell: Callable[[Event | None], None]) -> Job:
        """`work` runs in a thread of its own; `tell` gets its events, and None at the end."""
        job = Job(tell)
        with self._changed:
            if len(self._jobs) >= self.limits.at_once + self.limits.waiting:
                raise BusyError("The studio has too many questions to answer. Wait for some of them, or cancel them.")
            self._jobs.add(job)
        threading.Thread(target=self._run, args=(job, work), daemon=True, name="question").start()
        return job

    def _run(self, job: Job, work: Callable[[Job], None]) -> None:
        _here.job = job
        try:
            work(job)
        except CancelledError:
            pass
        except BaseException as error:
            job.tell({"event": "error", "error": {"message": in_words(error)}})
        finally:
            with self._changed:
                self._jobs.discard(job)
            job.tell(None)

    @contextmanager
    def turn(self, job: Job) -> Iterator[None]:
        """Inside, the job is one of the few that compute."""
        with self._changed:
            self._waiting.append(job)
            told = -1
            try:
                while self._running >= self.limits.at_once or self._waiting[0] is not job:
                    ahead = self._waiting.index(job)
                    if ahead != told:
                        told = ahead
                        job.progress("waiting", ahead=ahead)
                    self._changed.wait(_TELL)
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


def in_words(error: BaseException) -> str:
    """What the page says of an error: a mistake of the user's as it is, one of ours by its name; never a trace."""
    if isinstance(error, ClearheadError):
        return str(error)
    if isinstance(error, MemoryError) or "not enough memory" in str(error):
        return "There is not enough memory for this question. Ask about a shorter text or fewer layers."
    log.error("A question failed.", exc_info=error)
    return (
        f"Something went wrong inside Clearhead ({type(error).__name__}). This is not your mistake; "
        "the terminal in which the studio runs says more."
    )


# ---- events on their way out


class Events(StreamingResponse):
    """A job's events, one JSON object a line, as they come. When the reader goes, the job is over."""

    media_type = "application/x-ndjson"

    def __init__(self, desk: Desk, work: Callable[[Job], None]) -> None:
        super().__init__((), headers={"cache-control": "no-store"})  # the events are sent by __call__
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(event: Event | None) -> None:
            line = None if event is None else line_of(event)  # in the worker's thread: it may be long
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self._arrived.put_nowait, line)

        self._job = desk.start(work, tell)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while (line := await _unless(self._arrived.get(), leaving)) is not None:
                await send({"type": "http.response.body", "body": line, "more_body": True})
            if not leaving.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:  # the connection broke
            pass
        finally:
            self._job.cancel()
            leaving.cancel()


async def finished(desk: Desk, work: Callable[[Job], None], receive: Receive) -> Event | None:
    """The last event of a job, for answers that come in one piece; None where nobody waits any more."""
    arrived: asyncio.Queue[Event | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(event: Event | None) -> None:
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(arrived.put_nowait, event)

    job = desk.start(work, tell)
    leaving = asyncio.ensure_future(_gone(receive))
    last: Event | None = None
    try:
        while (event := await _unless(arrived.get(), leaving)) is not None:
            last = event
        return None if leaving.done() else last
    finally:
        job.cancel()
        leaving.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless(coming: Any, leaving: asyncio.Future[None]) -> Any:
    """What is coming; None if the reader leaves first."""
    next_one = asyncio.ensure_future(coming)
    await asyncio.wait({next_one, leaving}, return_when=asyncio.FIRST_COMPLETED)
    if next_one.done():
        return next_one.result()
    next_one.cancel()
    return None


def line_of(event: Event) -> bytes:
    return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
