"""Work stops when nobody waits for it, and two who ask at once do not disturb each other."""

import http.client
import json
import threading
from dataclasses import replace

import pytest
import torch

import clearhead as ch
from clearhead.explain.questions import QUESTIONS
from clearhead.nn import trace
from clearhead.nn.tracing import is_tracing
from clearhead.server.errors import BusyError, UnknownModelError
from clearhead.server.jobs import CancelledError, Job, JobQueue
from clearhead.server.limits import Limits
from clearhead.server.model_store import ModelStore
from clearhead.studio.app import Studio
from clearhead.studio.requests import GenerateRequest
from tests.studio.conftest import client_of, events_of, until

TEXT = "The robot said"


def slow_question(passes):
    """A question that never ends by itself: it runs the model again and again, and counts."""

    def answer(pipe, text, second):
        ids = pipe.encode_prompts(text)[1]
        while True:
            with torch.no_grad():
                pipe.model(ids)
            passes.append(threading.get_ident())

    return replace(QUESTIONS["walk"], params=(), answer=answer)


def asked(question="endless", **more):
    return {"model": "random-gpt2", "question": question, "text": TEXT, **more}


def jobs(studio):
    return len(studio.jobs._jobs)


# ---- cancelling


def test_closing_the_connection_stops_the_work(served, monkeypatch):
    studio, send = served
    passes = []
    monkeypatch.setitem(QUESTIONS, "endless", slow_question(passes))
    answer = send("/api/ask", asked())
    assert json.loads(answer.readline())["event"] == "progress"
    until(lambda: len(passes) > 3)
    answer.close()  # the reader goes away
    until(lambda: jobs(studio) == 0)
    done = len(passes)
    assert studio.jobs._running == 0
    threading.Event().wait(0.1)
    assert len(passes) == done


def test_a_long_question_says_that_it_goes_on(served, monkeypatch):
    _, send = served
    monkeypatch.setitem(QUESTIONS, "endless", slow_question([]))
    answer = send("/api/ask", asked())
    while "layers" not in (told := json.loads(answer.readline())):
        assert told["event"] == "progress"
    assert told["stage"] == "working"
    assert told["layers"] > 0


def test_a_cancelled_pass_stops_at_the_next_layer():
    pipe = ch.load("random-gpt2")
    job = Job(lambda event: None)
    layers = []

    def look(tensor):
        layers.append(1)
        if len(layers) == 2:
            job.cancel()
        return tensor

    ids = pipe.encode_prompts(TEXT)[1]
    with pytest.raises(CancelledError), job.watching(pipe.model), trace(pipe.model, replace={"layers.*.output": look}):
        pipe.model(ids)
    assert len(layers) == 2  # of four: the third was refused on its way
    assert job.layers == 2
    assert not is_tracing()


@pytest.mark.parametrize("name", ["random-gpt2", "translate-en-de"])
def test_watching_changes_no_number(name):
    pipe = ch.load(name)
    plain = pipe.generate("Two dogs are playing.", max_new_tokens=8)
    job = Job(lambda event: None)
    with job.watching(pipe.model, pipe.model):
        assert pipe.generate("Two dogs are playing.", max_new_tokens=8) == plain
    assert job.layers > 0


def test_closing_the_connection_stops_a_text_between_tokens(served, monkeypatch):
    studio, send = served
    calls = []
    pipe = studio.models.get("random-gpt2")
    real = pipe.model.stack.forward

    def counted(*args, **more):
        calls.append(1)
        threading.Event().wait(0.02)  # a larger model
        return real(*args, **more)

    monkeypatch.setattr(pipe.model.stack, "forward", counted)
    answer = send("/api/generate", {"model": "random-gpt2", "text": TEXT, "options": {"max_new_tokens": 50}})
    while json.loads(answer.readline())["event"] != "token":
        pass
    answer.close()
    until(lambda: jobs(studio) == 0)
    assert len(calls) < 50


