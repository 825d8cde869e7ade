"""The vocabulary and its special tokens: reading, setting, adding."""

import copy
import pickle

import pytest
import torch
from tokenizers import AddedToken

from clearhead.errors import InputError, TokenizerError
from clearhead.text import load_tokenizer
from clearhead.text.added_tokens import NAMES
from clearhead.text.backend import copy_of
from tests.text.compare import both, same_everything


def test_names_ids_and_sizes_agree_with_transformers(folder):
    ours, theirs = load_tokenizer(folder), both(folder)[1]
    theirs.pad_token = ours.pad_token
    for name in NAMES:
        assert getattr(ours, name) == getattr(theirs, name)
        assert getattr(ours, f"{name}_id") == getattr(theirs, f"{name}_id")
    assert ours.all_special_tokens == theirs.all_special_tokens
    assert ours.all_special_ids == theirs.all_special_ids
    assert ours.extra_special_tokens == ours.additional_special_tokens == theirs.extra_special_tokens
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.vocab_size == theirs.vocab_size
    assert len(ours) == len(theirs)
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.model_max_length == theirs.model_max_length
    assert ours.model_input_names == theirs.model_input_names
    assert (ours.padding_side, ours.truncation_side) == (theirs.padding_side, theirs.truncation_side)


def test_tokens_and_ids_convert(folder):
    ours, theirs = both(folder)
    tokens = [*list(ours.get_vocab())[:40], "surely-not-a-token"]
    assert ours.convert_tokens_to_ids(tokens) == theirs.convert_tokens_to_ids(tokens)
    assert ours.convert_tokens_to_ids(tokens[0]) == theirs.convert_tokens_to_ids(tokens[0])
    ids = list(range(40))
    assert ours.convert_ids_to_tokens(ids) == theirs.convert_ids_to_tokens(ids)
    assert ours.convert_ids_to_tokens(torch.tensor(ids)) == theirs.convert_ids_to_tokens(ids)
    assert ours.convert_ids_to_tokens(5) == theirs.convert_ids_to_tokens(5)
    skipped = ours.convert_ids_to_tokens(ids, skip_special_tokens=True)
    assert skipped == theirs.convert_ids_to_tokens(ids, skip_special_tokens=True)
    assert len(skipped) < len(ids)
    assert ours.convert_ids_to_tokens(ours.all_special_ids[0], skip_special_tokens=True) == ours.all_special_tokens[0]


@pytest.mark.parametrize("ids", [[1, 10**6], 10**6, [-1], -1, [None], ["a"]])
def test_ids_without_a_token_are_named(trained, ids):
    with pytest.raises(InputError, match="is not a token id"):
        load_tokenizer(trained["bpe"]).convert_ids_to_tokens(ids)


def test_setting_a_special_token(trained):
    tok = load_tokenizer(trained["bpe"])
    assert tok.pad_token is None
    assert tok.pad_token_id is None
    tok.pad_token = tok.eos_token
    assert tok.pad_token_id == tok.eos_token_id
    tok.sep_token_id = 7
    assert tok.sep_token == tok.convert_ids_to_tokens(7)
    tok.sep_token = None
    assert tok.sep_token_id is None
    with pytest.raises(TokenizerError, match="add_special_tokens"):
        tok.mask_token = "[NOWHERE]"
    with pytest.raises(TokenizerError, match="mask_token"):
        tok.mask_token = 3


def test_added_tokens_are_never_split(trained):
    tok = load_tokenizer(trained["wordpiece"])
    size = len(tok)
    before = tok.encode("the newword here")
    assert tok.add_tokens(["newword", AddedToken("<sp>", lstrip=True)]) == 2
    assert len(tok) == size + 2
    assert tok.vocab_size == load_tokenizer(trained["wordpiece"]).vocab_size
    ids = tok.encode("the newword  <sp>here", add_special_tokens=False)
    assert tok.convert_ids_to_tokens(ids) == ["the", "newword", "<sp>", "her", "##e"]
    assert tok.encode("the newword here") != before
    assert tok.add_tokens("newword") == 0
    assert tok.add_tokens([]) == 0
    for wrong in ("", [""], [3], 3):
        with pytest.raises(InputError, match="new token"):
            tok.add_tokens(wrong)


