"""Opening tokenizer.json with the files around it, and what happens when files are missing or damaged."""

import json
import shutil

import pytest
import transformers

from clearhead import files
from clearhead.errors import ClearheadError, TokenizerError
from clearhead.text import load_tokenizer
from tests.text.compare import both, same_everything
from tests.text.samples import awkward_texts

TEXTS = ["Hello World, CAFÉ Straße!", " two  spaces ", "漢字 mixed 汉字", "a <extra> b"]


@pytest.fixture
def copy(tmp_path):
    """A copy of a folder in which the named files are changed: an object is merged into the file, None removes it."""

    def make(folder, **changes):
        shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("*.safetensors"))
        for name, change in changes.items():
            path = tmp_path / "copy" / f"{name}.json"
            if change is None:
                path.unlink()
            else:
                old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
                merged = {key: value for key, value in (old | change).items() if value != "REMOVED"}
                path.write_text(json.dumps(merged), encoding="utf-8")
        return tmp_path / "copy"

    return make


@pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
        {"strip_accents": False},
        {"tokenize_chinese_chars": False},
    ],
)
def test_bert_settings_overrule_tokenizer_json_as_in_transformers(minilm, copy, settings):
    ours, theirs = both(copy(minilm, tokenizer_config=settings))
    plain = load_tokenizer(minilm)
    assert any(ours(text) != plain(text) for text in TEXTS)
    same_everything(ours, theirs, TEXTS + awkward_texts(60, seed=2))


@pytest.mark.parametrize(
    ("kind", "part", "key"), [("wordpiece", "normalizer", "lowercase"), ("bpe", "pre_tokenizer", "add_prefix_space")]
)
def test_where_settings_are_silent_the_class_overrules_tokenizer_json(trained, copy, kind, part, key):
    """A model that was trained there with such a folder has seen these ids."""
    folder = copy(trained[kind], tokenizer_config={"do_lower_case": "REMOVED", "add_prefix_space": "REMOVED"})
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    data[part][key] = not data[part][key]
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    ours, theirs = both(folder)
    assert (ours.encode("The") == ours.encode("the")) == (kind == "wordpiece")
    same_everything(ours, theirs, TEXTS)
    (folder / "tokenizer_config.json").unlink()  # no class is announced: the file alone says how texts are cut
    alone = load_tokenizer(folder)
    assert alone.encode("the") != alone.encode({"wordpiece": "The", "bpe": "man"}[kind])
    assert (alone.tokenize("the")[0][0] == "Ġ") == (kind == "bpe")


@pytest.mark.parametrize("prefix", [True, False])
def test_add_prefix_space_overrules_tokenizer_json_as_in_transformers(trained, copy, prefix):
    ours, theirs = both(copy(trained["bpe"], tokenizer_config={"add_prefix_space": prefix}))
    assert (ours.tokenize("the") == ours.tokenize(" the")) == prefix
    same_everything(ours, theirs, TEXTS + awkward_texts(60, seed=3))


@pytest.mark.parametrize("prefix", [True, False])
def test_add_prefix_space_reaches_robertas_offsets_too(trained, tmp_path, prefix):
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(trained["bpe"] / name, tmp_path)
    tokens = {"cls_token": "<|endoftext|>", "sep_token": "<|endoftext|>", "tokenizer_class": "RobertaTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokens))
    load_tokenizer(tmp_path).save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"add_prefix_space": prefix}))
    ours, theirs = both(tmp_path)
    assert type(theirs).__name__ == "RobertaTokenizer"
    same_everything(ours, theirs, TEXTS + awkward_texts(60, seed=5))


@pytest.mark.parametrize(
    "settings",
    [
        {"padding_side": "left", "truncation_side": "left", "model_max_length": 17},
        {"model_max_length": 1000000000000000019884624838656},
        {"clean_up_tokenization_spaces": True},
        {"model_input_names": ["input_ids"]},
        {"additional_special_tokens": ["<a1>", "the"]},
        {"extra_special_tokens": ["<a1>", "<a2>"]},
        {"extra_special_tokens": {"image_token": "<img>"}},
        {"image_token": "<img>"},
        {"pad_token": "<new pad>"},
        {"eos_token": {"__type": "AddedToken", "content": "<end>", "lstrip": True}},
        {"split_special_tokens": True},
        {"added_tokens_decoder": "REMOVED"},
    ],
)
def test_other_settings_agree_with_transformers(folder, copy, settings):
    changed = copy(folder, tokenizer_config=settings, special_tokens_map=None)
    ours, theirs = both(changed)
    assert (ours.padding_side, ours.truncation_side) == (theirs.padding_side, theirs.truncation_side)
    assert ours.model_max_length == theirs.model_max_length
    assert ours.model_input_names == theirs.model_input_names
    assert ours.clean_up_tokenization_spaces == theirs.clean_up_tokenization_spaces
    assert sorted(ours.all_special_tokens) == sorted(theirs.all_special_tokens)
    assert len(ours) == len(theirs)
    texts = ["a <img> b<a1>the <a2>", "x  <end>y", "<new pad>", "[CLS] </s> <|endoftext|> a , b ."]
    same_everything(ours, theirs, texts + awkward_texts(20, seed=4))


def test_special_tokens_may_be_plain_objects(trained, copy):
    """Older configurations write {"content": …} without the type that `transformers` 5 insists on."""
    folder = copy(trained["bpe"], tokenizer_config={"pad_token": {"content": "<extra>", "lstrip": False}})
    assert load_tokenizer(folder).pad_token == "<extra>"


def test_special_tokens_map_counts_only_without_a_list_of_added_tokens(trained, copy):
    older = copy(
        trained["bpe"],
        tokenizer_config={"added_tokens_decoder": "REMOVED"},
        special_tokens_map={"pad_token": "<extra>"},
    )
    assert both(older)[1].pad_token == load_tokenizer(older).pad_token == "<extra>"


