"""clearhead studio itself: its address, its port, its end, and what is said when it cannot start."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from clearhead.cli import studio as cli
from clearhead.errors import InputError
from clearhead.server import start
from clearhead.server.guard import ServerAddress


def run(*words, code="from clearhead.cli import main; main()", **more):
    command = [sys.executable, "-u", "-c", f"import sys; sys.argv = ['clearhead', *{list(words)!r}]\n{code}"]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **more
    )  # fmt: skip


@pytest.mark.parametrize("patience", [0.0, 0.3])
def test_it_says_its_address_answers_and_ends_at_once(patience):
    """Also while the first model is being loaded."""
    process = run("studio", "--no-browser")
    line = process.stdout.readline()
    address = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
    with urllib.request.urlopen(address, timeout=20) as answer:
        assert b"<noscript>" in answer.read()
    time.sleep(patience)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "closed" in told
    assert "Traceback" not in told


def test_beyond_this_machine_the_address_has_a_token():
    token = start.token_for("0.0.0.0")
    assert len(token) > 20
    assert token != start.token_for("0.0.0.0")
    assert start.token_for("127.0.0.1") is None
    assert ServerAddress("192.168.0.2", 8421, token).url == f"http://192.168.0.2:8421/?token={token}"
    assert ServerAddress("::1", 8421).url == "http://[::1]:8421/"


def test_ports():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"Port {port} is taken"):
            start.listen("127.0.0.1", port)
    first, second = start.listen("127.0.0.1", None), start.listen("127.0.0.1", None)
    try:
        assert second.getsockname()[1] > first.getsockname()[1] >= start.PORT
    finally:
        first.close()
        second.close()
    with pytest.raises(InputError, match="not an address"):
        start.listen("no.such.host.invalid", None)
    with pytest.raises(InputError, match="cannot listen"):
        start.listen("203.0.113.7", None)  # an address of nobody


def test_what_is_missing_is_named():
    process = run("studio", code="sys.modules['starlette'] = None; from clearhead.cli import main; main()")
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "pip install 'clearhead[studio]'" in told
    assert "Traceback" not in told


def test_wrong_words_are_said_before_anything_is_opened(tmp_path):
    process = run("studio", "--model", str(tmp_path / "nothing"), "--no-browser")
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "There is no folder" in told


def test_a_browser_is_opened_only_where_it_could_be_seen(monkeypatch):
    monkeypatch.setattr(cli.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not cli.has_display()
    monkeypatch.setenv("DISPLAY", ":0")
    assert cli.has_display()
