"""A studio on its usual address, a client that talks to it as its own page does, and a real server for the rest."""

import http.client
import json
import threading
import time

import pytest

pytest.importorskip("starlette")

import uvicorn
from starlette.testclient import TestClient

from clearhead.server.guard import ServerAddress
from clearhead.server.start import listen
from clearhead.studio.app import Studio

HOME = "http://127.0.0.1:8421"


def events_of(answer):
    """The events of a stream that has ended."""
    return [json.loads(line) for line in answer.text.split("\n") if line]


def client_of(studio, **more):
    return TestClient(studio.app, base_url=HOME, raise_server_exceptions=False, **more)


@pytest.fixture(scope="module")
def studio():
    return Studio()


@pytest.fixture(scope="module")
def page(studio):
    with client_of(studio) as client:
        yield client


@pytest.fixture
def served():
    """A studio behind a real socket: (studio, a function that opens a connection and sends a request)."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    studio = Studio(address=ServerAddress("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(studio.app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    opened = []

    def send(path, body):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        opened.append(connection)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json", "connection": "close"})
        return connection.getresponse()  # which has the socket to itself, so that closing it closes all

    while not server.started:
        time.sleep(0.01)
    yield studio, send
    for connection in opened:
        connection.close()
    studio.jobs.cancel_all()
    server.should_exit = True
    thread.join(10)
    listener.close()


def until(true, seconds=20.0):
    """Wait for something that another thread will make true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
