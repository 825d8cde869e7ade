"""How answers leave the server: a job's events line by line, a job's response in one piece, plain JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from clearhead.errors import ClearheadError
from clearhead.messages import chinese_of, say
from clearhead.server.errors import error_body
from clearhead.server.jobs import Event, Job, JobQueue

if TYPE_CHECKING:
    from clearhead.server.guard import Receive, Scope, Send


def json_response(content: dict[str, Any]) -> Response:
    """The content in English; `zh` holds the Chinese of what has any, in the same places."""
    chinese = chinese_of(content)
    return JSONResponse(content | ({"zh": chinese} if chinese else {}), headers={"cache-control": "no-store"})


class EventStream(StreamingResponse):
    """A job's events, one JSON object a line, as they come. When the reader goes, the job is over."""

    media_type = "application/x-ndjson"

    def __init__(self, jobs: JobQueue, work: Callable[[Job], None]) -> None:
        super().__init__((), headers={"cache-control": "no-store"})  # the events are sent by __call__
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def emit(event: Event | None) -> None:
            line = None if event is None else _line_of(event)  # in the worker's thread: it may be long
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self._arrived.put_nowait, line)

        self._job = jobs.start(work, emit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.ensure_future(_disconnected(receive))
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


async def response_of(jobs: JobQueue, work: Callable[[Job], Response], receive: Receive) -> Response:
    """The response that a job makes, for answers that come in one piece. Errors of the job are errors here."""
    responses: list[Response | BaseException] = []

    def keep(job: Job) -> None:
        try:
            responses.append(work(job))
        except ClearheadError as error:
            responses.append(error)

    last = await _last_event(jobs, keep, receive)
    if not responses:
        error = (last or {}).get("error")
        return JSONResponse({"error": error}, 500) if error else JSONResponse(error_body(say("server.cancelled")), 499)
    if isinstance(responses[0], BaseException):
        raise responses[0]
    return responses[0]


async def _last_event(jobs: JobQueue, work: Callable[[Job], None], receive: Receive) -> Event | None:
    """The last event of a job; None where there was none, or nobody waits any more."""
    arrived: asyncio.Queue[Event | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def emit(event: Event | None) -> None:
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(arrived.put_nowait, event)

    job = jobs.start(work, emit)
    leaving = asyncio.ensure_future(_disconnected(receive))
    last: Event | None = None
    try:
        while (event := await _unless(arrived.get(), leaving)) is not None:
            last = event
        return None if leaving.done() else last
    finally:
        job.cancel()
        leaving.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless(awaitable: Any, disconnected: asyncio.Future[None]) -> Any:
    """What is coming; None if the reader leaves first."""
    next_one = asyncio.ensure_future(awaitable)
    await asyncio.wait({next_one, disconnected}, return_when=asyncio.FIRST_COMPLETED)
    if next_one.done():
        return next_one.result()
    next_one.cancel()
    return None


def _line_of(event: Event) -> bytes:
    return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
