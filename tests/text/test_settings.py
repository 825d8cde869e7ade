"""Settings of a tokenizer: applied as in `transformers`, or named in a warning; never ignored in silence."""

import json
import logging
import shutil

import pytest
import transformers

from clearhead.text import load_tokenizer
from tests.text.compare import both, same_encoding
from tests.text.samples import awkward_texts
from tests.text.test_sentencepiece import train

TEXTS = ["The Café [x] unbelievable 漢字", "``quoted'' ÀÉ", *awkward_texts(20, seed=31, accents=False, runs=False)]


def write(folder, name, **content):
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def edit(folder, **settings):
    path = folder / "tokenizer_config.json"
    write(folder, path.name, **(json.loads(path.read_text(encoding="utf-8")) | settings))


@pytest.fixture
def bert(trained, tmp_path):
    """vocab.txt in a BERT's folder, or tokenizer.json with its settings."""

    def make(*names):
        for name in names:
            shutil.copy(trained["wordpiece"] / name, tmp_path)
        if "tokenizer_config.json" not in names:
            write(tmp_path, "tokenizer_config.json")
        write(tmp_path, "config.json", model_type="bert")
        return tmp_path

    return make


@pytest.mark.parametrize("files", [("vocab.txt",), ("tokenizer.json", "tokenizer_config.json")], ids=["older", "json"])
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"never_split": ["[x]"]}, "never_split = ['[x]']"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize = False"),
        ({"never_split": ["a"], "do_basic_tokenize": False}, "never_split = ['a'], do_basic_tokenize = False"),
        ({"auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}}, "auto_map"),
        ({"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs"),
        ({"word_tokenizer_type": "mecab"}, "word_tokenizer_type = 'mecab'"),
        ({"never_split": None, "do_basic_tokenize": True, "sp_model_kwargs": {}, "errors": "replace"}, None),
        ({"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}, None),
        (
            {"name_or_path": "x", "special_tokens_map_file": "/a/b", "use_fast": True, "max_length": 9},
            None,
        ),
        ({"image_token": "<image>", "chat_template": "{{ x }}", "model_max_length": 512, "mask_token": "[MASK]"}, None),
    ],
    ids=str,
)
def test_what_is_not_applied_is_named(bert, files, settings, named, caplog):
    folder = bert(*files)
    edit(folder, **settings)
    if "auto_map" in settings:  # code of its own, which is never run
        load_tokenizer(folder)
    else:
        ours, theirs = both(folder)
        for text in TEXTS:
            same_encoding(ours, theirs, text)
    warnings = [record.getMessage() for record in caplog.records if record.name == "clearhead"]
    assert len(warnings) == (named is not None)
    assert named is None or f"tokenizer_config.json sets {named}" in warnings[0]


def test_case_is_named_where_the_kind_of_tokenizer_knows_none(trained, tmp_path, caplog):
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(trained["bpe"] / name, tmp_path)
    write(tmp_path, "tokenizer_config.json", do_lower_case=True, add_bos_token=True)
    with caplog.at_level(logging.WARNING, logger="clearhead"):
        tok = load_tokenizer(tmp_path)
    assert tok.encode("The") != tok.encode("the")
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "tokenizer_config.json sets do_lower_case = True"
    ]


@pytest.fixture(scope="module")
def pieces(lines):
    options = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": "[CLS],[SEP],[MASK]"}
    return train(lines, model_type="unigram", vocab_size=400, **options)


@pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": False},
        {"keep_accents": True},
        {"do_lower_case": False, "keep_accents": True},
        {"do_lower_case": True, "keep_accents": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("made_with", [{}, {"do_lower_case": False, "keep_accents": True}], ids=["plain", "cased"])
def test_alberts_settings_overrule_tokenizer_json(pieces, tmp_path, settings, made_with):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "spiece.model").write_bytes(pieces)
    write(tmp_path / "a", "tokenizer_config.json", tokenizer_class="AlbertTokenizer", **made_with)
    transformers.AlbertTokenizer.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b")
    edit(tmp_path / "b", **settings)
    ours, theirs = load_tokenizer(tmp_path / "b"), transformers.AlbertTokenizer.from_pretrained(tmp_path / "b")
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text), ascii(text)


# ---- special and added tokens


def test_extra_tokens_of_the_settings_go_before_those_of_the_older_file(bert):
    folder = bert("vocab.txt")
    edit(folder, additional_special_tokens=["<a>"])
    write(folder, "special_tokens_map.json", additional_special_tokens=["<a>", "<b>"])
    ours, theirs = both(folder)
    assert len(ours) == len(theirs)
    same_encoding(ours, theirs, "the <a> <b>")


def test_two_added_tokens_with_one_id(bert, caplog):
    folder = bert("vocab.txt")
    write(folder, "added_tokens.json", **{"<a>": 500, "<b>": 501, "<c>": 501})
    write(folder, "special_tokens_map.json", additional_special_tokens=["<a>", "<b>", "<c>"])
    ours, theirs = both(folder)
    same_encoding(ours, theirs, "<a> x <b> y <c>")
    assert ours.convert_tokens_to_ids(["<a>", "<c>", "<b>"]) == [500, 501, 502]
    assert "gives the id 501 to two tokens" in caplog.text


@pytest.mark.parametrize("where", ["added_tokens.json", "tokenizer_config.json"])
def test_the_unknown_token_may_be_an_added_one(bert, where):
    """The wrapped library looks for it in the vocabulary only, so `transformers` fails at the first unknown word."""
    folder = bert("vocab.txt")
    words = [w for w in (folder / "vocab.txt").read_text(encoding="utf-8").splitlines() if w != "[UNK]"]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    added = {"Zebra": len(words), "[UNK]": len(words) + 1, "<after>": len(words) + 2}
    if where == "added_tokens.json":
        write(folder, where, **added)
    else:
        decoder = {index: {"content": token, "special": token == "[UNK]"} for token, index in added.items()}
        edit(folder, added_tokens_decoder=decoder)
    ours, theirs = both(folder)
    assert (ours.unk_token_id, len(ours)) == (theirs.unk_token_id, len(theirs)) == (len(words) + 1, len(words) + 3)
    for text in ("the man", "the Zebra [UNK] <after>"):
        same_encoding(ours, theirs, text)
    assert ours.encode("the ☃ man")[2] == len(words) + 1
    ours.save(folder / "saved")
    assert load_tokenizer(folder / "saved").encode("the ☃ man") == ours.encode("the ☃ man")


def test_the_unknown_token_may_be_an_added_one_of_tokenizer_json(bert):
    folder = bert("tokenizer.json")
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = data["model"]["vocab"]
    last = max(vocab, key=vocab.get)
    index, vocab[last] = vocab[last], vocab.pop("[UNK]")  # now it follows the vocabulary
    next(token for token in data["added_tokens"] if token["content"] == "[UNK]")["id"] = index
    data["added_tokens"].sort(key=lambda token: token["id"])
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    ours = load_tokenizer(folder)
    assert (ours.encode("☃")[1], ours.unk_token_id) == (index, index)
    same_encoding(*both(folder), "the man")


# ---- which files


@pytest.mark.parametrize("model_type", ["albert", "xlnet", "t5", "roberta", "gpt2", "xlm-roberta", "marian"])
@pytest.mark.parametrize("said", [{}, {"tokenizer_class": "BertTokenizer"}], ids=["no class", "class"])
def test_vocab_txt_is_wordpiece_in_any_family(bert, model_type, said):
    folder = bert("vocab.txt")
    write(folder, "config.json", model_type=model_type, **said)
    ours, theirs = load_tokenizer(folder), transformers.BertTokenizer.from_pretrained(folder)
    for text in TEXTS:
        same_encoding(ours, theirs, text, return_offsets_mapping=True)
    assert (ours.padding_side, ours.special_tokens_map) == (theirs.padding_side, theirs.special_tokens_map)


def test_the_familys_own_files_go_before_vocab_txt(bert, pieces):
    folder = bert("vocab.txt")
    write(folder, "config.json", model_type="albert")
    wordpiece = load_tokenizer(folder).tokenize("the man")
    (folder / "spiece.model").write_bytes(pieces)
    assert load_tokenizer(folder).tokenize("the man") == ["▁the", "▁man"] != wordpiece


def test_a_class_that_vocab_txt_contradicts_is_named(bert, caplog):
    folder = bert("vocab.txt")
    edit(folder, tokenizer_class="AlbertTokenizer")
    assert load_tokenizer(folder).unk_token == "[UNK]"
    assert "though the files announce AlbertTokenizer" in caplog.text
