"""Tokenised once and found again; long texts whole; nothing half-written; memory that does not grow with the data."""

import sys
import tracemalloc

import numpy as np
import pytest

from clearhead.errors import InputError
from clearhead.text import text_files
from clearhead.train.data import Blocks, formats, open_source, prepare
from clearhead.train.data import table as table_module
from tests.train.data.conftest import SENTENCES, Documents

prepare_module = sys.modules[prepare.__module__]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(SENTENCES))
    return open_source({"path": str(path), "documents": "lines"})


def ids_of(table):
    return [example["input_ids"].tolist() for example in table]


def test_the_second_time_nothing_is_encoded(tmp_path, source, documents, tokenizer):
    table = prepare(source, documents, tmp_path / "cache")
    assert ids_of(table) == [
        [*tokenizer.encode(s, add_special_tokens=False), tokenizer.eos_token_id] for s in SENTENCES
    ]
    assert Documents.calls == len(SENTENCES)
    again = prepare(source, documents, tmp_path / "cache")
    assert Documents.calls == len(SENTENCES)
    assert ids_of(again) == ids_of(table)
    assert again.fingerprint == table.fingerprint


def test_what_the_examples_depend_on_makes_them_anew(tmp_path, source, documents, tokenizer):
    import copy

    other = copy.deepcopy(tokenizer)
    other.add_tokens(["fox"])
    renamed = copy.deepcopy(tokenizer)
    renamed.pad_token = renamed.eos_token
    cases = [documents, Documents(tokenizer, 17), Documents(other, 16), Documents(renamed, 16)]
    prints = {prepare(source, case, tmp_path / "cache").fingerprint for case in cases}
    (tmp_path / "a.txt").write_text("The end.")
    last = prepare(source, documents, tmp_path / "cache")
    assert len({*prints, last.fingerprint}) == 5
    assert ids_of(last) == [[*tokenizer.encode("The end.", add_special_tokens=False), tokenizer.eos_token_id]]
    assert prepare(source, documents, tmp_path / "cache").fingerprint == last.fingerprint


@pytest.mark.parametrize("batched", [False, True])
def test_a_long_text_is_one_row(tmp_path, monkeypatch, tokenizer, documents, batched):
    monkeypatch.setattr(text_files, "BLOCK", 200)
    monkeypatch.setattr(formats, "PIECE", 150)
    monkeypatch.setattr(prepare_module, "TOGETHER", 500)
    text = "\n".join(SENTENCES * 10) + "\n<|endoftext|>\nThe end."
    (tmp_path / "b.txt").write_text(text)
    source = open_source({"path": str(tmp_path / "b.txt"), "documents": "<|endoftext|>"})
    if batched:
        documents.encode_batch = lambda records: [list(documents.encode(record)) for record in records]
    table = prepare(source, documents, tmp_path / "cache")
    wanted = [tokenizer.encode(part, add_special_tokens=False) for part in ("\n".join(SENTENCES * 10), "The end.")]
    assert ids_of(table) == [[*ids, tokenizer.eos_token_id] for ids in wanted]
    assert Documents.calls > 3


def test_workers_make_the_same(tmp_path, monkeypatch, source, documents):
    monkeypatch.setattr(prepare_module, "TOGETHER", 100)
    one = prepare(source, documents, tmp_path / "one")
    two = prepare(source, documents, tmp_path / "two", workers=1)
    assert ids_of(one) == ids_of(two)


@pytest.mark.parametrize("how", ["emptied", "a bit"])
def test_a_damaged_table_is_made_anew(tmp_path, source, documents, how):
    folder = prepare(source, documents, tmp_path / "cache").folder
    wanted = ids_of(prepare(source, documents, tmp_path / "cache"))
    path = folder / "input_ids.00000.bin"
    before = path.stat().st_ino
    assert prepare(source, documents, tmp_path / "cache").folder == folder and path.stat().st_ino == before  # as it was
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(b"" if how == "emptied" else data)
    table = prepare(source, documents, tmp_path / "cache")
    assert len(table) == len(SENTENCES) and ids_of(table) == wanted
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [folder.name]


