"""The studio's server: its pages, its files, and what the page may ask. See docs/studio.md."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from clearhead import __version__
from clearhead.errors import ClearheadError, InputError, did_you_mean
from clearhead.server.guard import Guard, Place
from clearhead.server.jobs import BusyError, Desk, Events, Job, check_here, finished, in_words
from clearhead.server.limits import Limits, kind_of
from clearhead.server.model_store import Shelf, UnknownModelError, card_of, config_of
from clearhead.studio.runs import Runs, UnknownRunError
from clearhead.studio.shell import SHELL, static

if TYPE_CHECKING:
    from clearhead.explain.finding import Finding
    from clearhead.explain.questions import Question
    from clearhead.models import Model
    from clearhead.pipeline import Pipeline

REMEMBERED = 8  # findings, to be saved as they were shown
FILES = {"html": "text/html; charset=utf-8", "json": "application/json", "csv": "text/csv; charset=utf-8"}
BY_LINE = ("top-tokens", "similarity")  # questions about many texts, one in a line
# What of generate's options the page may set.
OPTIONS = (
    "max_new_tokens min_new_tokens do_sample temperature top_k top_p min_p typical_p seed repetition_penalty "
    "no_repeat_ngram_size num_beams length_penalty early_stopping stop_strings src_lang tgt_lang"
).split()


class Studio:
    """What the routes share. `app` is the whole, behind its guard."""

    def __init__(
        self,
        models: Iterable[str] = (),
        *,
        hub: bool = False,
        runs: Runs | None = None,
        place: Place | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.shelf = Shelf(models, hub, check_here)
        self.runs = runs
        self.desk = Desk(self.limits)
        self.place = place or Place("127.0.0.1", 8421)
        self._findings: OrderedDict[str, Finding] = OrderedDict()
        self._lock = threading.Lock()
        self.app = Guard(_routes(self), self.place)

    def warm(self) -> None:
        """Load what is likely to be asked first, so that the first answer is quick; its errors are for whoever asks."""
        with suppress(ClearheadError):
            self.shelf.get(self.shelf.first())

    def state(self) -> dict[str, Any]:
        from clearhead.explain.questions import QUESTIONS

        return {
            "version": __version__,
            "models": self.shelf.listing(),
            "questions": [question.to_dict() for question in QUESTIONS.values()],
            "limits": asdict(self.limits),
            "runs": self.runs is not None,
            "hub": self.shelf.hub,
        }

    def model(self, name: str) -> dict[str, Any]:
        from clearhead.explain.questions import QUESTIONS

        pipe = self.shelf.get(name, check_here)
        entry = self.shelf.entry(name)
        fits = {question.name: question.fits(pipe) for question in QUESTIONS.values()}
        return entry.facts() | {"card": card_of(entry), "config": config_of(pipe), "questions": fits}

    # ---- a question

    def answer(self, asked: Asked, job: Job) -> tuple[Finding, float]:
        """The finding, and how many seconds it took once its turn had come."""
        pipe = self._load(asked.model, job)
        params = dict(asked.params)
        for name in asked.others:
            params[name] = self._load(params[name], job)
        self._check_length(pipe, asked)
        others: list[Model] = [params[name].model for name in asked.others]
        with self.desk.turn(job), job.watching(pipe.model, *others):
            job.progress("working")
            began = time.perf_counter()
            finding = asked.question.ask(pipe, asked.text, asked.second, **params)
            seconds = time.perf_counter() - began
        self._check_size(finding)
        with self._lock:
            self._findings[asked.key] = finding
            self._findings.move_to_end(asked.key)
            while len(self._findings) > REMEMBERED:
                self._findings.popitem(last=False)
        return finding, seconds

    def file(self, asked: Asked, kind: str, job: Job) -> str:
        """The finding as a file: the one that was shown last for this question, if it is remembered."""
        from clearhead.views.page import page

        with self._lock:
            finding = self._findings.get(asked.key)
        if finding is None:
            finding, _ = self.answer(asked, job)
        if kind == "html":
            return page(finding)
        return finding.to_csv() if kind == "csv" else json.dumps(finding.to_dict(), ensure_ascii=False)

    def _load(self, name: str, job: Job) -> Pipeline:
        return self.shelf.get(name, job.check, lambda: job.progress("loading", model=name))

    def _check_length(self, pipe: Pipeline, asked: Asked) -> None:
        for name, text in asked.texts.items():
            by_line = name == "text" and asked.question.name in BY_LINE
            for part in text.splitlines() if by_line else [text]:
                count = len(pipe.tokenizer.encode(part)) if part.strip() else 0
                if count > self.limits.tokens:
                    raise InputError(
                        f"{name} has {count:,} tokens for {pipe.name}; the studio explains {self.limits.tokens:,} at "
                        "most. Shorten it, or ask from Python, where there is no such limit."
                    )

    def _check_size(self, finding: Finding) -> None:
        size = sum(getattr(value, "nbytes", 0) for value in vars(finding).values())
        if size > self.limits.answer_bytes:
            most = self.limits.answer_bytes / 2**20
            raise InputError(
                f"The answer holds {size / 2**20:,.0f} MiB of numbers; the page takes {most:,.0f} at most. "
                "Ask about a shorter text, or about fewer layers."
            )

    # ---- writing

    def write(self, name: str, text: str, options: dict[str, Any], job: Job) -> None:
        pipe = self._load(name, job)
        with self.desk.turn(job):
            job.progress("working")
            began = time.perf_counter()
            writing = pipe.watch(text or None, log_probs=False, num_return_sequences=1, **options)
            pieces = writing.pieces()
            with job.watching(pipe.model):  # the whole prompt; then a look between two tokens is enough
                piece = next(pieces, None)
            while piece is not None:
                job.tell({"event": "token", "text": piece})
                job.check()
                piece = next(pieces, None)
            written = writing.answers[0]
            seconds = time.perf_counter() - began
        job.tell(
            {"event": "end", "text": written.text, "new_text": written.new_text, "tokens": len(written.token_ids),
             "reason": written.finish_reason, "seconds": round(seconds, 3)}
        )  # fmt: skip


# ---- what was asked


@dataclass(frozen=True)
class Asked:
    """A question from the page, looked at: every part is of its kind and within its limits.

    others   parameters that name a second model
    """

    model: str
    question: Question
    text: str
    second: str | None
    params: dict[str, Any]
    others: tuple[str, ...]

    @property
    def key(self) -> str:
        given = [self.model, self.question.name, self.text, self.second, self.params]
        return json.dumps(given, sort_keys=True, default=repr)

    @property
    def texts(self) -> dict[str, str]:
        kinds = {param.name: param.kind for param in self.question.params}
        said = {name: value for name, value in self.params.items() if kinds.get(name) == "text" and value}
        return {"text": self.text, **({"second": self.second} if self.second else {}), **said}


def read_asked(studio: Studio, body: dict[str, Any], more: tuple[str, ...] = ()) -> Asked:
    from clearhead.explain.questions import checked, question

    only(body, ("model", "question", "text", "second", "params", *more))
    limits = studio.limits
    name = limits.text("model", body.get("model"))
    asked = question(limits.text("question", body.get("question")))
    text = limits.text("text", body.get("text", ""))
    second = None if body.get("second") is None else limits.text("second", body["second"])
    given = table("params", body.get("params"))
    for key, value in given.items():
        if isinstance(value, str):
            limits.text(limits.text("params", key)[:50], value)
    params = checked(asked, given)
    others = tuple(p.name for p in asked.params if p.kind == "model" and params[p.name] is not None)
    for each in (name, *(params[other] for other in others)):
        studio.shelf.entry(each)  # before anything begins, so that an unknown one has its own answer
    return Asked(name, asked, text, second, params, others)


def read_options(studio: Studio, given: dict[str, Any]) -> dict[str, Any]:
    limits = studio.limits
    for name, value in given.items():
        if name not in OPTIONS:
            raise InputError(
                f"The page cannot set {name[:50]!r}.{did_you_mean(name[:50], OPTIONS)} It can set {', '.join(OPTIONS)}."
            )
        if isinstance(value, dict) or (isinstance(value, list) and name != "stop_strings"):
            raise InputError(f"{name} cannot be {kind_of(value)}.")
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                limits.text(name, each)
        if isinstance(value, list) and len(value) > 16:
            raise InputError(f"{name} holds {len(value)} texts; 16 are the most.")
    options = {name: value for name, value in given.items() if value is not None}
    options.setdefault("max_new_tokens", min(64, limits.new_tokens))
    options.setdefault("num_beams", 1)  # so that it can be followed
    for name, most in (("max_new_tokens", limits.new_tokens), ("num_beams", limits.beams)):
        value = options[name]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise InputError(f"{name} is a whole number from 1 to {most:,}, not {str(value)[:50]}.")
    seed = options.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise InputError(f"seed is a whole number from 0 to {2**31 - 1:,}, not {str(seed)[:50]}.")
    return options


def only(body: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in body:
        if name not in known:
            raise InputError(f"{name[:50]!r} is not asked for here; {', '.join(known)} are.")


def table(name: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{name} must be a table, not {kind_of(value)}.")
    return value


async def body_of(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise InputError("The request is not valid JSON.") from None
    if not isinstance(body, dict):
        raise InputError(f"The request must be a table, not {kind_of(body)}.")
    return body


def _no_number(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are not JSON


# ---- the routes


def _routes(studio: Studio) -> FastAPI:
    app = FastAPI(title="Clearhead studio", docs_url=None, redoc_url=None, openapi_url=None)

    async def failed(request: Request, error: Exception) -> Response:
        status = 400
        if isinstance(error, UnknownModelError | UnknownRunError):
            status = 404
        elif isinstance(error, BusyError):
            status = 503
        elif isinstance(error, HTTPException):
            if error.status_code == 404 and "text/html" in request.headers.get("accept", ""):
                return HTMLResponse(SHELL, 404)  # a person at an address that is none: the page says so
            words = {404: "There is nothing at this address.", 405: "This address is asked another way."}
            message = words.get(error.status_code, str(error.detail))
            return JSONResponse({"error": {"message": message}}, error.status_code)
        elif not isinstance(error, ClearheadError):
            status = 500
        return JSONResponse({"error": {"message": in_words(error)}}, status)

    app.add_exception_handler(ClearheadError, failed)
    app.add_exception_handler(HTTPException, failed)
    app.add_exception_handler(Exception, failed)

    @app.get("/")
    @app.get("/lab")
    @app.get("/runs")
    @app.get("/chapters/{slug}")
    def page(slug: str = "") -> Response:
        status = 200 if re.fullmatch(r"[A-Za-z0-9-]{0,60}", slug) else 404
        return HTMLResponse(SHELL, status, headers={"cache-control": "no-cache"})

    @app.get("/static/{path:path}")
    def file(path: str, request: Request) -> Response:
        found = static(path)
        if found is None:
            raise HTTPException(404)
        content, kind, mark = found
        headers = {"etag": mark, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    @app.get("/api/state")
    def state() -> Response:
        return _json(studio.state())

    @app.get("/api/models/{name:path}")
    async def model(name: str, request: Request) -> Response:
        studio.shelf.entry(name)
        return await _in_one_piece(studio, request, lambda job: _json(studio.model(name)))

    @app.post("/api/ask")
    async def ask(request: Request) -> Any:
        from clearhead.views.page import compact

        asked = read_asked(studio, await body_of(request))

        def work(job: Job) -> None:
            finding, seconds = studio.answer(asked, job)
            job.tell({"event": "finding", "finding": compact(finding), "seconds": round(seconds, 3)})

        return Events(studio.desk, work)

    @app.post("/api/page")
    async def saved(request: Request) -> Response:
        body = await body_of(request)
        asked = read_asked(studio, body, ("as",))
        kind = body.get("as", "html")
        if not isinstance(kind, str) or kind not in FILES:
            raise InputError(f"A finding is saved as {', '.join(FILES)}.")

        def work(job: Job) -> Response:
            named = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{asked.question.name}-{asked.model}")
            headers = {"content-disposition": f'attachment; filename="{named}.{kind}"', "cache-control": "no-store"}
            return Response(studio.file(asked, kind, job), media_type=FILES[kind], headers=headers)

        return await _in_one_piece(studio, request, work)

    @app.post("/api/generate")
    async def generate(request: Request) -> Any:
        body = await body_of(request)
        only(body, ("model", "text", "options"))
        name = studio.limits.text("model", body.get("model"))
        text = studio.limits.text("text", body.get("text", ""))
        options = read_options(studio, table("options", body.get("options")))
        studio.shelf.entry(name)
        return Events(studio.desk, lambda job: studio.write(name, text, options, job))

    @app.get("/api/runs")
    def runs() -> Response:
        return _json({"runs": [] if studio.runs is None else studio.runs.listing()})

    @app.get("/api/runs/{id_}")
    def run(id_: str, after: str = "0") -> Response:
        if studio.runs is None:
            raise UnknownRunError("No folder of runs was named. Start the studio with --runs FOLDER.")
        if not re.fullmatch(r"[0-9]{1,15}", after):
            raise InputError("after is a number of bytes: what the last answer called next.")
        return _json(studio.runs.read(id_, int(after)))

    return app


def _json(content: Any) -> Response:
    return JSONResponse(content, headers={"cache-control": "no-store"})


async def _in_one_piece(studio: Studio, request: Request, work: Callable[[Job], Response]) -> Response:
    """The response that a job makes. Errors of the job are errors here."""
    made: list[Response | BaseException] = []

    def keep(job: Job) -> None:
        try:
            made.append(work(job))
        except ClearheadError as error:
            made.append(error)

    told = await finished(studio.desk, keep, request.receive)
    if not made:
        message = (told or {}).get("error", {}).get("message", "The question was cancelled.")
        return JSONResponse({"error": {"message": message}}, 500 if told else 499)
    if isinstance(made[0], BaseException):
        raise made[0]
    return made[0]


def create_app(models: Iterable[str] = (), **settings: Any) -> Guard:
    """The whole server as an ASGI app; settings as of Studio."""
    return Studio(models, **settings).app
