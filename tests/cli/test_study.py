"""`clearhead study` as a user types it: tables for people, JSON and CSV for programs, errors in one line."""

import json

import pytest

from clearhead.errors import ClearheadError
from clearhead.nn.fast import cpu_kernels
from tests.cli.test_cli import inside
from tests.studies.small import bert, sentences, table, tagged

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(bert(tmp_path_factory.mktemp("study") / "bert"))


@pytest.fixture
def files(tmp_path, monkeypatch):
    cpu_kernels.load()  # from the user's own cache, not compiled anew for this one
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return str(table(tmp_path / "train.tsv", sentences(60))), str(table(tmp_path / "test.tsv", sentences(20, seed=1)))


def test_help_teaches():
    for name in ("sentiment", "features", "similarity"):
        assert name in inside("study", "--help").output
        assert f"clearhead study {name}" in inside("study", name, "--help").output


def test_sentiment(folder, files, tmp_path):
    words = ("study", "sentiment", "--train", files[0], "--test", files[1], "--model", folder)
    text = inside(*words).output
    for part in ("[CLS]", "mean", "commoner label", "5 folds", "±", "test file"):
        assert part in text
    assert list((tmp_path / "cache" / "clearhead" / "features").iterdir())
    data = json.loads(inside(*words, "--json").stdout)
    assert data["cached"] and f"{data['rows'][0]['test']:.1%}" in text
    turned = table(tmp_path / "turned.tsv", [("label", "sentence"), *((b, a) for a, b in sentences(60))])
    named = inside("study", "sentiment", "--train", str(turned), "--text", "sentence", "--label", "label", "-m", folder,
                   "--json")  # fmt: skip
    assert json.loads(named.stdout)["rows"][1]["accuracy"] == data["rows"][1]["accuracy"]
    assert inside(*words, "--csv").stdout.startswith("features,sentences,accuracy,std,standardised,test\n")


def test_sentiment_fine_tuned(folder, files, tmp_path):
    found = inside(
        "study", "sentiment", "--train", files[0], "--test", files[1], "-m", folder, "--fine-tune", "--out",
        str(tmp_path / "run"), "--set", "epochs=1", "--set", "batch.tokens=256",
    )  # fmt: skip
    assert "fine-tuned" in found.output and (tmp_path / "run" / "model").is_dir()
    with pytest.raises(ClearheadError, match="epoch"):
        inside("study", "sentiment", "--train", files[0], "-m", folder, "--fine-tune", "--out", str(tmp_path / "b"),
               "--set", "epoch=1")  # fmt: skip


def test_features(folder, tmp_path):
    train, test = str(tagged(tmp_path / "a.conll", 30)), str(tagged(tmp_path / "b.conll", 10, seed=1))
    text = inside("study", "features", "--train", train, "--test", test, "--model", folder).output
    for part in ("embeddings", "second to last", "sum of all", "F1", "no name"):
        assert part in text
    both = inside("study", "features", "--train", train, "--test", test, "-m", "glove", "-m", folder, "--csv").stdout
    assert both.splitlines()[1].startswith("glove,word vectors,50,") and len(both.splitlines()) == 8


def test_similarity(folder):
    text = inside("study", "similarity", "--model", folder).output
    for part in ("[CLS]", "mean, centred", "any two", "same words", "AUC"):
        assert part in text
    assert len(json.loads(inside("study", "similarity", "-m", folder, "--json").stdout)["rows"]) == 5


def test_a_study_is_saved_like_any_finding(folder, tmp_path):
    inside("study", "similarity", "-m", folder, "--save", str(tmp_path / "a.html"))
    assert "any two" in (tmp_path / "a.html").read_text()
    with pytest.raises(ClearheadError, match="there already"):
        inside("study", "similarity", "-m", folder, "--save", str(tmp_path / "a.html"))
