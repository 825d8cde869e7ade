"""clearhead vectors: a word, a sum, several words; as a table, as JSON, as a page."""

import json

import pytest

import clearhead as ch
from clearhead.errors import ClearheadError, InputError
from tests.cli.test_verbs import data, run
from tests.studies import small


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A small file of vectors."""
    path = tmp_path_factory.mktemp("vectors") / "own.txt"
    path.write_text("king 1 0 0.2\nqueen 1 1 0.2\nman 0.1 0 1\nwoman 0.1 1 1\ne-mail 0 0 -1\n")
    return str(path)


def test_neighbours_and_sums(own):
    vectors = ch.load(own)
    found = data("vectors", "king", "-m", own, "-k", "2")
    assert [(one["word"], one["cosine"]) for one in found["nearest"]] == vectors.nearest("king", 2)
    for words in (["king - man + woman"], ["king", "-", "man", "+", "woman"]):
        found = data("vectors", *words, "-m", own)
        assert (found["kind"], found["asked"]) == ("neighbours", "king - man + woman")
        assert [(one["word"], one["cosine"]) for one in found["nearest"]] == vectors.analogy("king - man + woman")
    shown = run("vectors", "king - man + woman", "-m", own).stdout
    assert "queen" in shown and "e-mail" in shown and "cosine" in shown


def test_several_words(own):
    found = data("vectors", "king", "queen", "e-mail", "-m", own)
    assert found["kind"] == "word-map" and found["words"] == ["king", "queen", "e-mail"]
    assert found["odd_one_out"] == ch.load(own).odd_one_out(found["words"]) == "e-mail"
    assert data("vectors", "king queen", "-m", own)["words"] == ["king", "queen"]
    shown = run("vectors", "man -> woman", "king", "-m", own).stdout
    assert "man → woman" in shown and "odd one out" in shown and "one-hot" in shown


def test_saved(own, tmp_path):
    run("vectors", "man -> woman", "king -> queen", "-m", own, "--save", str(tmp_path / "map.html"))
    assert "word-map" in (tmp_path / "map.html").read_text()
    run("vectors", "king", "-m", own, "--save", str(tmp_path / "near.json"))
    assert json.loads((tmp_path / "near.json").read_text())["asked"] == "king"
    assert run("vectors", "king", "-m", own, "--csv").stdout.startswith("rank,word,cosine")


def test_mistakes(own, tmp_path):
    for words, said in (
        ([], "There is no word"), (["kong", "-m", own], "no word “kong”"), (["king -", "-m", own], "no word behind"),
        (["king queen -", "-m", own], "neither"), (["king", "-m", str(tmp_path)], "not a model folder"),
        (["king", "--save", "x.png"], "saved as .html"),
    ):  # fmt: skip
        with pytest.raises(ClearheadError, match=said):
            run("vectors", *words)
    with pytest.raises(ClearheadError, match="reads no text"):
        run("generate", "x", "-m", own)


def test_export(own, tmp_path):
    run("models", "export", own, str(tmp_path / "x.bin"))
    run("models", "export", own, str(tmp_path / "folder"))
    assert list(ch.load(tmp_path / "x.bin")) == list(ch.load(tmp_path / "folder")) == list(ch.load(own))
    shipped = {row["name"]: row for row in data("models")["shipped"]}
    assert shipped["glove"]["verb"] == "vectors" and shipped["glove"]["bytes"] < 2.2e6


@pytest.mark.parametrize("verb", ["generate", "classify", "tag", "fill", "translate", "summarize", "next"])
def test_verbs_that_want_more_than_vectors_say_so(verb, own, tmp_path):
    for model in (own, str(small.elmo(tmp_path / "elmo"))):
        with pytest.raises(InputError, match=r"table of word vectors|vectors of words in their sentence"):
            run(verb, "A [MASK].", "-m", model)
