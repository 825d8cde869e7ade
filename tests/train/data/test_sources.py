"""Files of every kind become the records that a reader of the file would expect; broken ones name file and line."""

import bz2
import gzip
import json
import lzma
import sys
import types

import pytest

from clearhead.errors import InputError
from clearhead.text import text_files
from clearhead.train.data import formats
from clearhead.train.data.sources import open_source


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return str(path)


def rows(spec, **options):
    """The records without their place."""
    return [{k: v for k, v in r.items() if k != "where"} for r in open_source(spec, **options).records()]


def texts(spec, **options):
    return [record["text"] for record in rows(spec, **options)]


def fails(spec, *words, **options):
    with pytest.raises(InputError) as caught:
        list(open_source(spec, **options).records())
    for word in words:
        assert word in str(caught.value), str(caught.value)


# ---- text


def test_a_file_is_a_document_as_it_stands(tmp_path):
    one, two = write(tmp_path / "b.txt", "two\r\nlines\n"), write(tmp_path / "a.txt", "\ufeffone")
    assert texts(one) == ["two\nlines\n"]
    assert texts([one, two]) == ["two\nlines\n", "one"]
    assert texts(str(tmp_path)) == texts(str(tmp_path / "*.txt")) == ["one", "two\nlines\n"]
    assert texts("*.txt", folder=tmp_path) == ["one", "two\nlines\n"]


@pytest.mark.parametrize(
    ("documents", "text", "expected"),
    [
        ("lines", "a\n\nb c\n", [("a", 1), ("b c", 3)]),
        ("blank-lines", "\n\na\nb\n \t\n\n\n  c\n", [("a\nb", 3), ("  c", 8)]),
        ("<|endoftext|>", "a\n\nb\n<|endoftext|>\nc\n<|endoftext|>\n", [("a\n\nb", 1), ("c", 5)]),
        ("====", "a====b====", [("a", 1), ("b", 1)]),
    ],
)
def test_documents(tmp_path, documents, text, expected):
    path = write(tmp_path / "a.txt", text)
    found = list(open_source({"path": path, "documents": documents}).records())
    assert [(r["text"], r["where"]) for r in found] == [(text, f"{path}:{line}") for text, line in expected]


@pytest.mark.parametrize("documents", ["file", "blank-lines", "== END =="])
def test_long_documents_come_in_pieces_that_make_them_whole(tmp_path, monkeypatch, documents):
    monkeypatch.setattr(text_files, "BLOCK", 100)
    monkeypatch.setattr(formats, "PIECE", 120)
    between = {"file": "", "blank-lines": "\n\n", "== END ==": "\n== END ==\n"}[documents]
    wanted = ["\n".join(f"{d} line {n} ü" for n in range(40 + d)) for d in range(1 if documents == "file" else 5)]
    path = write(tmp_path / "a.txt", between.join(wanted))
    found, whole = list(open_source({"path": path, "documents": documents}).records()), []
    for n, record in enumerate(found):
        assert bool(record.get("continued")) == (n > 0 and bool(found[n - 1].get("unfinished")))
        assert record["text"].strip()
        if record.get("continued"):
            whole[-1] += record["text"]
            assert record["text"][0].isspace()  # white space stays with what follows it
        else:
            whole.append(record["text"])
        line = int(record["where"].rpartition(":")[2])
        begins = between.join(wanted).split("\n")[line - 1 + record["text"].startswith("\n")]
        assert record["text"].lstrip("\n").split("\n")[0] in begins
    assert whole == wanted
    assert len(found) > len(wanted) * 2
    assert not found[-1].get("unfinished")


def test_what_parts_documents_is_never_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "PIECE", 20)
    wanted = [f"document {n} with some words and a few more" for n in range(6)]
    path = write(tmp_path / "a.txt", " == THE END == ".join(wanted))
    for block in range(5, 60):
        monkeypatch.setattr(text_files, "BLOCK", block)
        whole = []
        for record in rows({"path": path, "documents": "== THE END =="}):
            whole.append((whole.pop() if record.get("continued") else "") + record["text"])
        assert [document.strip() for document in whole] == wanted, block


