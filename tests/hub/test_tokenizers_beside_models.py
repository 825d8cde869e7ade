"""A tokenizer in a model's folder never keeps the model from loading, and what is saved says how long texts may be."""

import json
import logging
import re

import pytest
import torch
import transformers
from tokenizers import Tokenizer as Backend

import clearhead as ch
from clearhead.errors import TokenizerError
from tests.tiny import tiny_pipeline, tiny_translator


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert") / "model"
    tiny_pipeline("bert").save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to be damaged, without the files that a damaged tokenizer.json could be replaced by."""
    for path in saved.iterdir():
        if path.name != "vocab.txt":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


class PanicError(BaseException):
    """What a panic of the wrapped library is in Python: no Exception."""


def panics(*_):
    raise PanicError("index out of bounds")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("tokenizer.json", b"{", "cannot be used"),
        ("tokenizer.json", b'{"model": {"type": "New"}}', "cannot be used"),
        ("tokenizer.json", b"\xff", "cannot be used"),
        ("tokenizer.json", None, "holds no tokenizer"),
        ("tokenizer_config.json", b"[1]", "an object is needed"),
        ("tokenizer_config.json", b"{" * 10_000, "not valid JSON"),
        ("tokenizer_config.json", b'{"padding_side": "up"}', "padding_side"),
        ("tokenizer_config.json", b'{"mask_token": {"content": 3}, "added_tokens_decoder": {}}', "mask_token"),
        ("special_tokens_map.json", b"null", "an object is needed"),
    ],
)
def test_a_damaged_tokenizer_keeps_no_model_from_loading(folder, name, content, why, caplog):
    if name == "special_tokens_map.json":
        (folder / "tokenizer_config.json").unlink()  # which would say that the older file is out of date
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="clearhead"):
        pipe = ch.load(folder)
    assert "without its tokenizer" in caplog.text
    assert re.search(why, caplog.text)
    assert pipe.model(input_ids=torch.tensor([[1, 2, 3]])).logits.isfinite().all()
    with pytest.raises(TokenizerError, match=why):
        _ = pipe.tokenizer
    with pytest.raises(TokenizerError, match=why):
        pipe.fill("the [MASK]")


@pytest.mark.parametrize(
    ("name", "content", "announced", "why"),
    [
        ("spiece.model", b"\x0a\xff\xff junk", "AlbertTokenizer", "not a SentencePiece model"),
        ("vocab.txt", b"[PAD]\n[UNK]\n", "OwnTokenizer", "OwnTokenizer, which cannot be rebuilt"),
        ("vocab.json", b"{}", "GPT2Tokenizer", "holds no tokenizer"),  # without merges.txt
        ("vocab.json", b"{}", "XLMTokenizer", "cannot be rebuilt"),
    ],
)
def test_nor_do_older_files(folder, name, content, announced, why):
    (folder / "tokenizer.json").unlink()
    (folder / name).write_bytes(content)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": announced}))
    with pytest.raises(TokenizerError, match=why):
        _ = ch.load(folder).tokenizer


@pytest.mark.parametrize("error", [panics, lambda _: 1 / 0], ids=["a panic", "any exception"])
def test_whatever_the_library_raises_is_a_reason_not_a_crash(folder, error, monkeypatch):
    monkeypatch.setattr(Backend, "from_buffer", error)
    pipe = ch.load(folder)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be used: (index out of bounds|division by zero)"):
        _ = pipe.tokenizer


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("bert", 48),
        ("roberta", 47),  # positions 0 … pad_token_id (0 here) are not for texts
        ("mpnet", 46),
        ("gpt2", 48),
        ("bart", 48),
        ("t5", None),
        ("xlnet", None),
    ],
)
def test_saved_folders_say_how_long_a_text_may_be(name, limit, tmp_path):
    pipe = tiny_pipeline(name)
    pipe.save(tmp_path / "a")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    ours = ch.load(tmp_path / "a").tokenizer
    assert pipe.tokenizer.model_max_length > 10**20  # the pipeline's own is left as it was
    if limit is None:
        assert min(ours.model_max_length, theirs.model_max_length) > 10**20
        return
    assert ours.model_max_length == theirs.model_max_length == limit
    text = "the cat " * 99
    ids = ours(text, truncation=True)["input_ids"]
    assert theirs(text, truncation=True)["input_ids"] == ids
    assert len(ids) == limit
    source = {"decoder_input_ids": torch.tensor([[1]])} if pipe.model.is_encoder_decoder else {}
    pipe.model(input_ids=torch.tensor([ids]), **source)


def test_the_shorter_limit_is_saved(tmp_path):
    pipe = tiny_pipeline("bert")
    for said, saved in ((20, 20), (512, 48)):
        pipe.codec = pipe.tokenizer.limited_to(None, None)
        pipe.codec.model_max_length = said
        pipe.save(tmp_path / str(said))
        config = json.loads((tmp_path / str(said) / "tokenizer_config.json").read_text())
        assert config["model_max_length"] == saved


def test_a_target_has_the_decoders_limit(tmp_path):
    pipe = tiny_translator()
    pipe.save(tmp_path / "a")
    tokenizer = ch.load(tmp_path / "a").tokenizer
    assert (tokenizer.model_max_length, tokenizer.target.model_max_length) == (48, 48)
