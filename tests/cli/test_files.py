"""What every verb reads and writes: texts, lines, files of each format; stopped, gone on with, and refused."""

import csv
import gzip
import json
from itertools import permutations

import pytest
import torch
from typer.testing import CliRunner

import clearhead as ch
from clearhead.cli import app, batch_job
from clearhead.cli.embed import nearest_pairs
from clearhead.errors import InputError
from tests.tiny import tiny_pipeline

TEXTS = ["the cat sat", "a dog ran on the mat", "the mat"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "bert"
    tiny_pipeline("bert", "features").save(folder)
    return str(folder)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def embed(model, *words, typed=None):
    result = CliRunner().invoke(app, ["embed", "-m", model, *words], input=typed, env={"COLUMNS": "100"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def vectors(model, texts):
    return [[pytest.approx(value, rel=1e-4, abs=1e-5) for value in row] for row in ch.load(model).embed(texts).tolist()]


def test_texts_lines_and_files_give_what_the_method_gives(model, here):
    wanted = vectors(model, TEXTS)
    (here / "t.txt").write_text("\n".join(TEXTS))
    lines = "\r\n".join([TEXTS[0], "", *TEXTS[1:], ""])
    for words, typed in ((TEXTS, None), (["-"], lines), (["--file", "t.txt"], None)):
        data = json.loads(embed(model, *words, "--json", typed=typed).stdout)
        assert [row["text"] for row in data["embeddings"]] == TEXTS
        assert [row["vector"] for row in data["embeddings"]] == wanted


def write(path, rows):
    """Rows in the format of the ending."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".txt":
        path.write_text("".join(row["text"] + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]), delimiter="," if path.suffix == ".csv" else "\t")
            table.writeheader()
            table.writerows(rows)


def read(path):
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        quoting = csv.QUOTE_MINIMAL if path.suffix == ".csv" else csv.QUOTE_NONE
        return list(csv.DictReader(file, delimiter="," if path.suffix == ".csv" else "\t", quoting=quoting))


@pytest.mark.parametrize("source", ["in.csv", "in.tsv", "in.jsonl", "in.txt"])
@pytest.mark.parametrize("target", ["out.csv", "out.tsv", "out.jsonl"])
def test_a_row_for_each_row_with_its_columns(model, here, source, target):
    rows = [{"id": str(n), "text": text} for n, text in enumerate([*TEXTS, ""])]  # the last one has nothing to read
    write(here / source, rows)
    embed(model, "--file", source, "--out", target)
    found = read(here / target)
    kept = rows if source != "in.txt" else [{"text": row["text"]} for row in rows]
    assert [{name: row[name] for name in kept[0]} for row in found] == kept
    got = [row.get("vector") for row in found]
    assert got[-1] in (None, "")
    assert [json.loads(one) if isinstance(one, str) else one for one in got[:-1]] == vectors(model, TEXTS)
    assert sorted(p.name for p in here.iterdir()) == sorted([source, target])  # nothing is left beside it


def test_columns_of_other_names_positions_and_packed_files(model, here):
    (here / "t.csv").write_text('a,b\n1,"the cat, sat"\n')
    assert json.loads(embed(model, "--file", "t.csv", "--column", "b", "--json").stdout)["embeddings"][0]["text"] == (
        "the cat, sat"
    )
    (here / "bare.tsv").write_text("1\tthe cat\n2\ta dog\n")
    embed(model, "--file", "bare.tsv", "--column", "1", "--out", "o.csv")
    assert [(row["column_0"], row["column_1"]) for row in read(here / "o.csv")] == [("1", "the cat"), ("2", "a dog")]
    with gzip.open(here / "t.txt.gz", "wt") as file:
        file.write("the cat\n")
    assert json.loads(embed(model, "--file", "t.txt.gz", "--json").stdout)["embeddings"][0]["text"] == "the cat"
    (here / "latin.txt").write_bytes("the café\n".encode("latin-1"))
    assert (
        (json.loads(embed(model, "--file", "latin.txt", "--encoding", "latin-1", "--json").stdout)["embeddings"][0])[
            "text"
        ]
        == "the café"
    )


def test_results_do_not_hide_columns_of_the_same_name(model, here):
    write(here / "t.csv", [{"text": "the cat", "vector": "mine"}])
    embed(model, "--file", "t.csv", "--out", "o.csv")
    row = read(here / "o.csv")[0]
    assert row["vector"] == "mine" and json.loads(row["predicted_vector"])


# ---- stopped, and gone on with


@pytest.fixture
def stopped(model, here, monkeypatch):
    """A job that was interrupted after four of ten rows."""
    write(here / "t.csv", [{"text": f"the cat {n}", "other": "a dog"} for n in range(10)])
    monkeypatch.setattr(batch_job, "LARGEST_CHUNK", 2)
    read_rows = []
    embed_all = ch.pipeline.TextPipeline.embed

    def few(self, texts, **options):
        if len(read_rows) == 4:
            raise KeyboardInterrupt
        read_rows.extend(texts)
        return embed_all(self, texts, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ch.pipeline.TextPipeline, "embed", few)
        result = embed(model, "--file", "t.csv", "--out", "o.csv")
    assert result.exit_code == 130 and "4 of 10" in result.stderr
    assert not (here / "o.csv").exists() and (here / "o.csv.part").exists()
    return here


def test_the_same_command_goes_on_where_it_stopped(model, stopped, monkeypatch):
    seen = []
    embed_all = ch.pipeline.TextPipeline.embed
    monkeypatch.setattr(
        ch.pipeline.TextPipeline, "embed", lambda self, texts, **o: seen.extend(texts) or embed_all(self, texts, **o)
    )
    with (stopped / "o.csv.part").open("ab") as part:
        part.write(b"[0.5, 0.")  # the half of a line, as a kill leaves it
    assert "Going on after 4 of 10" in embed(model, "--file", "t.csv", "--out", "o.csv").stderr
    assert seen == [f"the cat {n}" for n in range(4, 10)]
    monkeypatch.undo()
    monkeypatch.chdir(stopped)
    embed(model, "--file", "t.csv", "--out", "whole.csv")
    rows, whole = ([json.loads(row["vector"]) for row in read(stopped / name)] for name in ("o.csv", "whole.csv"))
    assert rows == [[pytest.approx(value, abs=1e-5) for value in row] for row in whole]
    assert not (stopped / "o.csv.part").exists()


@pytest.mark.parametrize("damage", [b"garbage\n", b'{"a": 1}\n' * 9, b"00000000 [1.0]\n"])
def test_what_is_damaged_is_computed_again(model, stopped, damage):
    with (stopped / "o.csv.part").open("ab") as part:
        part.write(damage)
    result = embed(model, "--file", "t.csv", "--out", "o.csv")
    assert result.exit_code == 0 and "Going on after 4 of 10" in result.stderr
    assert len(read(stopped / "o.csv")) == 10 and not (stopped / "o.csv.part").exists()


@pytest.mark.parametrize("change", ["input", "model", "options", "column", "stranger"])
def test_another_job_does_not_go_on_with_it(model, stopped, change, tmp_path_factory):
    words = ["--file", "t.csv", "--out", "o.csv"]
    if change == "input":
        (stopped / "t.csv").write_text("text\nanother\n")
    elif change == "options":
        words += ["--pooling", "max"]
    elif change == "column":
        words += ["--column", "other"]
    elif change == "model":
        model = str(tmp_path_factory.mktemp("models") / "other")
        tiny_pipeline("bert", "features", seed=1).save(model)
    else:
        (stopped / "o.csv.part").write_text("mine\n")
    before = (stopped / "o.csv.part").read_bytes()
    says = {
        "input": "other rows",
        "model": "another model",
        "options": "other options",
        "column": "other options",
        "stranger": "in the way",
    }
    with pytest.raises(InputError, match=says[change]):
        embed(model, *words)
    assert (stopped / "o.csv.part").read_bytes() == before
    embed(model, *words, "--overwrite")
    assert len(read(stopped / "o.csv")) == (1 if change == "input" else 10)


def test_a_finished_file_is_replaced_only_when_asked(model, here):
    write(here / "t.txt", [{"text": "the cat"}])
    (here / "o.csv").write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        embed(model, "--file", "t.txt", "--out", "o.csv")
    assert (here / "o.csv").read_text() == "mine"
    embed(model, "--file", "t.txt", "--out", "o.csv", "--overwrite")
    assert read(here / "o.csv")[0]["text"] == "the cat"


# ---- mistakes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "There is no text"),
        (["a", "--file", "t.csv"], "not both"),
        (["a", "-", "b"], "cannot be the text"),
        (["  "], "empty"),
        (["a", "--column", "text"], "goes with --file"),
        (["a", "--encoding", "latin-1"], "goes with --file or -"),
        (["a", "--overwrite"], "goes with --out"),
        (["--file", "none.csv"], "does not exist"),
        (["--file", "t.cvs"], "Did you mean t.csv"),
        (["--file", "."], "folder"),
        (["--file", "t.bin"], "does not say by its ending"),
        (["--file", "t.csv"], "no column 'text'"),
        (["--file", "t.csv", "--column", "sentense"], "Did you mean sentence"),
        (["--file", "t.csv", "--column", "sentence", "--out", "t.csv"], "the file that is read"),
        (["--file", "t.csv", "--column", "sentence", "--out", "o.xlsx"], "ends in"),
        (["--file", "t.csv", "--column", "sentence", "--out", "no/o.csv"], "no folder"),
        (["--file", "empty.txt"], "nothing to read"),
        (["--file", "header.csv"], "nothing to read"),
        (["--file", "bad.jsonl"], "bad.jsonl:2"),
        (["--file", "number.jsonl"], "holds a int"),
        (["--file", "half.jsonl"], "half.jsonl:1 holds a lone surrogate"),
        (["--file", "latin.txt"], "not utf-8"),
    ],
)
def test_a_mistake_gets_a_sentence_and_changes_nothing(model, here, words, says):
    (here / "t.csv").write_text("sentence,label\nthe cat,1\n")
    (here / "t.bin").write_text("x")
    (here / "empty.txt").write_text("")
    (here / "header.csv").write_text("text\n")
    (here / "bad.jsonl").write_text('{"text": "a"}\n{"text": \n')
    (here / "number.jsonl").write_text('{"text": 3}\n')
    (here / "half.jsonl").write_text('{"text": "a", "note": "\\ud800"}\n')
    (here / "latin.txt").write_bytes("café".encode("latin-1"))
    before = {path: path.read_bytes() for path in here.iterdir()}
    with pytest.raises(InputError, match=says):
        embed(model, *words)
    assert {path: path.read_bytes() for path in here.iterdir()} == before


@pytest.mark.parametrize(("data", "says"), [("café".encode("latin-1"), "--encoding latin-1"), (b" \n\n", "is empty")])
def test_standard_input_that_is_no_text(model, data, says):
    with pytest.raises(InputError, match=says):
        embed(model, "-", typed=data)


def test_many_texts_are_ranked_and_few_compared(model):
    few = embed(model, *TEXTS).output
    assert few.count("1.00") >= 3
    several = [" ".join(words) for words in permutations(("the", "cat", "sat", "ran"), 3)][:12]
    many = embed(model, *several, "a dog on the sofa", "a dog on the sofa").output
    rows = [line for line in many.splitlines() if "█" in line]
    assert rows[0].split()[0] == "1.00" and rows[0].count("a dog on the sofa") == 2
    assert len(rows) == 15


def test_nearest_pairs_are_the_nearest():
    unit = torch.nn.functional.normalize(torch.randn(23, 5, generator=torch.manual_seed(0)), dim=-1)
    cosines = (unit @ unit.T).tolist()
    wanted = sorted(((cosines[a][b], a, b) for a in range(23) for b in range(a + 1, 23)), reverse=True)
    for block in (4, 23, 100):
        found = nearest_pairs(unit, 9, block)
        assert [pair[1:] for pair in found] == [pair[1:] for pair in wanted[:9]]
        assert [pair[0] for pair in found] == pytest.approx([pair[0] for pair in wanted[:9]])
