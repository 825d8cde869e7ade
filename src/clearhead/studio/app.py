"""The studio: the models, jobs and findings that its routes share, and how a question is answered or a text written."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from clearhead import __version__
from clearhead.errors import ClearheadError, InputError
from clearhead.messages import say
from clearhead.server.guard import Guard, ServerAddress
from clearhead.server.jobs import Job, JobQueue, check_current_job
from clearhead.server.limits import Limits
from clearhead.server.model_store import ModelStore, card_of, config_of
from clearhead.server.store_table import StoreTable
from clearhead.studio.requests import ExplainRequest, GenerateRequest, write_form
from clearhead.studio.routes import routes
from clearhead.studio.runs import Runs

if TYPE_CHECKING:
    from clearhead.explain.finding import Finding
    from clearhead.models import Model
    from clearhead.pipeline import Pipeline

KEPT_FINDINGS = 8  # to be saved as they were shown
BY_LINE = ("top-tokens", "similarity", "neuron-probe")  # questions about many texts, one in a line


class Studio:
    """What the routes share. `app` is the whole, behind its guard."""

    def __init__(
        self,
        models: Iterable[str] = (),
        *,
        allow_hub: bool = False,
        stores: Iterable[str] = (),
        runs: Runs | None = None,
        address: ServerAddress | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.models = ModelStore(models, allow_hub, before_pass=check_current_job)
        self.stores = StoreTable(stores)
        self.jobs = JobQueue(self.limits)
        self.runs = runs
        self.address = address or ServerAddress("127.0.0.1", 8421)
        self._findings: OrderedDict[str, Finding] = OrderedDict()
        self._lock = threading.Lock()
        self.app = Guard(routes(self), self.address)

    def warm_up(self) -> None:
        """Load what is likely to be asked first, so that the first answer is quick; its errors are for whoever asks."""
        with suppress(ClearheadError):
            self.models.get(self.models.first())

    def state(self) -> dict[str, Any]:
        """All that the page has to know before it asks anything."""
        from clearhead.explain.questions import QUESTIONS

        return {
            "version": __version__,
            "models": self.models.listing(),
            "stores": self.stores.listing(),
            "questions": [question.to_dict() for question in QUESTIONS.values()],
            "write": write_form(self.limits),
            "limits": asdict(self.limits),
            "runs": self.runs is not None,
            "hub": self.models.allow_hub,
        }

    def model(self, name: str) -> dict[str, Any]:
        """One model, loaded: its facts, card and configuration, and of each question why it cannot answer it."""
        from clearhead.explain.questions import QUESTIONS

        pipe = self.models.get(name, check_current_job)
        stored = self.models.find(name)
        reasons = {question.name: question.fits(pipe) for question in QUESTIONS.values()}
        return stored.facts() | {"card": card_of(stored), "config": config_of(pipe), "questions": reasons}

    # ---- explaining

    def explain(self, request: ExplainRequest, job: Job) -> tuple[Finding, float]:
        """The finding, and how many seconds it took once its turn had come."""
        pipe = self._load(request.model, job)
        params = dict(request.params)
        for name in request.other_models:
            params[name] = self._load(params[name], job)
        for name in request.stores:
            params[name] = self._store(pipe, params[name], request, job)
        self._check_length(pipe, request)
        others: list[Model] = [params[name].model for name in request.other_models]
        with self.jobs.turn(job), job.watching(pipe.model, *others):
            job.progress("working")
            began = time.perf_counter()
            finding = request.question.ask(pipe, request.text, request.second, **params)
            seconds = time.perf_counter() - began
        self._check_size(finding)
        with self._lock:
            self._findings[request.key] = finding
            self._findings.move_to_end(request.key)
            while len(self._findings) > KEPT_FINDINGS:
                self._findings.popitem(last=False)
        return finding, seconds

    def file(self, request: ExplainRequest, kind: str, job: Job) -> str:
        """The finding as a file: the one that was shown last for this request, if it is kept."""
        from clearhead.views.page import page

        with self._lock:
            finding = self._findings.get(request.key)
        if finding is None:
            finding, _ = self.explain(request, job)
        if kind == "html":
            return page(finding)
        return finding.to_csv() if kind == "csv" else json.dumps(finding.to_dict(), ensure_ascii=False)

    def _store(self, pipe: Pipeline, name: str | None, request: ExplainRequest, job: Job) -> Any:
        """By its name; where none is named, the first there is, for a model that reads passages."""
        from clearhead.explain.retrieved import reads_neighbors

        if reads_neighbors(pipe) is not None:
            return None  # the question says why it has no use for one
        names = [name] if name is not None else self.stores.names
        if not names:
            return None
        job.progress("loading", model=names[0])
        return self.stores.get(names[0], request.edits)

    def _load(self, name: str, job: Job) -> Pipeline:
        return self.models.get(name, job.check, lambda: job.progress("loading", model=name))

    def _check_length(self, pipe: Pipeline, request: ExplainRequest) -> None:
        most = self.limits.tokens
        for name, text in request.texts.items():
            by_line = name == "text" and request.question.name in BY_LINE
            for part in text.splitlines() if by_line else [text]:
                count = pipe.count_units(part) if part.strip() else 0
                if count > most:
                    raise InputError(say("studio.too_many_tokens", name=name, count=count, model=pipe.name, most=most))

    def _check_size(self, finding: Finding) -> None:
        size = sum(getattr(value, "nbytes", 0) for value in vars(finding).values())
        if size > self.limits.answer_bytes:
            most = self.limits.answer_bytes / 2**20
            raise InputError(say("studio.answer_too_large", size=size / 2**20, most=most))

    # ---- writing

    def generate(self, request: GenerateRequest, job: Job) -> None:
        """The text, piece by piece as events of the job, and whole in the last one."""
        pipe = self._load(request.model, job)
        with self.jobs.turn(job):
            from clearhead.pipeline import as_text

            job.progress("working")
            began = time.perf_counter()
            writer = as_text(pipe)
            generation = writer.start_generation(
                request.text or None, log_probs=False, num_return_sequences=1, **request.options
            )
            pieces = generation.pieces()
            with job.watching(pipe.model):  # the whole prompt; then a look between two tokens is enough
                piece = next(pieces, None)
            while piece is not None:
                job.emit({"event": "token", "text": piece})
                job.check()
                piece = next(pieces, None)
            written = generation.answers[0]
            seconds = time.perf_counter() - began
        job.emit(
            {"event": "end", "text": written.text, "new_text": written.new_text, "tokens": len(written.token_ids),
             "reason": written.finish_reason, "seconds": round(seconds, 3)}
        )  # fmt: skip


def create_app(models: Iterable[str] = (), **settings: Any) -> Guard:
    """The whole server as an ASGI app; settings as of Studio."""
    return Studio(models, **settings).app
