"""Streams as users have them: consoles of few characters, full disks, closed pipes, keys pressed too early."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fork_server import run_python

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX streams and signals")
FULL = "os.dup2(os.open('/dev/full', os.O_WRONLY), {})"
PIPE = "r, w = os.pipe(); os.write(w, {}); os.close(w); os.dup2(r, 0)"


def run_after(first: str, *words: str, **env: str) -> subprocess.CompletedProcess:
    """A verb whose streams are made strange first."""
    program = f"import os, sys\n{first}\nsys.argv = ['clearhead', *{words!r}]\nfrom clearhead.cli import main\nmain()"
    done = run_python(["-c", program], env={**os.environ, "COLUMNS": "100", **env})
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    return done


def in_encoding(encoding: str, *words: str) -> subprocess.CompletedProcess:
    return run_after("", *words, PYTHONIOENCODING=encoding)


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("ascii", ["generate", "--help"]),
        ("cp1252", ["walk", "The café", "-m", "random-gpt2"]),
        ("ascii", ["walk", "The café", "-m", "random-gpt2"]),
        ("cp1252", ["explain", "--list"]),
        ("cp1252", ["models"]),
    ],
)
def test_an_encoding_of_few_characters(encoding, words):
    done = in_encoding(encoding, *words)
    assert done.returncode == 0 and len(done.stdout) > 500


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "cp1252"])
def test_what_an_encoding_lacks_is_replaced_and_said(encoding):
    done = in_encoding(encoding, "tokenize", "我 – The", "-m", "random-gpt2", "--no-special")
    assert done.returncode == 0 and "_The" in done.stdout.replace("\xa0", " ")  # for ␣The
    done = in_encoding(encoding, "generate", "我喜欢 – The", "-m", "random-gpt2", "-n", "1")
    assert done.stdout.startswith("??? ")
    assert "PYTHONIOENCODING=utf-8" in done.stderr
    done = in_encoding(encoding, "generate", "The", "-m", "没有")
    assert done.returncode == 1 and "folder ??." in done.stderr


def test_json_loses_nothing_in_any_encoding():
    done = in_encoding("ascii", "generate", "我喜欢", "-m", "random-gpt2", "-n", "1", "--json")
    assert json.loads(done.stdout)["prompt"] == "我喜欢"


@posix
@pytest.mark.parametrize(
    ("first", "words", "says"),
    [
        (FULL.format(1), ["models"], "Standard output cannot be written: No space left on device."),
        (FULL.format(1), ["--help"], "No space left"),
        (FULL.format(1), ["--version"], "No space left"),
        (FULL.format(1), ["walk", "The", "-m", "random-gpt2", "--csv"], "No space left"),
        (FULL.format(2), ["generate", "The", "--top-k", "0"], ""),
        ("sys.stdout = None", ["models"], "it is closed"),
        ("sys.stdout = None", ["generate", "The", "-m", "random-gpt2", "-n", "1"], "it is closed"),
        ("sys.stdin = None", ["generate", "-"], "The prompt is empty"),
        ("sys.stderr = None", ["generate", "The", "--top-k", "0"], ""),
        (PIPE.format(b"caf\xe9"), ["generate", "-"], "byte 0xe9"),
        (PIPE.format(b"caf\xe9"), ["next", "The", "-m", "random-gpt2"], "byte 0xe9"),
        ("os.environ['COLUMNS'] = '0'", ["generate", "The", "--top-k", "0"], "top_k"),
        ("os.environ['COLUMNS'] = '1'", ["generate", "The", "--top-k", "0"], "top_k"),
    ],
)
def test_streams_that_are_closed_full_or_strange(first, words, says):
    if "/dev/full" in first and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    done = run_after(first, *words)
    assert done.returncode == 1
    assert says in " ".join(done.stderr.split())


@posix
def test_a_closed_output_and_a_reader_that_went_away():
    command = f"{sys.executable} -m clearhead --version"
    for line, says in ((f"{command} >&-", "it is closed"), (f"{{ sleep 1; {command}; }} | true", "")):
        done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=120, check=False)
        assert says in done.stderr
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@posix
def test_an_interrupt_while_it_starts():
    process = subprocess.Popen(
        [sys.executable, "-v", "-m", "clearhead", "generate", "The", "-m", "random-gpt2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    for line in process.stderr:  # Python says what it imports
        if line.startswith("import 'clearhead.cli") or line.startswith("import 'torch"):
            break
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in err