def test_a_search_stops_too(monkeypatch):
    """Nothing comes out of a beam search before its end: the model itself is asked before each pass."""
    studio = Studio()
    pipe = studio.models.get("random-gpt2")
    calls, told = [], []
    real = pipe.model.stack.forward

    def counted(*args, **more):
        calls.append(1)
        if len(calls) == 5:
            job.cancel()
        return real(*args, **more)

    monkeypatch.setattr(pipe.model.stack, "forward", counted)
    ended = threading.Event()
    options = {"max_new_tokens": 40, "num_beams": 3}

    def tell(event):
        ended.set() if event is None else told.append(event["event"])

    ready = threading.Event()
    job = studio.jobs.start(
        lambda job: ready.wait() and studio.generate(GenerateRequest("random-gpt2", TEXT, options), job), tell
    )
    ready.set()
    assert ended.wait(20)
    assert len(calls) == 5
    assert "end" not in told
    assert "error" not in told


def test_a_model_in_the_store_asks_before_each_pass():
    """So that a text stops even while nothing of it can be shown (special tokens, half a character)."""
    studio = Studio()
    pipe = studio.models.get("random-gpt2")
    told, ended = [], threading.Event()

    def work(job):
        told.append(pipe.generate(TEXT, max_new_tokens=1))
        job.cancel()
        told.append(pipe.generate(TEXT, max_new_tokens=1))

    studio.jobs.start(work, lambda event: event is None and ended.set())
    assert ended.wait(20)
    assert len(told) == 1


def test_a_server_that_ends_stops_everything(served, monkeypatch):
    studio, send = served
    passes = []
    monkeypatch.setitem(QUESTIONS, "endless", slow_question(passes))
    answer = send("/api/ask", asked())
    until(lambda: passes)
    studio.jobs.cancel_all()
    until(lambda: jobs(studio) == 0)
    assert [json.loads(line)["event"] for line in answer.read().splitlines()].count("error") == 0


# ---- several at once


def test_a_second_tab_is_answered_while_the_first_computes(served, monkeypatch):
    studio, send = served
    passes = []
    monkeypatch.setitem(QUESTIONS, "endless", slow_question(passes))
    first = send("/api/ask", asked())
    until(lambda: passes)
    second = [json.loads(line) for line in send("/api/ask", asked("next-token")).read().splitlines()]
    assert second[-1]["event"] == "finding"
    assert jobs(studio) == 1
    connection = http.client.HTTPConnection("127.0.0.1", studio.address.port, timeout=30)
    connection.request("GET", "/api/state")
    assert connection.getresponse().status == 200
    connection.close()
    first.close()


def test_who_comes_too_many_waits_for_a_turn_and_is_told():
    queue = JobQueue(Limits(at_once=1, waiting=2))
    hold, told, ended = threading.Event(), [], threading.Event()

    def work(job):
        with queue.turn(job):
            hold.wait(20)

    first = queue.start(work, lambda event: None)
    until(lambda: queue._running == 1)
    second = queue.start(work, lambda event: ended.set() if event is None else told.append(event))
    until(lambda: told)
    third = queue.start(work, lambda event: None)
    until(lambda: len(queue._waiting) == 2)
    with pytest.raises(BusyError, match="too many"):
        queue.start(work, lambda event: None)
    assert told == [{"event": "progress", "stage": "waiting", "ahead": 0}]
    third.cancel()  # who waits can leave
    until(lambda: len(queue._waiting) == 1)
    hold.set()
    assert ended.wait(20)
    until(lambda: not queue._jobs)
    assert queue._running == 0
    assert first is not second


def test_a_full_studio_says_so():
    studio = Studio(limits=Limits(at_once=1, waiting=-1))
    with client_of(studio) as client:
        answer = client.post("/api/ask", json=asked("next-token"))
        assert answer.status_code == 503
        assert "too many" in answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["random-gpt2", "translate-en-de"])
def test_one_model_in_many_threads_gives_the_same_answers(name):
    """Texts and passes of one model at once, each beside a trace of another thread, as if each were alone."""
    pipe = ch.load(name)
    texts = ["Two dogs are playing in the snow.", "A man in an orange hat.", "The robot said: I will obey"]

    def both(text):
        written = pipe.generate(text, max_new_tokens=12)
        reading = pipe.encode_prompts(text)[1]
        more = {"decoder_input_ids": reading[:, :3]} if name.startswith("translate") else {}
        with torch.no_grad(), trace(pipe.model, "logits") as seen:
            pipe.model(reading, **more)
        return written, seen["logits"]

    alone = {text: both(text) for text in texts}
    wrong = []

    def work(text):
        for _ in range(4):
            written, logits = both(text)
            if written != alone[text][0] or not torch.equal(logits, alone[text][1]):
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(text,)) for text in texts * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_trace_slows_no_other_thread():
    pipe = ch.load("random-gpt2")
    seen = []
    with trace(pipe.model, "logits"):
        thread = threading.Thread(target=lambda: seen.append(is_tracing()))
        thread.start()
        thread.join()
        assert is_tracing()
    assert seen == [False]