def test_text_without_a_space_is_cut_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "BLOCK", 64)
    monkeypatch.setattr(formats, "PIECE", 8)
    found = rows(write(tmp_path / "a.txt", "字" * 2000))
    assert len(found) > 2
    assert "".join(r["text"] for r in found) == "字" * 2000


def test_pieces_are_tokenised_like_the_whole(tmp_path, monkeypatch, tokenizer):
    monkeypatch.setattr(text_files, "BLOCK", 64)
    monkeypatch.setattr(formats, "PIECE", 50)
    text = "The red fox\n\n\nnear  the old oak. \n \n The shy hen near the big oak.\n" * 30
    pieces = texts(write(tmp_path / "a.txt", text))
    assert len(pieces) > 10
    ids = [i for piece in pieces for i in tokenizer.encode(piece, add_special_tokens=False)]
    assert ids == tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.open), (".bz2", bz2.open), (".xz", lzma.open)])
def test_packed_files(tmp_path, ending, pack):
    path = tmp_path / f"a.jsonl{ending}"
    with pack(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": f"näch {n}"}) + "\n" for n in range(1000))
    source, heard = open_source(str(path)), []
    assert len(list(source.records(heard.append))) == 1000
    assert sum(heard) == source.size == path.stat().st_size
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    fails(str(path), "a.jsonl" + ending, "cut off")


# ---- JSON


def test_jsonl_and_columns(tmp_path):
    path = write(
        tmp_path / "a.jsonl", '{"sentence": "a", "label": 1, "id": 7}\n\n{"sentence": "b", "label": 0, "id": 8}\n'
    )
    found = list(open_source({"path": path, "columns": {"text": "sentence"}}).records())
    assert found[0] == {"text": "a", "label": 1, "id": 7, "where": f"{path}:1"}
    assert found[1]["where"] == f"{path}:3"
    fails({"path": path, "columns": {"text": "sentense"}}, "a.jsonl:1", "sentense", "Did you mean sentence", "label")


@pytest.mark.parametrize("line", ["{'text': 1}", "[1, 2", '"text"', "[" * 100_000])
def test_broken_jsonl(tmp_path, line):
    fails(write(tmp_path / "a.jsonl", '{"text": "a"}\n' + line + "\n"), "a.jsonl:2")


def test_squad(tmp_path):
    answer = {"text": "308", "answer_start": 34}
    data = {
        "version": "1.1",
        "data": [
            {
                "title": "A",
                "paragraphs": [{"context": "c", "qas": [{"id": "x", "question": "q?", "answers": [answer]}]}],
            },
            {
                "title": "B",
                "paragraphs": [{"context": "d", "qas": [{"id": "y", "question": "r?", "is_impossible": True}]}],
            },
        ],
    }
    path = write(tmp_path / "a.json", json.dumps(data, indent=2))
    assert rows(path) == [
        {"question": "q?", "context": "c", "answers": [answer], "id": "x"},
        {"question": "r?", "context": "d", "answers": [], "id": "y", "is_impossible": True},
    ]
    assert rows({"path": path, "format": "squad"}) == rows(path)
    fails(write(tmp_path / "b.json", '{"data": [{"paragraphs": [{"qas": [{}]}]}]}'), "b.json", "question")


def test_json_lists_and_objects_of_lists(tmp_path):
    listed = write(tmp_path / "a.json", '[{"text": "a"}, {"text": "b"}]')
    assert texts(listed) == ["a", "b"]
    intents = write(tmp_path / "b.json", '{"train": [["hi", "greet"]], "val": [["bye", "leave"]]}')  # as CLINC150's
    spec = {"path": intents, "key": "val", "columns": {"text": 0, "label": 1}}
    assert rows(spec) == [{"text": "bye", "label": "leave"}]
    fails({**spec, "key": "vall"}, "Did you mean val?")
    fails(intents, "train, val")
    assert texts(write(tmp_path / "c.json", '{"text": "a"}\n{"text": "b"}\n')) == ["a", "b"]  # JSONL by another name
    fails(write(tmp_path / "d.json", "[{]"), "d.json:1")


# ---- tables


def test_csv_as_banking77_writes_it(tmp_path):
    path = write(tmp_path / "a.csv", 'text,category\r\n"Is it, say, late?\nI ""think"" so.",card\r\nYes,top_up\r\n')
    found = list(open_source({"path": path, "columns": {"label": "category"}}).records())
    assert found == [
        {"text": 'Is it, say, late?\nI "think" so.', "label": "card", "where": f"{path}:2"},
        {"text": "Yes", "label": "top_up", "where": f"{path}:4"},
    ]


def test_tsv_as_sst2_and_imdb_write_it(tmp_path):
    path = write(tmp_path / "a.tsv", '"odd" quotes , it\'s " fine\t1\nbad\t0\n')
    wanted = [{"text": '"odd" quotes , it\'s " fine', "label": "1"}, {"text": "bad", "label": "0"}]
    assert rows({"path": path, "columns": {"text": 0, "label": 1}}) == wanted
    assert rows({"path": path, "columns": ["text", "label"]}) == wanted
    assert rows({"path": path, "columns": {"label": -1}}) == [{"label": "1"}, {"label": "0"}]
    named = {"path": path, "columns": {"text": 0}, "header": True, "skip_empty": False}
    assert rows(named)[0]["text"] == "bad"
    fails({"path": path, "columns": {"text": 0, "label": 2}}, "a.tsv:1", "columns.label", "2 columns")
    trec = {"path": write(tmp_path / "TREC.all", "0 How did it go ?\n"), "format": "tsv", "separator": " "}
    for kind in ("tsv", "csv"):  # words between spaces: the last column is the rest of the line
        row = {"label": "0", "text": "How did it go ?"}
        assert rows({**trec, "format": kind, "columns": ["label", "text"]}) == [row]
    pairs = write(tmp_path / "cmn.txt", "Hi.\t嗨。\tCC-BY 2.0\n")
    spec = {"path": pairs, "format": "tsv", "columns": ["source", "target"]}
    assert rows(spec) == [{"source": "Hi.", "target": "嗨。"}]


def test_broken_tables(tmp_path):
    fails(write(tmp_path / "a.csv", "text,label\na,b\nc\n"), "a.csv:3", "1 columns", "text, label")
    fails(write(tmp_path / "b.csv", 'text,label\na,b\n"c,d\ne,f\n'), "b.csv:3", "quoted: false")
    fails(write(tmp_path / "c.csv", 'text,label\n"a"b,c\n'), "c.csv:2")
    fails(write(tmp_path / "d.csv", "text,text\na,b\n"), "d.csv:1", "twice")


def test_big_fields(tmp_path):
    long = "x" * 300_000  # the csv module's own limit is 131,072
    assert texts(write(tmp_path / "a.csv", f"text,label\n{long},1\n")) == [long]


# ---- CoNLL


def test_conll_as_wnut17_writes_it(tmp_path):
    path = write(tmp_path / "a.conll", "Empire\tB-location\nState\tI-location\n#\tO\n\t\n\nESB\tB-location\n.\tO")
    found = list(open_source(path).records())
    assert found == [
        {"tokens": ["Empire", "State", "#"], "tags": ["B-location", "I-location", "O"], "where": f"{path}:1"},
        {"tokens": ["ESB", "."], "tags": ["B-location", "O"], "where": f"{path}:6"},
    ]


def test_conll_as_weibo_and_conll2003_write_it(tmp_path):
    path = write(tmp_path / "weibo.train", "科0\tO\n技1\tB-PER.NOM\n\n")
    assert rows({"path": path, "format": "conll", "strip": "[0-9]$"}) == [
        {"tokens": ["科", "技"], "tags": ["O", "B-PER.NOM"]}
    ]
    path = write(tmp_path / "eng.conll", "-DOCSTART- -X- -X- O\n\n# a comment\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n")
    assert rows({"path": path, "columns": {"tokens": 0, "tags": 1, "ner": -1}}) == [
        {"tokens": ["EU", "rejects"], "tags": ["NNP", "VBZ"], "ner": ["B-ORG", "O"]}
    ]
    fails(write(tmp_path / "b.conll", "a\tO\nb\n"), "b.conll:2", "1 columns", "2 are expected")
    fails(write(tmp_path / "c.conll", "alone\n"), "c.conll:1")
    fails({"path": path, "strip": "("}, "regular expression")


# ---- pairs of files


def test_parallel(tmp_path):
    english, german = write(tmp_path / "t.en", "a\n\nb\rc\nd\n"), write(tmp_path / "t.de", "A\nB\nC\nD")
    spec = {"source": english, "target": german}
    assert rows(spec) == [{"source": s, "target": t} for s, t in (("a", "A"), ("b\rc", "C"), ("d", "D"))]
    assert len(rows({**spec, "skip_empty": False})) == 4
    assert rows({"path": [english, german], "format": "parallel"}) == rows(spec)
    write(tmp_path / "t.de", "A\nB\nC\nD\nE\nF\n")
    fails(spec, "t.en has 4 lines", "t.de has 6")
    write(tmp_path / "t.de", "A\nB\n")
    fails(spec, "t.en has 4 lines", "t.de has 2")


# ---- what can be wrong


def test_bad_bytes_are_placed(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    for block in range(1, 25):
        monkeypatch.setattr(text_files, "BLOCK", block)
        path.write_bytes("größe\nüber\nmehr".encode() + b"\xff" + b" text\n")
        fails(str(path), "a.txt:3", "byte 18", "0xff", "encoding")
        path.write_bytes("größe\nüber\nme".encode() + b"\xe2\x82" + b" text\n")  # a letter of three bytes, two there
        fails(str(path), "a.txt:3", "byte 16", "0xe2")
    path.write_bytes(b"caf\xe9\n")
    assert texts({"path": str(path), "encoding": "latin-1"}) == ["café\n"]
    fails({"path": str(path), "encoding": "utf-9"}, "utf-9")
    path.write_bytes("größe".encode()[:3])  # ends within a letter
    fails(str(path), "a.txt:1")
    path.write_bytes("größe\r\nja\n".encode("utf-16"))
    assert texts({"path": str(path), "encoding": "utf-16", "documents": "lines"}) == ["größe", "ja"]


def test_files_that_are_not_there(tmp_path):
    write(tmp_path / "train.txt", "a")
    fails(str(tmp_path / "trian.txt"), "does not exist", "Did you mean train.txt")
    fails(str(tmp_path / "*.csv"), "matches")
    fails([], "empty")
    (tmp_path / "sub").mkdir()
    fails(str(tmp_path / "sub"), "holds no file")
    write(tmp_path / "b.csv", "text\na\n")
    fails(str(tmp_path), "several kinds")
    fails(write(tmp_path / "c.dat", "a"), "format:")


def test_empty_data(tmp_path):
    fails(write(tmp_path / "a.txt", ""), "a.txt", "empty")
    fails(write(tmp_path / "b.jsonl", '{"text": " "}\n'), "all of its 1 records are empty")
    fails(write(tmp_path / "c.csv", "text,label\n"), "c.csv", "empty")


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"path": "a", "colums": {}}, "Did you mean columns"),
        ({"path": "a", "format": "cvs"}, "csv"),
        ({"path": "a", "source": "b", "target": "c"}, "one way"),
        ({"source": "b"}, "both"),
        ({"path": "a", "part": "test", "validation_fraction": 0.1}, "one of train, valid"),
        ({"path": "a", "part": "train"}, "together"),
        ({"path": "a", "limit": 0}, "limit"),
        ({"path": "a", "limit": "ten"}, "a whole number"),
        ({"path": "a", "limit": True}, "a whole number"),
        ({"path": "a", "header": "no"}, "true or false"),
        ({"path": "a", "separator": 9}, "text"),
        ({"path": "a", "validation_fraction": "1%", "part": "train"}, "a number"),
        ({"path": "a", "columns": "text"}, "columns"),
        ({"path": "a", "documents": ""}, "documents"),
    ],
)
def test_specs_that_make_no_sense(spec, word):
    with pytest.raises(InputError, match=word):
        open_source(spec)