def test_stopped_halfway_nothing_is_left(tmp_path, source, documents, monkeypatch):
    def encode(record):
        if "shy" in record["text"]:
            raise KeyboardInterrupt
        yield {"input_ids": np.array([1])}

    monkeypatch.setattr(documents, "encode", encode)
    with pytest.raises(KeyboardInterrupt):
        prepare(source, documents, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_a_killed_process_left_is_swept_up(tmp_path, source, documents, monkeypatch):
    for name in (".old.part", ".new.part"):
        (tmp_path / "cache" / name).mkdir(parents=True)
    import os

    os.utime(tmp_path / "cache" / ".old.part", (0, 0))
    prepare(source, documents, tmp_path / "cache")
    left = [path.name for path in (tmp_path / "cache").iterdir()]
    assert ".new.part" in left
    assert ".old.part" not in left


def test_two_at_once(tmp_path, source, documents, monkeypatch):
    """The second finishes while the first is at work."""
    encode, once = documents.encode, []

    def slow(record):
        if not once:
            once.append(True)
            monkeypatch.setattr(documents, "encode", encode)
            prepare(source, documents, tmp_path / "cache")
        return encode(record)

    monkeypatch.setattr(documents, "encode", slow)
    table = prepare(source, documents, tmp_path / "cache")
    assert ids_of(table) == [example["input_ids"].tolist() for s in SENTENCES for example in encode({"text": s})]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_missing_columns_and_no_examples(tmp_path, source, documents, monkeypatch):
    (tmp_path / "a.csv").write_text("sentence,label\na,b\n")
    with pytest.raises(InputError, match=r"a\.csv:2 has no column 'text'"):
        prepare(open_source(str(tmp_path / "a.csv")), documents, tmp_path / "cache")
    monkeypatch.setattr(documents, "encode", lambda record: iter(()))
    with pytest.raises(InputError, match="made no example"):
        prepare(source, documents, tmp_path / "cache")


def test_progress(tmp_path, source, documents, capsys, monkeypatch):
    prepare(source, documents, tmp_path / "one")
    assert capsys.readouterr().err == ""
    prepare(source, documents, tmp_path / "two", show_progress=True)
    assert "Preparing data" in capsys.readouterr().err
    monkeypatch.setattr(prepare_module, "PATIENCE", -1.0)
    prepare(source, documents, tmp_path / "three")
    assert capsys.readouterr().err.count("\n") == 1
    prepare(source, documents, tmp_path / "four", show_progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    prepare(source, documents, tmp_path / "five")
    assert "examples" in capsys.readouterr().err


def test_memory_does_not_grow_with_the_data(tmp_path, monkeypatch, documents):
    """A single text of 60 MB in one line after the other, read, 'tokenised' and cut into blocks in a few MB."""
    monkeypatch.setattr(table_module, "SHARD", 4 * 2**20)
    path = tmp_path / "large.txt"
    line = b"a line of text that is not very long, but there are many of them.\n"
    with path.open("wb") as file:
        for _ in range(60):
            file.write(line * (2**20 // len(line)))

    def encode(record):  # a stand-in that is quick: a token for each of the letters
        yield {"input_ids": np.frombuffer(record["text"].encode(), np.uint8)}

    monkeypatch.setattr(documents, "encode", encode)
    tracemalloc.start()
    table = prepare(open_source(str(path)), documents, tmp_path / "cache")
    blocks = Blocks(table, 1024)
    for n in range(0, len(blocks), 1000):
        assert bytes(blocks[n]["input_ids"].astype(np.uint8)) == (line * 20)[n * 1024 % len(line) :][:1024]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert blocks.tokens == path.stat().st_size
    assert peak < 40e6, f"{peak / 1e6:.0f} MB"


def test_records_that_give_no_example_are_counted(tmp_path, tokenizer, caplog):
    """A pair that is too long is dropped; how many were is said."""
    from clearhead.train.objectives.seq2seq import Seq2Seq

    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    path = tmp_path / "pairs.tsv"
    path.write_text("source\ttarget\n" + "a cat\ta dog\n" * 3 + "a cat " * 50 + "\ta dog\n")
    with caplog.at_level("WARNING", logger="clearhead"):
        table = prepare(open_source(str(path)), Seq2Seq(tokenizer, 16), tmp_path / "cache")
    assert len(table) == 3
    assert "1 of 4 records were left out" in caplog.text
