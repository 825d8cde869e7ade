"""The verbs as a user types them, in a process of their own where it matters."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import clearhead as ch
from clearhead.cli import app
from clearhead.errors import ClearheadError
from tests.cli import with_model
from tests.fork_server import run_python


def run(*words, **env):
    return run_python(["-m", "clearhead", *with_model(words)], env={**os.environ, "COLUMNS": "100", **env})


def inside(*words):
    """In this process: quicker. Errors a user can cause come out as they are."""
    result = CliRunner().invoke(app, with_model(words), env={"COLUMNS": "120"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_help_teaches():
    text = inside("--help").output
    for verb in ("generate", "next", "fill", "embed", "walk", "tokenize", "models"):
        assert verb in text
        assert "Usage" in inside(verb, "--help").output
    assert "clearhead generate" in inside("generate", "--help").output
    assert "0.1.0" in inside("--version").output


def test_models_lists_and_describes():
    listing = inside("models").output
    for name in ("bert", "gpt2-xl", "gpt3-175b", "transformer-base", "random-gpt2"):
        assert name in listing
    text = inside("models", "describe", "gpt2").output
    assert "124,439,808" in text
    assert "shared" in text
    data = json.loads(inside("models", "describe", "gpt3-175b", "--json").stdout)
    assert data["parameters"] == 174_604_259_328 == sum(p["parameters"] for p in data["parts"])
    shipped = {card["name"]: card for card in json.loads(inside("models", "--json").stdout)["shipped"]}
    assert shipped["random-gpt2"]["verb"] == "generate" and shipped["random-gpt2"]["bytes"] is None
    assert shipped["sentiment"]["verb"] == "classify" and 6e6 < shipped["sentiment"]["bytes"] < 8e6
    lines = listing.splitlines()  # what ships comes first: name, verb, size, what it is
    assert lines[0].split() == ["shipped", "model", "verb", "size", "what", "it", "is"]
    assert lines[1].split()[:2] == ["stories", "generate"] and "old children's book" in lines[1]
    assert listing.index("random-gpt2") < listing.index("published sizes")
    assert "39.5 BLEU" in inside("models", "card", "translate-en-de").output
    assert "7,578,624" in inside("models", "describe", "translate-en-de").output


def test_describe_a_folder(tmp_path):
    ch.load("random-gpt2").save(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()  # not needed to describe
    assert "242,048" in inside("models", "describe", str(tmp_path / "m")).output


def test_a_translator_is_exported_as_a_family_that_others_know(tmp_path):
    inside("models", "export", "translate-en-de", str(tmp_path / "m"))
    assert json.loads((tmp_path / "m" / "config.json").read_text())["model_type"] == "pegasus"
    with pytest.raises(ClearheadError, match="not empty"):
        inside("models", "export", "translate-en-de", str(tmp_path / "m"))


def test_generate_streams_text_to_standard_output_and_notes_elsewhere():
    done = run("generate", "The robot", "-n", "5", "--seed", "3")
    assert done.returncode == 0
    assert done.stdout.startswith("The robot")
    assert "randomly initialised" in done.stderr
    assert "randomly" not in done.stdout
    again = run("generate", "The robot", "-n", "5", "--seed", "3")
    assert again.stdout == done.stdout


def test_generate_json_beams_and_standard_input():
    data = json.loads(
        inside("generate", "The", "-n", "4", "--num-beams", "3", "--num-return-sequences", "2", "--json").stdout
    )
    assert len(data["answers"]) == 2
    piped = CliRunner().invoke(app, with_model(["generate", "-", "-n", "3"]), input="The robot")
    assert piped.stdout.startswith("The robot")


def test_tokenize():
    text = inside("tokenize", "The robot").output
    assert "␣robot" in text
    rows = json.loads(inside("tokenize", "The robot", "--json").stdout)
    assert "The robot"[rows[0]["start"] : rows[0]["end"]] == "The"
    assert all(isinstance(r["id"], int) for r in rows)


def test_train_a_tokenizer(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cat sat on the mat\n" * 50, encoding="utf-8")
    for kind, size in (("bpe", "280"), ("wordpiece", "60"), ("unigram", "40")):
        folder = tmp_path / kind
        inside("tokenize", "--train", str(corpus), "--kind", kind, "--vocab-size", size, "--save", str(folder))
        rows = json.loads(inside("tokenize", "the cat", "-m", str(folder), "--json").stdout)
        assert rows
    with pytest.raises(ClearheadError, match="not empty"):
        inside("tokenize", "--train", str(corpus), "--vocab-size", "280", "--save", str(tmp_path / "bpe"))


def test_walk():
    text = inside("walk", "The robot said", "--layer", "1", "--head", "2", "--position", "1").output
    for word in ("Embedding", "Query, key, value", "softmax", "layers.1.attention.weights", "hidden", "The next token"):
        assert word in text
    assert json.loads(inside("walk", "The robot", "--json").stdout)["layer"] == 0
    assert inside("walk", "The robot", "--csv").stdout.startswith("step,title,tap,label,place,number\n")


def test_walk_fits_a_narrow_terminal():
    text = run("walk", "The robot said", COLUMNS="60").stdout
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 60
    assert "query: what it looks for" in text


def test_embed():
    data = json.loads(inside("embed", "The robot", "a cat", "-m", "random-gpt2", "--json").stdout)
    assert [len(row["vector"]) for row in data["embeddings"]] == [64, 64]
    assert "1.00" in inside("embed", "The robot", "a cat", "-m", "random-gpt2").output


def test_fill(tmp_path):
    from clearhead.models.bert import FAMILY, BertConfig
    from clearhead.pipeline import TextPipeline
    from clearhead.text import train_tokenizer

    tokenizer = train_tokenizer(["the cat sat"] * 9, kind="wordpiece", vocab_size=50, show_progress=False)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    TextPipeline(FAMILY.make(config), tokenizer).save(tmp_path / "bert")
    data = json.loads(inside("fill", "the [MASK] sat", "-m", str(tmp_path / "bert"), "--top-k", "3", "--json").stdout)
    assert len(data["gaps"][0]) == 3
    assert "%" in inside("fill", "the [MASK] sat", "-m", str(tmp_path / "bert")).output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["generate", "hi", "-m", "./nowhere"], "no folder ./nowhere"),
        (["generate", "hi", "-m", "someone/unknown"], "hf download someone/unknown"),
        (["generate", "hi", "--top-k", "0"], "top_k"),
        (["generate", ""], "empty"),
        (["walk", "hi", "--layer", "9"], "4 layers"),
        (["models", "describe", "gpt2-xxl"], "gpt2-xl"),
        (["tokenize"], "Give a text"),
        (["tokenize", "--train", "nothere.txt", "--save", "x"], "nothere.txt"),
        (["fill", "no gap here", "-m", "random-gpt2"], "masked language model"),
    ],
)
def test_a_users_mistake_gets_one_clear_message(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*words, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hf"))
    assert done.returncode == 1
    assert "Error:" in done.stderr
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir() if p.name != "hf"] == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupt_keeps_what_was_written():
    process = subprocess.Popen(
        [
            sys.executable,
            "-u",
            "-m",
            "clearhead",
            "generate",
            "The robot",
            "-m",
            "random-gpt2",
            "-n",
            "250",
            "--seed",
            "1",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = process.stdout.read(12)  # it has begun to write
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert first.startswith("The robot")
    assert "Traceback" not in err
    assert process.returncode in (0, 130)
