"""The studio's addresses: its pages, its files, and what the page may ask. See docs/studio.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from clearhead.errors import ClearheadError, InputError
from clearhead.messages import say
from clearhead.schema import Field
from clearhead.server.errors import BusyError, UnknownModelError, error_body, message_of
from clearhead.server.jobs import Job
from clearhead.server.requests import json_body
from clearhead.server.responses import EventStream, json_response, response_of
from clearhead.studio.requests import FILES, ExplainRequest, GenerateRequest
from clearhead.studio.runs import UnknownRunError
from clearhead.studio.shell import SHELL, static

if TYPE_CHECKING:
    from clearhead.studio.app import Studio

SLUG = re.compile(r"[A-Za-z0-9-]{0,60}")


def routes(studio: Studio) -> Starlette:
    """Every address, and what answers it."""
    api = Api(studio)
    table = [
        Route("/", page),
        Route("/lab", page),
        Route("/runs", page),
        Route("/chapters/{slug}", page),
        Route("/static/{path:path}", file),
        Route("/api/state", api.state),
        Route("/api/models/{name:path}", api.model),
        Route("/api/ask", api.ask, methods=["POST"]),
        Route("/api/page", api.save, methods=["POST"]),
        Route("/api/generate", api.generate, methods=["POST"]),
        Route("/api/runs", api.runs),
        Route("/api/runs/{id}", api.run),
    ]
    handlers = {ClearheadError: failed, HTTPException: failed, Exception: failed}
    return Starlette(routes=table, exception_handlers=handlers)


# ---- pages and files


def page(request: Request) -> Response:
    """The same shell at every address of a page; its script does the rest."""
    status = 200 if SLUG.fullmatch(request.path_params.get("slug", "")) else 404
    return HTMLResponse(SHELL, status, headers={"cache-control": "no-cache"})


def file(request: Request) -> Response:
    """A file of the page, which the browser keeps as long as its mark stays the same."""
    asset = static(request.path_params["path"])
    if asset is None:
        raise HTTPException(404)
    content, media_type, etag = asset
    headers = {"etag": etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


# ---- what the page may ask


class Api:
    """The routes below /api."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio

    def state(self, request: Request) -> Response:
        return json_response(self.studio.state())

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.studio.models.find(name)
        return await response_of(self.studio.jobs, lambda job: json_response(self.studio.model(name)), request.receive)

    async def ask(self, request: Request) -> Response:
        """A stream of events: progress, then the finding or an error."""
        from clearhead.views.page import compact

        wanted = self._explain_request(await json_body(request))

        def work(job: Job) -> None:
            finding, seconds = self.studio.explain(wanted, job)
            job.emit({"event": "finding", "finding": compact(finding), "seconds": round(seconds, 3)})

        return EventStream(self.studio.jobs, work)

    async def save(self, request: Request) -> Response:
        """The finding as a file: HTML, JSON or CSV."""
        body = await json_body(request)
        kind = Field(name="as", choices=tuple(FILES), default="html")
        wanted = self._explain_request(body, kind)
        ending = kind.check(body.get("as", "html"))

        def work(job: Job) -> Response:
            name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{wanted.question.name}-{wanted.model}")
            headers = {"content-disposition": f'attachment; filename="{name}.{ending}"', "cache-control": "no-store"}
            return Response(self.studio.file(wanted, ending, job), media_type=FILES[ending], headers=headers)

        return await response_of(self.studio.jobs, work, request.receive)

    async def generate(self, request: Request) -> Response:
        """A stream of events: progress, tokens, then the end or an error."""
        wanted = GenerateRequest.from_body(await json_body(request), self.studio.limits)
        self.studio.models.find(wanted.model)
        return EventStream(self.studio.jobs, lambda job: self.studio.generate(wanted, job))

    def runs(self, request: Request) -> Response:
        return json_response({"runs": [] if self.studio.runs is None else self.studio.runs.listing()})

    def run(self, request: Request) -> Response:
        """The log of a run from byte `after` on."""
        if self.studio.runs is None:
            raise UnknownRunError(say("studio.no_runs_folder"))
        after = request.query_params.get("after", "0")
        if not re.fullmatch(r"[0-9]{1,15}", after):
            raise InputError(say("studio.after"))
        return json_response(self.studio.runs.read(request.path_params["id"], int(after)))

    def _explain_request(self, body: dict, *more: Field) -> ExplainRequest:
        wanted = ExplainRequest.from_body(body, self.studio.limits, more)
        for name in wanted.models:  # before anything begins, so that an unknown one has its own status
            self.studio.models.find(name)
        for name in wanted.stores:
            if wanted.params[name] is not None:
                self.studio.stores.check(wanted.params[name])
        return wanted


def failed(request: Request, error: Exception) -> Response:
    """Any error in words, with a status that fits."""
    if isinstance(error, HTTPException):
        if error.status_code == 404 and "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(SHELL, 404)  # a person at an address that is none: the page says so
        messages = {404: say("server.nothing_here"), 405: say("server.other_method")}
        return JSONResponse(error_body(messages.get(error.status_code, error.detail)), error.status_code)
    status = 400 if isinstance(error, ClearheadError) else 500
    if isinstance(error, UnknownModelError | UnknownRunError):
        status = 404
    elif isinstance(error, BusyError):
        status = 503
    return JSONResponse(error_body(message_of(error)), status)