# ---- parts, limits, fingerprints


def test_limit_and_defaults(tmp_path):
    path = write(tmp_path / "a.txt", "a\n\nb\nc\n")
    assert texts({"path": path, "limit": 2}, documents="lines", columns=None) == ["a", "b"]
    assert texts({"path": path, "documents": "lines"}, documents="file") == ["a", "b", "c"]


def test_parts_of_records_are_the_same_every_time_and_make_the_whole(tmp_path):
    path = write(tmp_path / "a.txt", "".join(f"{n}\n" for n in range(5000)))
    spec = {"path": path, "documents": "lines", "validation_fraction": 0.1}
    train, valid = (texts({**spec, "part": part}) for part in ("train", "valid"))
    assert 400 < len(valid) < 600
    assert sorted(train + valid, key=int) == [str(n) for n in range(5000)]
    assert valid == texts({**spec, "part": "valid"})
    assert valid != [str(n) for n in range(4500, 5000)]
    fails(
        {
            "path": write(tmp_path / "b.txt", "a\nb\n"),
            "documents": "lines",
            "validation_fraction": 0.001,
            "part": "valid",
        },
        "validation_fraction",
    )


@pytest.mark.parametrize("packed", [False, True])
def test_of_a_single_text_the_end_is_held_out(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(text_files, "BLOCK", 50)
    text = "".join(f"line {n} ü\n" for n in range(200))
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    spec = {"path": str(path), "validation_fraction": 0.2}
    train, valid = ("".join(texts({**spec, "part": part})) for part in ("train", "valid"))
    assert train + valid == text
    assert 0.15 < len(valid) / len(text) < 0.2
    assert train.endswith("\n")
    (first, *_) = open_source({**spec, "part": "valid"}).records()
    assert first["where"] == f"{path}:{train.count(chr(10)) + 1}"
    one_line = write(tmp_path / "b.txt", "x" * 1000)
    assert [
        len(texts({"path": one_line, "validation_fraction": 0.2, "part": part})[0]) for part in ("train", "valid")
    ] == [
        800,
        200,
    ]


def test_fingerprints(tmp_path):
    path = write(tmp_path / "a.txt", "a\nb\n")
    first = open_source(path).fingerprint()
    assert first == open_source(write(tmp_path / "other.txt", "a\nb\n")).fingerprint()
    others = [
        open_source({"path": path, "documents": "lines"}).fingerprint(),
        open_source({"path": path, "limit": 1}).fingerprint(),
        open_source([path, path]).fingerprint(),
        open_source(write(tmp_path / "c.txt", "a\nc\n")).fingerprint(),
    ]
    assert len({first, *others}) == 5


# ---- public data sets


def test_public_data_sets(monkeypatch):
    asked = []

    def load_dataset(name, config, **options):
        asked.append((name, config, options))
        if name == "nothing":
            raise FileNotFoundError("no such data set")
        return [{"sentence": "a", "answers": {"text": ["b"], "answer_start": [3]}}, {"sentence": "c", "answers": {}}]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    spec = {"dataset": "glue", "config": "sst2", "split": "validation", "columns": {"text": "sentence"}}
    source = open_source(spec)
    assert next(source.records()) == {
        "text": "a",
        "answers": [{"text": "b", "answer_start": 3}],
        "where": "hf:glue/sst2[validation]:1",
    }
    assert asked == [("glue", "sst2", {"split": "validation", "revision": None, "streaming": True})]
    assert source.size is None
    one, two = (open_source({**spec, "revision": name}).fingerprint() for name in ("one", "two"))
    assert one != two
    fails("hf:nothing", "hf:nothing[train]", "no such data set")
    monkeypatch.setitem(sys.modules, "datasets", None)
    fails("hf:glue", "pip install datasets")


@pytest.mark.parametrize(
    ("name", "option"), [("a.csv", {"documents": "lines"}), ("a.jsonl", {"separator": ";"}), ("a.txt", {"key": "data"})]
)
def test_an_option_of_another_format_is_refused(tmp_path, name, option):
    """What a source says of itself; what a recipe says for all of its sources may be meant for others."""
    path = tmp_path / name
    path.write_text('{"text": "a"}\n' if name.endswith("jsonl") else "text\na\n")
    with pytest.raises(InputError, match=f"{next(iter(option))} is for data in the format"):
        open_source({"path": str(path), **option})
    assert len(list(open_source(str(path), **option).records())) >= 1
