"""Clearhead where the package of trained models is not installed: everything else works, and says how to get them."""

import contextlib

import pytest

from tests.fork_server import run_python

WITHOUT = "import sys; sys.modules['clearhead_zoo'] = None\n"
INSTALL = 'pip install "clearhead[zoo]"'


def run(code, *arguments, cwd="."):
    with contextlib.chdir(cwd):
        return run_python(["-c", WITHOUT + code, *arguments])


def command(*arguments, cwd="."):
    return run("from clearhead.cli import main; main()", *arguments, cwd=cwd)


def test_the_core_alone(tmp_path):
    done = run(
        "import clearhead as ch\n"
        "pipe = ch.load('random-gpt2')\n"
        "pipe.save('saved')\n"
        "print(ch.load('saved').generate('The robot', max_new_tokens=3))\n"
        "from clearhead.server.model_store import *\n"
        "from clearhead import zoo; assert list(zoo.cards()) == ['random-gpt2']",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The robot")


@pytest.mark.parametrize(
    "arguments",
    [
        ("generate", "Once", "--model", "stories"),
        ("generate", "Once"),  # a default that is not there
        ("tokenize", "Once", "--model", "stories"),
        ("models", "describe", "translate-en-de"),
        ("models", "card", "stories"),
        ("train", "stories", "--show"),
    ],
)
def test_a_shipped_name_says_how_to_get_it(arguments, tmp_path):
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert INSTALL in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_model_store_says_how_to_get_it():
    done = run("from clearhead.server.model_store import ModelStore; ModelStore().find('stories')")
    assert done.returncode == 1 and INSTALL in done.stderr.splitlines()[-1]


def test_models_are_listed_and_the_rest_can_be_had():
    done = command("models")
    assert done.returncode == 0
    assert "random-gpt2" in done.stdout and "translate-en-de" not in done.stdout
    assert INSTALL in " ".join(done.stdout.split())


def test_recipes_need_no_models():
    done = command("train", "--list")
    assert done.returncode == 0 and "language-model" in done.stdout
    done = command("train", "language-model", "data.train=text.txt", "steps=3", "--show")
    assert done.returncode == 0, done.stderr
    assert "steps: 3" in done.stdout


def test_a_hub_id_is_not_mistaken_for_a_shipped_name():
    done = command("generate", "Once", "--model", "nobody/nothing")
    assert done.returncode == 1 and INSTALL not in done.stderr