def test_a_listed_token_makes_special_tokens_map_old(trained, copy):
    folder = copy(trained["bpe"], special_tokens_map={"pad_token": "<extra>"})
    assert load_tokenizer(folder).pad_token is None


def test_added_tokens_json(trained, copy):
    folder = copy(
        trained["bpe"],
        tokenizer_config={"added_tokens_decoder": "REMOVED", "additional_special_tokens": ["<two>"]},
        special_tokens_map=None,
        added_tokens={"newtoken": 700, "<two>": 701},
    )
    ours, theirs = both(folder)
    assert ours.convert_tokens_to_ids(["newtoken", "<two>"]) == [700, 701]
    same_everything(ours, theirs, ["a newtoken b", "a<two>b", "Newtoken"])


def test_the_published_truncation_and_padding_are_only_defaults(minilm):
    """The file truncates and pads to 128; a call says for itself what it wants."""
    tok = load_tokenizer(minilm)
    ids = tok("a")["input_ids"]
    assert tok.convert_ids_to_tokens(ids) == ["[CLS]", "a", "[SEP]"]
    assert tok("a " * 300)["input_ids"] == [ids[0], *ids[1:2] * 300, ids[2]]


def test_the_model_type_stands_in_for_the_class(trained, copy):
    folder = copy(
        trained["wordpiece"],
        tokenizer_config={"tokenizer_class": "REMOVED", "model_input_names": "REMOVED"},
        config={"model_type": "distilbert"},
    )
    assert load_tokenizer(folder).model_input_names == ["input_ids", "attention_mask"]


def test_tokenizer_json_alone_is_enough(trained, tmp_path):
    shutil.copy(trained["wordpiece"] / "tokenizer.json", tmp_path)
    tok = load_tokenizer(tmp_path)
    assert tok.model_input_names == ["input_ids", "token_type_ids", "attention_mask"]
    assert tok.mask_token == "[MASK]"
    assert tok("the man") == load_tokenizer(trained["wordpiece"])("the man")


def test_tokenizer_json_wins_over_older_files(trained, copy):
    folder = copy(trained["wordpiece"])
    (folder / "vocab.txt").write_text("rubbish", encoding="utf-8")
    assert load_tokenizer(folder)("the man") == load_tokenizer(trained["wordpiece"])("the man")


# ---- what can be wrong


def test_a_missing_folder_and_a_file_are_told_apart(tmp_path):
    with pytest.raises(TokenizerError, match="does not exist"):
        load_tokenizer(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(TokenizerError, match="is a file"):
        load_tokenizer(tmp_path / "file")


def test_a_folder_without_a_tokenizer_lists_what_would_do(tmp_path):
    (tmp_path / "model.safetensors").write_text("x")
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json.*merges\.txt.*spiece\.model.*It has model\.safetensors"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", b"{", r"tokenizer\.json cannot be used"),
        ("tokenizer.json", b"[]", r"tokenizer\.json cannot be used"),
        ("tokenizer.json", b"\xff\xfe", r"tokenizer\.json cannot be used"),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {"a": "b"}}}', r"tokenizer\.json cannot be used"),
        ("tokenizer_config.json", b"{,}", r"tokenizer_config\.json is not valid JSON"),
        ("tokenizer_config.json", b"[1]", "an object is needed"),
        ("tokenizer_config.json", b'{"a": "\xff"}', r"not UTF-8: byte 7 \(line 1\)"),
        ("tokenizer_config.json", b"[" * 100_000, r"tokenizer_config\.json is not valid JSON"),
        ("tokenizer_config.json", b'{"model_max_length": "long"}', "model_max_length"),
        ("tokenizer_config.json", b'{"model_input_names": "input_ids"}', "model_input_names"),
        ("tokenizer_config.json", b'{"pad_token": {"text": "x"}}', "pad_token in tokenizer_config"),
        ("tokenizer_config.json", b'{"eos_token": ["a"]}', "eos_token in tokenizer_config"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": {"x": {"content": "a"}}}', "where an id must be"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": {"1": {}}}', "token 1 of added_tokens_decoder"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": []}', "added_tokens_decoder"),
        ("tokenizer_config.json", b'{"additional_special_tokens": 3}', "additional_special_tokens"),
        ("tokenizer_config.json", b'{"additional_special_tokens": [3]}', "additional_special_tokens"),
        ("tokenizer_config.json", b'{"padding_side": "up"}', "padding_side"),
        ("special_tokens_map.json", b"nonsense", r"special_tokens_map\.json is not valid JSON"),
        ("added_tokens.json", b'{"a": "b"}', r"added_tokens\.json"),
        ("config.json", b"nonsense", r"config\.json is not valid JSON"),
    ],
)
def test_damaged_files_are_named(trained, tmp_path, name, content, words):
    shutil.copy(trained["bpe"] / "tokenizer.json", tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ClearheadError, match=words):
        load_tokenizer(tmp_path)


def test_huge_files_are_refused(trained, tmp_path, monkeypatch):
    shutil.copy(trained["bpe"] / "tokenizer.json", tmp_path)
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is .* refused"):
        load_tokenizer(tmp_path)


def test_nothing_is_unpickled(tmp_path):
    """A pickle under a tokenizer's name is refused, not opened."""
    import pickle

    class Bomb:
        def __reduce__(self):
            return (print, ("opened",))

    for name in ("tokenizer.model", "vocab.txt", "tokenizer.json"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(TokenizerError):
            load_tokenizer(tmp_path)
        (tmp_path / name).unlink()


def test_transformers_is_the_version_these_tests_were_written_against():
    assert int(transformers.__version__.split(".")[0]) >= 5