# ---- the model store


def test_two_who_ask_for_a_model_get_the_same_one(monkeypatch):
    from clearhead import pipeline

    loads, real = [], pipeline.load

    def load(where):
        loads.append(where)
        threading.Event().wait(0.1)
        return real(where)

    monkeypatch.setattr(pipeline, "load", load)
    store, got, waited = ModelStore(), [], []
    threads = [
        threading.Thread(target=lambda: got.append(store.get("random-gpt2", on_wait=lambda: waited.append(1))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len({id(pipe) for pipe in got}) == 1
    assert waited
    assert not any(weight.requires_grad and weight.grad is not None for weight in got[0].model.parameters())


def test_who_waits_for_a_model_can_leave(monkeypatch):
    from clearhead import pipeline

    hold = threading.Event()
    monkeypatch.setattr(pipeline, "load", lambda where: hold.wait(20) and None)

    def leave():
        raise CancelledError

    with pytest.raises(CancelledError):
        ModelStore().get("random-gpt2", leave)
    hold.set()


def test_only_the_last_few_models_are_kept():
    store = ModelStore(max_loaded=2)
    names = ["translate-en-de", "random-gpt2", "translate-en-fr"]
    for name in names:
        store.get(name)
    assert {facts["name"] for facts in store.listing() if facts["loaded"]} == set(names[1:])
    little = ModelStore(max_bytes=1)
    for name in names[:2]:
        little.get(name)
    assert [facts["name"] for facts in little.listing() if facts["loaded"]] == ["random-gpt2"]


def test_folders_have_names_and_no_paths(tmp_path):
    for folder in (tmp_path / "mine", tmp_path / "runs" / "mine" / "model"):
        ch.load("random-gpt2").save(folder)
    store = ModelStore([str(tmp_path / "mine"), str(tmp_path / "runs" / "mine" / "model"), str(tmp_path / "mine")])
    mine = [facts for facts in store.listing() if facts["source"] == "folder"]
    assert [facts["name"] for facts in mine] == ["mine", "mine-2"]
    assert [facts["parameters"] for facts in mine] == [242_048, 242_048]
    assert str(tmp_path) not in json.dumps(store.listing())
    assert store.first() == "mine"
    pipe = store.get("mine-2")
    assert pipe.name == "mine-2"
    # No thread will have to move them while another reads.
    assert all(m.weight.is_contiguous() for m in pipe.model.modules() if isinstance(m, torch.nn.Linear))
    for path in (str(tmp_path / "mine"), "./mine", "../mine", "mine/"):
        with pytest.raises(UnknownModelError):
            store.get(path)
    with client_of(Studio([str(tmp_path / "mine")])) as client:
        assert str(tmp_path) not in client.get("/api/models/mine").text
        assert str(tmp_path) not in client.post("/api/ask", json={**asked("attention"), "model": "mine"}).text


def test_a_folder_that_is_no_model_is_said_at_the_start(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ch.errors.CheckpointError, match=r"config\.json"):
        ModelStore([str(tmp_path / "empty")])
    with pytest.raises(ch.errors.InputError, match="no folder"):
        ModelStore([str(tmp_path / "missing")])


def test_ids_from_the_page_reach_the_hub_only_if_allowed_and_never_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ch.load("random-gpt2").save(tmp_path / "someone" / "model")
    with pytest.raises(UnknownModelError, match="allow-hub"):
        ModelStore().get("someone/model")
    open_to_all = ModelStore(allow_hub=True)
    with pytest.raises(UnknownModelError, match="folder"):
        open_to_all.get("someone/model")
    before = open_to_all.names
    with pytest.raises(ch.errors.CheckpointError):  # there is no network here
        open_to_all.get("someone/else")
    assert open_to_all.names == before  # an id that cannot be loaded leaves nothing behind
    named = ModelStore(["openai-community/gpt2"])
    assert named.listing()[0]["source"] == "hub"
    with client_of(Studio(allow_hub=True)) as client:
        last = events_of(client.post("/api/ask", json={**asked("next-token"), "model": "someone/else"}))[-1]
        assert last["event"] == "error"
        assert "hub" in last["error"]["message"]
