"""A saved tokenizer opens the same, here and in `transformers`, and loses nothing it was opened with."""

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import AddedToken

from clearhead.errors import TokenizerError
from clearhead.text import load_tokenizer, train_tokenizer
from tests.text.compare import both, same_encoding, same_everything
from tests.text.samples import awkward_texts


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_saved_it_opens_the_same_here_and_in_transformers(folder, tmp_path):
    first = load_tokenizer(folder)
    written = first.save(tmp_path / "new" / "folder")
    assert all(path.is_file() for path in written)
    again, theirs = both(tmp_path / "new" / "folder")
    texts = awkward_texts(120, seed=31)
    same_everything(again, theirs, texts)
    for text in texts:
        assert first(text, return_offsets_mapping=True) == again(text, return_offsets_mapping=True)
    same_encoding(again, theirs, texts, texts[::-1], padding=True, truncation=True, max_length=20)
    assert first.all_special_tokens == again.all_special_tokens
    assert first.backend.to_str() == again.backend.to_str()


def test_changes_are_saved(folder, tmp_path):
    tok = load_tokenizer(folder)
    tok.add_special_tokens({"pad_token": "<blank>", "additional_special_tokens": ["<u1>", "<u2>"]})
    tok.add_tokens([AddedToken("<l>", lstrip=True), "Newword"])
    tok.padding_side, tok.truncation_side, tok.model_max_length = "left", "left", 33
    tok.clean_up_tokenization_spaces = True
    tok.save(tmp_path)
    again, theirs = both(tmp_path)
    for other in (again, theirs):
        assert other.pad_token == "<blank>"
        assert other.padding_side == other.truncation_side == "left"
        assert other.model_max_length == 33
        assert other.clean_up_tokenization_spaces is True
        assert sorted(other.all_special_tokens) == sorted(tok.all_special_tokens)
        assert len(other) == len(tok)
    same_everything(again, theirs, ["a <u1>b <l> Newword newword", "x , y <blank>", *awkward_texts(20, seed=32)])
    same_encoding(again, theirs, ["one", "two three four"], padding=True)


def test_unsetting_a_special_token_is_saved(trained, tmp_path):
    tok = load_tokenizer(trained["wordpiece"])
    tok.mask_token = None
    tok.save(tmp_path)
    assert load_tokenizer(tmp_path).mask_token is None
    assert both(tmp_path)[1].mask_token is None


def test_settings_not_understood_here_are_kept(minilm, tmp_path):
    shutil.copytree(minilm, tmp_path / "a", ignore=shutil.ignore_patterns("*.safetensors"))
    odd = {
        "chat_template": "{{ messages }}",
        "sp_model_kwargs": {"alpha": [0.5, None]},
        "never_split": ["x"],
        "auto_map": {"AutoTokenizer": ["a.B", None]},
        "extra_special_tokens": {"image_token": "<img>"},
        "name": "Ünïcode",
    }
    before = read(tmp_path / "a" / "tokenizer_config.json") | odd
    (tmp_path / "a" / "tokenizer_config.json").write_text(json.dumps(before), encoding="utf-8")
    load_tokenizer(tmp_path / "a").save(tmp_path / "b")
    after = read(tmp_path / "b" / "tokenizer_config.json")
    assert {key: after[key] for key in before} == before


def test_the_published_padding_and_truncation_are_kept(minilm, tmp_path):
    load_tokenizer(minilm).save(tmp_path)
    before, after = read(minilm / "tokenizer.json"), read(tmp_path / "tokenizer.json")
    assert after["padding"] == before["padding"]
    assert after["truncation"]["max_length"] == before["truncation"]["max_length"] == 128
    assert after["model"] == before["model"]


def test_the_older_files_say_the_same(trained, tmp_path):
    for kind, names in (("wordpiece", ["vocab.txt"]), ("bpe", ["vocab.json", "merges.txt"])):
        folder = tmp_path / kind
        folder.mkdir()
        for name in names:
            shutil.copy(trained[kind] / name, folder)
        older, newer = load_tokenizer(folder), load_tokenizer(trained[kind])
        assert older.get_vocab() == newer.get_vocab()
        for text in awkward_texts(40, seed=33):
            if "<extra>" not in text:
                assert older.encode(text) == newer.encode(text)
    assert not (trained["unigram"] / "vocab.txt").exists()


def test_a_lowercasing_bpe_opens_in_transformers(lines, tmp_path):
    train_tokenizer(iter(lines), "bpe", 400, lowercase=True, show_progress=False).save(tmp_path)
    ours, theirs = both(tmp_path)
    assert ours.encode("THE Man") == ours.encode("the man")
    same_everything(ours, theirs, awkward_texts(40, seed=34))


def test_a_cased_wordpiece_opens_in_transformers(lines, tmp_path):
    train_tokenizer(iter(lines), "wordpiece", 400, lowercase=False, show_progress=False).save(tmp_path)
    ours, theirs = both(tmp_path)
    assert ours.encode("The") != ours.encode("the")
    same_everything(ours, theirs, awkward_texts(40, seed=35))


def test_leftover_files_do_not_confuse_a_reader(trained, tmp_path):
    (tmp_path / "added_tokens.json").write_text('{"old": 9000}')
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "old"}')
    load_tokenizer(trained["bpe"]).save(tmp_path)
    again, theirs = both(tmp_path)
    assert len(again) == len(theirs) == 700
    assert "old" not in again.get_vocab()


def test_an_interrupted_save_leaves_the_old_file(trained, tmp_path, monkeypatch):
    tok = load_tokenizer(trained["bpe"])
    tok.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    tok.add_tokens(["another"])
    with pytest.raises(TokenizerError, match="No space left"):
        tok.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_is_not_a_folder(trained, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(TokenizerError, match="folder"):
        load_tokenizer(trained["bpe"]).save(tmp_path / "file")
