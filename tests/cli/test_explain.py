"""clearhead explain as a user types it: what is asked, shown, saved and refused."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

import clearhead as ch
from clearhead import explain
from clearhead.cli import app
from clearhead.errors import InputError
from clearhead.explain.questions import QUESTIONS
from tests.cli import with_model
from tests.cli.test_cli import run
from tests.tiny import tiny_pipeline

TEXT = "The robot must obey"


@pytest.fixture(scope="module")
def gpt():
    return ch.load("random-gpt2")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "bert"
    tiny_pipeline("bert", "sequence-classification").save(folder)
    return str(folder)


def asked(*words, stdin=None):
    result = CliRunner().invoke(app, with_model(["explain", *words]), env={"COLUMNS": "100"}, input=stdin)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result


def test_help_teaches():
    text = asked("--help").output
    for word in ("clearhead explain --list", "--set", "--save", "--open", "NAME=VALUE", "translate-en-de"):
        assert word in text


def test_the_list_has_every_question_in_a_line():
    for words in (["--list"], []):
        lines = asked(*words).output.splitlines()
        for name, one in QUESTIONS.items():
            assert sum(line.startswith(f"  {name} ") and one.title in line for line in lines) == 1
        assert [line for line in lines if line in {one.group_title for one in QUESTIONS.values()}]
        assert max(map(len, lines)) <= 100


def test_the_list_says_which_fit(bert):
    text = asked("--list", "-m", bert).output
    assert "who looks at whom?" in text
    assert "what may come next?" not in text and "does not write" in text
    rows = {row["name"]: row for row in json.loads(asked("--list", "-m", bert, "--json").stdout)}
    assert rows["attention"]["unfit"] is None and "does not write" in rows["next-token"]["unfit"]
    assert "unfit" not in json.loads(asked("--list", "--json").stdout)[0]


def test_show_tells_what_can_be_set():
    text = asked("saliency", "--show").output
    for param in QUESTIONS["saliency"].params:
        assert param.name in text
    assert "integrated-gradients" in text and "from 1 to 1,024" in text and "--second" in text
    both, one = asked("attention", "--show").output, asked("attention", "--show", "-m", "random-gpt2").output
    assert "For encoder–decoders" in both and "side" in both
    assert "side" not in one and "layers" in one
    assert "published" in asked("parameters", "--show").output
    assert "Not this model" in asked("prediction", "--show", "-m", "random-gpt2").output
    assert json.loads(asked("saliency", "--show", "--json").stdout)["name"] == "saliency"


def test_an_answer_is_drawn(gpt):
    text = asked("saliency", TEXT, "--set", "max_new_tokens=2", "--set", "method=occlusion").stdout
    assert "robot" in text and "occlusion" in text
    assert "randomly initialised" not in text  # that is said elsewhere
    found = explain.next_token(gpt, TEXT, 3)
    data = json.loads(asked("next-token", TEXT, "--set", "k=3", "--json").stdout)
    assert data["kind"] == "next-tokens"
    assert [c["token_id"] for c in data["candidates"]] == [c.token_id for c in found.candidates]
    rows = asked("next-token", TEXT, "--set", "k=3", "--csv").stdout.splitlines()
    assert rows[0] == "rank,token,token_id,probability,logit" and len(rows) == 4


def test_parameter_names_may_have_dashes():
    dashes, underscores, default = (
        json.loads(asked("saliency", TEXT, *words, "--json").stdout)["outputs"]
        for words in (["--set", "max-new-tokens=1"], ["--set", "max_new_tokens=1"], [])
    )
    assert dashes == underscores
    assert [output["id"] for output in dashes] == [default[0]["id"]]


OF_WORDS = {"neighbours": "king - man + woman", "word-map": "man -> woman, king -> queen"}
TEXTS = OF_WORDS | {"word-in-context": "The robot must obey\n\nA robot runs"}


OF_RECURRENT = ("alignment-steps", "gates", "echo", "length-curve")  # drawn in tests/views
OF_A_LIBRARY = ("store-map", "passages", "retrieval-ablation")  # drawn there too
OF_PICTURES = ("text-picture-matrix",)  # asked in test_pictures.py
DRAWN_ELSEWHERE = (*OF_RECURRENT, *OF_A_LIBRARY, *OF_PICTURES)


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name not in DRAWN_ELSEWHERE])
def test_every_question_has_a_picture(name, bert):
    model = bert if name == "prediction" else "glove" if name in OF_WORDS else "random-gpt2"
    second = ["--second", "The robot will obey"] if name == "patching" else []
    text = asked(name, TEXTS.get(name, "The robot must obey"), "-m", model, *second).stdout
    assert len(text.splitlines()) > 1
    assert "no picture" not in text


def test_a_text_from_a_file_and_from_standard_input(tmp_path):
    plain = json.loads(asked("next-token", TEXT, "--json").stdout)
    assert json.loads(asked("next-token", "-", "--json", stdin=f"{TEXT}\n").stdout) == plain
    file = tmp_path / "text.txt"
    file.write_text(f"\ufeff{TEXT}\n", encoding="utf-8")
    assert json.loads(asked("next-token", "--file", str(file), "--json").stdout) == plain
    with pytest.raises(InputError, match="not both"):
        asked("next-token", TEXT, "--file", str(file))
    with pytest.raises(InputError, match="cannot be read"):
        asked("next-token", "--file", str(tmp_path / "none.txt"))
    file.write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match="no text in UTF-8"):
        asked("next-token", "--file", str(file))


def test_a_second_model_is_loaded_by_its_name(bert):
    data = json.loads(asked("similarity", TEXT, "--set", f"other={bert}", "--json").stdout)
    assert (data["a"], data["b"]) == ("random-gpt2", bert)


def test_an_answer_is_saved_whole(tmp_path, gpt):
    page, numbers = tmp_path / "a.html", tmp_path / "a.json"
    asked("attention", TEXT, "--save", str(page))
    assert page.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    said = asked("attention", TEXT, "--save", str(numbers), "--set", "layers=1")
    assert f"Saved to {numbers.name}" in said.stderr.replace("\n", "").replace(str(tmp_path) + os.sep, "")
    data = json.loads(numbers.read_text(encoding="utf-8"))
    assert data == explain.attention(gpt, TEXT, layers=1).to_dict()
    with pytest.raises(InputError, match=r"already.*--overwrite"):
        asked("attention", TEXT, "--save", str(numbers), "--set", "layers=2")
    assert json.loads(numbers.read_text(encoding="utf-8")) == data
    asked("attention", TEXT, "--save", str(numbers), "--set", "layers=2", "--overwrite")
    assert json.loads(numbers.read_text(encoding="utf-8"))["layers"] == [2]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.html", "a.json"]


def test_a_page_is_opened(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asked("walk", TEXT, "--open")
    asked("walk", TEXT, "--open", "--save", str(tmp_path / "why.html"))
    assert [url.rsplit("/", 1)[1] for url in opened] == ["walk.html", "why.html"]
    assert all(url.startswith("file://") for url in opened)


WRONG = [
    (["salency", TEXT], "no question 'salency'. Did you mean saliency"),
    (["saliency"], "There is no text"),
    (["saliency", " "], "no text to explain"),
    (["saliency", TEXT, "--set", "methd=occlusion"], "no parameter 'methd'.*Did you mean method"),
    (["saliency", TEXT, "--set", "method=oclusion"], "method is 'oclusion'.*Did you mean occlusion"),
    (["saliency", TEXT, "--set", "steps"], "NAME=VALUE"),
    (["saliency", TEXT, "--set", "=3"], "NAME=VALUE"),
    (["attention", TEXT, "--set", "layers=9"], "no layer 9: the model has 4"),
    (["attention", "robot " * 400], "reads at most 256"),
    (["prediction", TEXT], "This model writes"),
    (["walk", TEXT, "--second", TEXT], "one text"),
    (["attention", TEXT, "--save", "a.txt"], r"saved as \.html, \.json or \.csv"),
    (["attention", TEXT, "--save", "a.json", "--open"], r"save as \.html"),
    (["attention", TEXT, "--save", "none/a.json"], "no folder none"),
    (["similarity", TEXT, "--set", "other=no-such-model"], "no-such-model"),
    (["saliency", "--list"], "--show"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_what_cannot_be_asked_is_refused_and_nothing_is_written(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    extra = [] if {"--save", "--list"} & set(words) else ["--save", "out.html"]
    with pytest.raises(Exception, match=message) as refused:
        asked(*words, *extra)
    assert isinstance(refused.value, ch.errors.ClearheadError)
    assert not list(tmp_path.iterdir())


def test_an_error_is_one_message_and_a_code():
    done = run("explain", "salency", TEXT)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: There is no question") and "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupted_question_leaves_nothing(tmp_path):
    program = (
        "import signal, sys, time, clearhead.explain.questions as q, clearhead.cli as c\n"
        "from dataclasses import replace\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background begins without one
        "def slow(*given, **values):\n    print('asked', flush=True)\n    time.sleep(60)\n"
        "q.QUESTIONS['walk'] = replace(q.QUESTIONS['walk'], answer=slow)\n"
        f"sys.argv = ['clearhead', 'explain', 'walk', 'hi', '--save', {str(tmp_path / 'a.html')!r}]\nc.main()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "asked\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130 and out == "" and "Traceback" not in err
    assert not list(tmp_path.iterdir())
