"""Training: what comes out, that it comes out the same again, and what can go wrong."""

import hashlib
import json
import subprocess
import sys
import tracemalloc

import pytest

from clearhead.errors import ClearheadError, InputError, TokenizerError
from clearhead.text import load_tokenizer, train_tokenizer
from clearhead.text import text_files as reader
from clearhead.text.builders import corpus as corpus_module
from tests.text.samples import awkward_texts

KINDS = ("bpe", "wordpiece", "unigram")


@pytest.fixture(scope="module")
def text_files(lines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    half = len(lines) // 2
    (folder / "a.txt").write_text("\n".join(lines[:half]) + "\n", encoding="utf-8")
    (folder / "b.txt").write_text("\ufeff" + "\n".join(lines[half:]), encoding="utf-8")
    return [folder / "a.txt", folder / "b.txt"]


def test_byte_level_bpe(trained):
    tok = load_tokenizer(trained["bpe"])
    assert len(tok) == 700
    assert tok.bos_token == tok.eos_token == tok.unk_token == "<|endoftext|>"
    assert tok.convert_ids_to_tokens([0, 1]) == ["<|endoftext|>", "<extra>"]
    assert tok.model_max_length == 64
    assert len(tok.encode("unbelievable attention")) < 8
    everything = "".join(map(chr, range(0x20, 0x500)))
    assert tok.decode(tok.encode(everything)) == everything


def test_wordpiece(trained):
    tok = load_tokenizer(trained["wordpiece"])
    assert tok.convert_ids_to_tokens(range(6)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<extra>"]
    assert tok.tokenize("The Transformer", add_special_tokens=True) == ["[CLS]", "the", "transformer", "[SEP]"]
    assert tok.tokenize("<extra> Ж") == ["<extra>", "[UNK]"]
    added = tok.backend.get_added_tokens_decoder().values()
    assert {token.content for token in added} == {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<extra>"}


def test_unigram(trained):
    tok = load_tokenizer(trained["unigram"])
    assert tok.convert_ids_to_tokens(range(4)) == ["<pad>", "</s>", "<unk>", "<extra>"]
    assert (tok.pad_token_id, tok.eos_token_id, tok.unk_token_id) == (0, 1, 2)
    assert tok.encode("the man", "said")[-1] == 1
    assert tok.tokenize("  The\n\tman ") == tok.tokenize("The man")
    assert tok.tokenize("ﬁ") == tok.tokenize("fi")
    assert tok.decode(tok.encode("The man said so."), skip_special_tokens=True) == "The man said so."


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_any_form_give_the_same(text_files, kind, monkeypatch):
    options = {"kind": kind, "vocab_size": 400, "show_progress": False}
    first = train_tokenizer(text_files, **options).get_vocab()
    assert train_tokenizer([str(path) for path in text_files], **options).get_vocab() == first
    assert train_tokenizer(tuple(text_files), **options).get_vocab() == first
    one = train_tokenizer(text_files[0], **options).get_vocab()
    assert train_tokenizer(str(text_files[0]), **options).get_vocab() == one
    monkeypatch.setattr(reader, "BLOCK", 1000)
    if kind != "bpe":  # merges of byte-level BPE may reach across lines, so its blocks count
        assert train_tokenizer(text_files, **options).get_vocab() == first


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterable_is_read_once(lines, kind):
    from_iterator = train_tokenizer(iter(lines), kind, 400, show_progress=False)
    from_list = train_tokenizer(lines, kind, 400, show_progress=False)
    assert from_iterator.backend.to_str() == from_list.backend.to_str()


SCRIPT = """
import sys, hashlib
from clearhead.text import train_tokenizer
for kind in ("bpe", "wordpiece", "unigram"):
    text = train_tokenizer(sys.argv[1:], kind, 450, show_progress=False).backend.to_str()
    print(hashlib.sha256(text.encode()).hexdigest())
"""


def test_training_is_the_same_in_every_process(text_files):
    """The library orders its tables by a number drawn anew in each process, so one process would prove nothing."""
    command = [sys.executable, "-c", SCRIPT, *map(str, text_files)]
    here = [
        hashlib.sha256(
            train_tokenizer(text_files, kind, 450, show_progress=False).backend.to_str().encode()
        ).hexdigest()
        for kind in KINDS
    ]
    for _ in range(2):
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == here


def test_lowercase(lines):
    for kind in KINDS:
        tok = train_tokenizer(iter(lines), kind, 400, lowercase=True, show_progress=False)
        assert tok.encode("THE MAN") == tok.encode("the man")
        cased = train_tokenizer(iter(lines), kind, 400, lowercase=False, show_progress=False)
        assert cased.encode("The") != cased.encode("the")


def test_min_frequency(lines):
    rare = train_tokenizer(iter(lines), "bpe", 2000, min_frequency=1, show_progress=False)
    common = train_tokenizer(iter(lines), "bpe", 2000, min_frequency=50, show_progress=False)
    assert set(common.get_vocab()) < set(rare.get_vocab())
    special = set(common.all_special_tokens)
    pieces = [common.decode([n]) for token, n in common.get_vocab().items() if len(token) > 1 and token not in special]
    whole, text = [piece for piece in pieces if "\ufffd" not in piece], "\n".join(lines)  # no half characters
    assert len(whole) > 50 and all(text.count(piece) >= 50 for piece in whole)


def test_special_tokens_named_twice_count_once(lines):
    tok = train_tokenizer(iter(lines), "wordpiece", 400, special_tokens=["<a>", "[PAD]", "<a>"], show_progress=False)
    assert tok.extra_special_tokens == ["<a>"]
    assert tok.convert_tokens_to_ids(["[PAD]", "<a>"]) == [0, 5]


def test_a_corpus_is_not_held_in_memory(tmp_path):
    path = tmp_path / "big.txt"
    line = "the same few words again and again\n" * 1000
    with path.open("w") as file:
        for _ in range(600):
            file.write(line)
    tracemalloc.start()
    read = sum(len(text) for text in corpus_module.Corpus(path).read(lambda _: None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == path.stat().st_size
    assert peak < read / 8


@pytest.mark.parametrize("block", [5, 64, 1000])
def test_blocks_lose_nothing_and_cut_no_character(tmp_path, monkeypatch, block):
    monkeypatch.setattr(reader, "BLOCK", block)
    monkeypatch.setattr(corpus_module, "_MAX_LINE", 50)
    texts = awkward_texts(30, seed=41)
    for number, text in enumerate(["\r\n".join(texts), "字" * 500, "word " * 100, "😀" * 40 + " a\n\n"]):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(text.encode())
        heard: list[int] = []
        assert "".join(corpus_module.Corpus(path).read(heard.append)) == text
        assert sum(heard) == path.stat().st_size


def test_progress_is_shown_only_to_a_person(text_files, capfd):
    train_tokenizer(text_files, "bpe", 300, show_progress=True)
    assert capfd.readouterr().err == ""
    with corpus_module.progress(True, 100) as advance:
        advance(100)
    out, err = capfd.readouterr()
    assert out == ""
    assert "Reading text" in err


# ---- what can be wrong


@pytest.mark.parametrize(
    ("source", "kind", "error", "words"),
    [
        ([], "bpe", InputError, "no files"),
        ("nowhere.txt", "bpe", TokenizerError, "does not exist"),
        (["nowhere.txt", "a.txt"], "bpe", TokenizerError, r"nowhere\.txt does not exist.*iter"),
        (iter([]), "bpe", TokenizerError, "no text"),
        (iter(["", " \n"]), "unigram", TokenizerError, "no text"),
        (iter(["  "]), "wordpiece", TokenizerError, "no text"),
        (iter(["fine", None]), "bpe", InputError, "Text 1 .* NoneType"),
        (b"bytes", "bpe", InputError, "bytes"),
        (7, "bpe", InputError, "int"),
        (iter(["a"]), "wordpeice", InputError, "Did you mean wordpiece"),
    ],
)
def test_mistakes_are_explained(source, kind, error, words):
    with pytest.raises(error, match=words):
        train_tokenizer(source, kind, 300, show_progress=False)


@pytest.mark.parametrize(("kind", "needed"), [("bpe", 257), ("wordpiece", None), ("unigram", None)])
def test_a_vocabulary_too_small_is_refused(lines, kind, needed):
    for size in (5, 100):
        with pytest.raises(TokenizerError, match=f"vocab_size={size} is too small") as caught:
            train_tokenizer(iter(lines), kind, size, show_progress=False)
        if needed:
            assert f"at least {needed}" in str(caught.value)


def test_the_size_asked_for_is_enough(lines):
    with pytest.raises(TokenizerError) as caught:
        train_tokenizer(iter(lines), "wordpiece", 50, show_progress=False)
    needed = int(str(caught.value).split("at least ")[1].split(",")[0])
    assert len(train_tokenizer(iter(lines), "wordpiece", needed, show_progress=False)) == needed


@pytest.mark.parametrize(
    "options",
    [
        {"vocab_size": 0},
        {"vocab_size": 300.0},
        {"min_frequency": 0},
        {"special_tokens": "<a>"},
        {"special_tokens": ["", "a"]},
        {"special_tokens": [1]},
        {"model_max_length": 0},
    ],
)
def test_impossible_options_are_explained(options):
    with pytest.raises(ClearheadError, match=next(iter(options))):
        train_tokenizer(iter(["the man"] * 10), show_progress=False, **{"vocab_size": 300} | options)


def test_a_badly_encoded_file_is_located(tmp_path, monkeypatch):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"good line\n" * 50 + "schlecht: ä\n".encode("latin-1"))
    monkeypatch.setattr(reader, "BLOCK", 64)
    with pytest.raises(TokenizerError, match=r"latin\.txt:51 is not utf-8: byte 510 of the file is 0xe4"):
        train_tokenizer(path, "bpe", 300, show_progress=False)


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(TokenizerError, match="is not a file"):
        train_tokenizer(tmp_path, "bpe", 300, show_progress=False)


def test_the_trained_configuration_says_what_it_is(trained):
    config = json.loads((trained["wordpiece"] / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["tokenizer_class"] == "BertTokenizer"
    assert config["do_lower_case"] is True
    assert config["model_max_length"] == 64