def test_adding_agrees_with_transformers(folder):
    ours, theirs = both(folder)
    named = {"mask_token": "<gap>", "additional_special_tokens": ["<u1>", "<u2>"]}
    assert ours.add_special_tokens(named) == theirs.add_special_tokens(dict(named))
    assert ours.add_tokens(["Zebra crossing", "ﬁsh"]) == theirs.add_tokens(["Zebra crossing", "ﬁsh"])
    assert ours.all_special_tokens == theirs.all_special_tokens
    assert ours.mask_token_id == theirs.mask_token_id
    same_everything(ours, theirs, ["a <gap> b", "<u1><u2>x", "zebra crossing Zebra crossing!", "ﬁsh fish <gap>"])
    more = {"extra_special_tokens": ["<u3>"]}
    ours.add_special_tokens(more, replace_extra_special_tokens=False)
    theirs.add_special_tokens(dict(more), replace_extra_special_tokens=False)
    assert ours.extra_special_tokens == theirs.extra_special_tokens


def test_wrong_special_tokens_are_explained(trained):
    tok = load_tokenizer(trained["bpe"])
    with pytest.raises(InputError, match="Did you mean pad_token"):
        tok.add_special_tokens({"padd_token": "x"})
    with pytest.raises(InputError, match="pad_token"):
        tok.add_special_tokens({"pad_token": ""})
    assert tok.add_special_tokens({}) == 0


def test_a_copy_of_the_backend_is_the_same_tokenizer(folder):
    tok = load_tokenizer(folder)
    tok.add_tokens(["plain", AddedToken("<r>", rstrip=True, normalized=False)])
    tok.add_tokens(["<s1>"], special_tokens=True)
    assert copy_of(tok.backend).to_str() == tok.backend.to_str()


def test_a_tokenizer_can_be_pickled_and_copied(folder):
    tok = load_tokenizer(folder)
    tok.add_special_tokens({"pad_token": "<blank>"})
    tok.padding_side = "left"
    for other in (pickle.loads(pickle.dumps(tok)), copy.deepcopy(tok)):
        assert other(["a", "b c"], padding=True) == tok(["a", "b c"], padding=True)
        other.add_tokens(["only here"])
        assert len(other) == len(tok) + 1


def test_padding_agrees_with_transformers(folder):
    ours, theirs = both(folder)
    rows = [ours(text, return_special_tokens_mask=True) for text in ("one two three", "four", "")]
    plain = [dict(row) for row in rows]
    for options in (
        {},
        {"padding": "max_length", "max_length": 12},
        {"padding_side": "left"},
        {"pad_to_multiple_of": 8},
        {"return_tensors": "np"},
    ):
        mine, other = ours.pad(rows, **options), theirs.pad([dict(row) for row in plain], **options)
        assert {k: np_list(v) for k, v in mine.items()} == {k: np_list(v) for k, v in other.items()}
    columns = {"input_ids": [[1, 2, 3], [4]]}
    assert ours.pad(columns) == dict(theirs.pad(dict(columns)))
    assert columns == {"input_ids": [[1, 2, 3], [4]]}
    single = {"input_ids": [1, 2, 3]}
    assert ours.pad(single, padding="max_length", max_length=5) == dict(
        theirs.pad(dict(single), padding="max_length", max_length=5)
    )


def np_list(value):
    return value.tolist() if hasattr(value, "tolist") else value


def test_padding_collates_tensors_and_labels(trained):
    tok = load_tokenizer(trained["wordpiece"])
    rows = [tok(text, return_tensors="pt") for text in ("one two", "three four five")]
    flat = [{key: value[0] for key, value in row.items()} | {"labels": 1.0} for row in rows]
    batch = tok.pad(flat)
    assert isinstance(batch["input_ids"], torch.Tensor)
    assert batch["input_ids"].shape == batch["attention_mask"].shape
    assert batch["labels"].tolist() == [1.0, 1.0]
    assert batch["labels"].dtype == torch.float32


@pytest.mark.parametrize(
    ("encoded", "words"),
    [
        ([], "holds none"),
        ([1], "encodings"),
        ({"ids": [1]}, "input_ids"),
        ([{"input_ids": [1]}, {"input_ids": [1], "labels": 1}], "number 1 differs"),
        ({"input_ids": [[1], [2]], "labels": [1]}, "labels 1"),
    ],
)
def test_what_cannot_be_padded_is_explained(trained, encoded, words):
    with pytest.raises(InputError, match=words):
        load_tokenizer(trained["wordpiece"]).pad(encoded)


def test_ragged_labels_are_named(trained):
    rows = [{"input_ids": [1, 2], "labels": [1, 2]}, {"input_ids": [1], "labels": [1]}]
    with pytest.raises(InputError, match="labels cannot become one tensor"):
        load_tokenizer(trained["wordpiece"]).pad(rows, return_tensors="pt")
