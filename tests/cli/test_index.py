"""clearhead index: a store is built from files of every kind, searched, shown, checked and cleared, in words."""

import json

import pytest
from typer.testing import CliRunner

from clearhead.cli import app
from clearhead.errors import ClearheadError
from tests.tiny import tiny_pipeline

TEXTS = {
    "a.txt": "the cat sat on the mat and the cat ran",
    "b.txt": "a dog sat on the sofa",
    "sub/c.md": "unbelievably!",
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "encoder"
    tiny_pipeline("bert", "features").save(folder)
    return str(folder)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in TEXTS.items():
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(*words):
    result = CliRunner().invoke(app, ["index", *words], env={"COLUMNS": "200"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def data(*words):
    return json.loads(run(*words, "--json").stdout)


def build(encoder, *words):
    return data("build", "store", *words, "--encoder", encoder, "--chunk-size", "8")


def test_build_search_show_check_delete(here, encoder):
    report = build(encoder, "texts/a.txt", "texts/b.txt")
    assert (report["added"], report["chunks"]) == (2, 3)
    assert build(encoder, "texts/a.txt", "texts/b.txt")["unchanged"] == 2
    found = data("search", "store", TEXTS["b.txt"], "-k", "99")
    assert found["metric"] == "cosine" and len(found["results"]) == 3
    best = found["results"][0]
    assert (best["text"], best["document"], best["position"]) == (TEXTS["b.txt"], "texts/b.txt", 0)
    assert best["score"] == pytest.approx(1, abs=1e-4)
    shown = run("search", "store", TEXTS["b.txt"])
    assert "higher is more alike" in shown.output and "texts/b.txt [0]" in shown.output
    facts = data("show", "store")
    assert (facts["documents"], facts["chunks"], facts["chunk_size"], facts["search"]) == (2, 3, 8, "exact")
    assert [row["document"] for row in data("show", "store", "--documents")] == ["texts/a.txt", "texts/b.txt"]
    assert "".join(chunk["text"] for chunk in data("show", "store", "texts/a.txt")) == TEXTS["a.txt"]
    checked = run("check", "store")
    assert checked.exit_code == 0 and "2 documents, 3 chunks of 8 tokens, 24 dimensions, cosine" in checked.output
    assert "1 documents removed; 1 chunks are left" in run("delete", "store", "texts/a.txt").output


def test_a_file_that_changed_or_became_empty(here, encoder):
    build(encoder, "texts/")
    (here / "texts" / "a.txt").write_text("a dog ran")
    (here / "texts" / "b.txt").write_text(" \n")
    report = build(encoder, "texts/")
    assert (report["replaced"], report["removed"], report["unchanged"], report["chunks"]) == (1, 1, 1, 2)
    assert sorted(row["document"] for row in data("show", "store", "--documents")) == ["texts/a.txt", "texts/sub/c.md"]
    assert run("check", "store").exit_code == 0


def test_rows_of_jsonl_and_tables(here, encoder):
    rows = [{"url": f"u{n}", "body": f"the cat sat {'on the sofa ' * n}"} for n in range(3)]
    (here / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (here / "table.csv").write_text("url,body\nu9,a dog\n")
    report = build(encoder, "rows.jsonl", "table.csv", "--column", "body", "--id-column", "url")
    assert report["added"] == 4
    assert [row["document"] for row in data("show", "store", "--documents")] == ["u0", "u1", "u2", "u9"]
    assert build(encoder, "rows.jsonl", "--column", "body", "--id-column", "url")["unchanged"] == 3
    with pytest.raises(ClearheadError, match=r"no column 'text'.* It has: url, body\. Name one: --column"):
        run("build", "other", "rows.jsonl", "--encoder", encoder, "--chunk-size", "8")
    assert not (here / "other").exists()


def test_documents_of_one_file(here, encoder):
    (here / "many.txt").write_text("the cat\n\na dog sat\non the sofa\n\n\nthe mat")
    build(encoder, "many.txt", "--documents", "blank-lines")
    shown = data("show", "store", "--documents")
    assert [row["document"] for row in shown] == ["many.txt:1", "many.txt:3", "many.txt:7"]
    assert {row["source"] for row in shown} == {"many.txt"}


def test_a_long_document_is_joined_from_its_pieces(here, encoder, monkeypatch):
    monkeypatch.setattr("clearhead.train.data.formats.PIECE", 20)
    build(encoder, "texts/a.txt")
    assert "".join(chunk["text"] for chunk in data("show", "store", "texts/a.txt")) == TEXTS["a.txt"]


def test_refusals_change_nothing(here, encoder):
    build(encoder, "texts/a.txt")
    (here / "empty.txt").write_text("")
    for words, said in (
        (("build", "store", "texts/b.txt", "--chunk-size", "9"), "made with chunk_size 8"),
        (("build", "store", "texts/b.txt", "--metric", "l2"), "made with metric cosine"),
        (("build", "new", "texts/nothing.txt"), "does not exist"),
        (("build", "new", "empty.txt", "--encoder", encoder, "--chunk-size", "8"), "the corpus is empty"),
        (("build", "texts", "texts/a.txt"), "holds other files"),
        (("search", "new", "cat"), "There is no store at new"),
        (("search", "store", "Привет"), "knows no word of the query"),
        (("show", "store", "texts/x.txt"), "Did you mean texts/a.txt"),
        (("delete", "store", "texts/x.txt"), "no document texts/x.txt"),
    ):
        with pytest.raises(ClearheadError, match=said):
            run(*words)
    assert not (here / "new").exists() and data("show", "store")["chunks"] == 2


def test_check_says_what_is_wrong_and_fails(here, encoder):
    import lancedb

    build(encoder, "texts/a.txt", "texts/b.txt")
    lancedb.connect("store").open_table("chunks").delete("document = 'texts/a.txt' AND position = 1")
    checked = run("check", "store")
    assert checked.exit_code == 1
    assert "texts/a.txt: 1 chunks are there, and it should have 2" in checked.output
    assert data("check", "store")["good"] is False
