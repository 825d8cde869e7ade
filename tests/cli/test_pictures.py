"""The verbs with pictures: classify, embed and search, and what is said when model and input do not fit."""

import json

import pytest
from typer.testing import CliRunner

from clearhead.cli import app
from clearhead.errors import ClearheadError
from tests.clip_folder import make_clip
from tests.image.made import noise

RUN = CliRunner()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return str(make_clip(tmp_path_factory.mktemp("clip")))


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for n in range(4):
        noise(30, 20, seed=n).save(folder / f"{n}.png")
    return folder


def run(*arguments):
    done = RUN.invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done


def test_classify(clip, pictures, tmp_path):
    done = run("classify", pictures / "0.png", "--labels", "cat,dog", "-m", clip, "--json")
    labels = json.loads(done.stdout)["labels"]
    assert {label["label"] for label in labels} == {"cat", "dog"} and sum(label["score"] for label in labels) > 0.999
    done = run("classify", pictures / "0.png", pictures / "1.png", "--labels", "cat,dog", "-m", clip)
    assert len(done.stdout.strip().splitlines()) == 2
    table = tmp_path / "rows.csv"
    table.write_text(f"image,n\n{pictures / '0.png'},1\n{pictures / '1.png'},2\n")
    run(
        "classify", "--file", table, "--column", "image", "--labels", "cat,dog", "-m", clip, "--out", tmp_path / "o.csv"
    )
    assert (tmp_path / "o.csv").read_text().count("\n") == 3


def test_embed(clip, pictures):
    done = run("embed", pictures / "0.png", "a red square", "-m", clip, "--json")
    assert [len(entry["vector"]) for entry in json.loads(done.stdout)["embeddings"]] == [12, 12]


def test_search_keeps_vectors(clip, pictures, tmp_path):
    kept = tmp_path / "kept"
    first = run("search", pictures, "a red square", "-m", clip, "--cache", kept, "--json")
    results = json.loads(first.stdout)["results"]
    assert len(results) == 4 and results[0]["score"] >= results[1]["score"]
    [file] = kept.iterdir()
    before = file.stat().st_mtime_ns
    again = run("search", "a red square", pictures, "-m", clip, "--cache", kept, "--json")  # either order
    assert json.loads(again.stdout)["results"] == results and file.stat().st_mtime_ns == before
    noise(30, 20, seed=9).save(pictures / "new.png")
    (pictures / "broken.png").write_bytes(b"\x89PNG broken")
    more = run("search", pictures, "a red square", "-m", clip, "--cache", kept, "--json", "--top-k", "9")
    assert len(json.loads(more.stdout)["results"]) == 5 and "broken.png" in more.stderr.replace("\n", "")
    shown = run("search", pictures, "a red square", "-m", clip, "--no-keep")
    assert "new.png" in shown.stdout


def test_explain(clip, pictures, tmp_path):
    shown = run("explain", "saliency", pictures / "0.png", "--labels", "cat,dog", "-m", clip)
    assert "[class]" in shown.stdout
    run("explain", "attention", pictures / "0.png", "-m", clip, "--save", tmp_path / "a.html")
    found = run("explain", "text-picture-matrix", "a cat; a dog", "--second", pictures, "-m", clip, "--json")
    assert len(json.loads(found.stdout)["pictures"]) == 4
    with pytest.raises(ClearheadError, match="--labels cat,dog"):
        run("explain", "saliency", pictures / "0.png", "-m", clip)
    with pytest.raises(ClearheadError, match="A CLIP does"):
        run("explain", "saliency", "a text", "--labels", "cat,dog", "-m", "random-gpt2")


@pytest.mark.parametrize("verb", ["classify", "embed"])
def test_a_picture_and_no_model_that_reads_it(verb, clip, pictures):
    with pytest.raises(ClearheadError, match="no model that reads pictures is taken by itself"):
        run(verb, pictures / "0.png")
    with pytest.raises(ClearheadError, match="is a picture, and random-gpt2 reads texts"):
        run(verb, pictures / "0.png", "-m", "random-gpt2")
    with pytest.raises(ClearheadError, match="There is no picture"):
        run(verb, "absent.png", "-m", clip, *(["--labels", "a,b"] if verb == "classify" else []))


def test_texts_and_a_model_of_pictures(clip, pictures, tmp_path):
    with pytest.raises(ClearheadError, match="reads pictures: give the path of one"):
        run("classify", "a text", "--labels", "cat,dog", "-m", clip)
    with pytest.raises(ClearheadError, match="no labels of its own"):
        run("classify", pictures / "0.png", "-m", clip)
    with pytest.raises(ClearheadError, match="reads texts"):
        run("search", pictures, "a red square", "-m", "random-gpt2")
    (tmp_path / "notes.txt").write_text("one line\n")
    with pytest.raises(ClearheadError, match="no pictures in"):
        run("search", "a red square", tmp_path / "notes.txt", "-m", clip)
    with pytest.raises(ClearheadError, match="compares texts with pictures"):
        run("fill", "a [MASK]", "-m", clip)
