"""Calling a tokenizer gives what `transformers` gives, for every kind of input and option."""

import inspect
import random

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearhead.errors import InputError, TokenizerError
from clearhead.text import Encoding, Tokenizer, load_tokenizer
from clearhead.text.encode import EncodeOptions
from tests.text.compare import both, same_encoding, same_everything
from tests.text.samples import awkward, awkward_texts

given_text = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


def test_single_texts_agree_with_transformers(folder):
    same_everything(*both(folder), awkward_texts(250))


def test_pairs_agree_with_transformers(folder):
    ours, theirs = both(folder)
    texts = [text for text in awkward_texts(80, seed=1) if text]
    for first, second in zip(texts, reversed(texts), strict=True):
        same_encoding(ours, theirs, first, second, return_offsets_mapping=True)
        mine, other = ours(first, second), theirs(first, second)
        assert mine.sequence_ids() == other.sequence_ids(0)
        assert mine.word_ids() == other.word_ids(0)
        assert mine.tokens() == other.tokens(0)


def test_batches_agree_with_transformers_under_every_option(folder):
    ours, theirs = both(folder)
    rng = random.Random(3)
    for _ in range(250):
        first = [awkward(rng) for _ in range(rng.randint(1, 4))]
        second = [awkward(rng) for _ in first] if rng.random() < 0.5 else None
        ours.truncation_side = theirs.truncation_side = rng.choice(["left", "right"])
        options = {
            "padding": rng.choice([False, True, "longest", "max_length", "do_not_pad"]),
            "truncation": rng.choice([False, True, "longest_first", "do_not_truncate"]),
            "max_length": rng.choice([8, 16, 40]),
            "padding_side": rng.choice([None, "left", "right"]),
            "pad_to_multiple_of": rng.choice([None, 8]),
            "return_overflowing_tokens": rng.random() < 0.3,
            "return_length": rng.random() < 0.3,
            "return_token_type_ids": rng.choice([None, True, False]),
            "return_attention_mask": rng.choice([None, True, False]),
            "return_special_tokens_mask": rng.random() < 0.3,
            "return_offsets_mapping": rng.random() < 0.3,
            "add_special_tokens": rng.random() < 0.8,
        }
        same_encoding(ours, theirs, first, second, **options)


@pytest.mark.parametrize("strategy", ["only_first", "only_second"])
def test_one_sided_truncation_with_stride_agrees_with_transformers(folder, strategy):
    ours, theirs = both(folder)
    long, short = "one two three four five six seven eight nine ten " * 4, "the way"
    texts = (long, short) if strategy == "only_first" else (short, long)
    same_encoding(
        ours,
        theirs,
        *texts,
        truncation=strategy,
        max_length=24,
        stride=3,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


def test_words_agree_with_transformers(folder):
    ours, theirs = both(folder)
    words = ["the", "unbelievable", "café", "", "walked", "😀😀", "don't"]
    same_encoding(ours, theirs, words, is_split_into_words=True, return_offsets_mapping=True)
    same_encoding(ours, theirs, [words, words[:2], []], is_split_into_words=True, padding=True)
    same_encoding(ours, theirs, words, words[:3], is_split_into_words=True)
    same_encoding(ours, theirs, [words, words[:2]], [words[:1], words], is_split_into_words=True)
    mine, other = (tok(words, is_split_into_words=True) for tok in (ours, theirs))
    assert mine.word_ids() == other.word_ids(0)


def test_a_list_of_pairs_is_a_batch_of_pairs(folder):
    ours, theirs = both(folder)
    same_encoding(ours, theirs, [("one two", "three"), ("four", "")], padding=True)
    same_encoding(ours, theirs, [(["one", "two"], ["three"])], is_split_into_words=True)


def test_max_length_alone_truncates_as_in_transformers(folder):
    ours, theirs = both(folder)
    same_encoding(ours, theirs, "one two three four five six seven", max_length=5)
    assert len(ours("one two three four five six seven", max_length=5, truncation=False)["input_ids"]) > 5


def test_without_truncation_a_text_beyond_the_longest_length_stays_whole(folder):
    ours = load_tokenizer(folder)
    text = "word " * (ours.model_max_length + 10)
    ids, cut = ours(text)["input_ids"], ours(text, truncation=True)["input_ids"]
    assert ours.decode(ids, skip_special_tokens=True).split() == text.split()
    assert len(cut) == ours.model_max_length
    assert cut[:-1] == ids[: ours.model_max_length - 1]  # the last may be an end token


@given_text
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=4), length=st.integers(4, 30))
def test_a_batch_is_its_texts_one_by_one(trained, texts, length):
    for folder in trained.values():
        tok = load_tokenizer(folder)
        together = tok(texts, truncation=True, max_length=length)
        apart = [tok(text, truncation=True, max_length=length) for text in texts]
        assert together["input_ids"] == [one["input_ids"] for one in apart]
        assert together["attention_mask"] == [one["attention_mask"] for one in apart]


@given_text
@given(text=st.text(max_size=60))
def test_offsets_stay_inside_the_text(trained, text):
    for folder in trained.values():
        encoding = load_tokenizer(folder)(text, add_special_tokens=False)
        for row, (start, end) in enumerate(encoding.offsets()):
            assert 0 <= start <= end <= len(text)
            for char in range(start, end):
                assert encoding.char_to_token(char) is not None
            assert encoding.token_to_chars(row) == (start, end)


def test_keys_follow_the_model(trained, minilm):
    assert list(load_tokenizer(minilm)("a")) == ["input_ids", "token_type_ids", "attention_mask"]
    assert list(load_tokenizer(trained["bpe"])("a")) == ["input_ids", "attention_mask"]


@pytest.mark.parametrize("kind", ["pt", "np"])
def test_tensors(trained, kind):
    tok = load_tokenizer(trained["wordpiece"])
    encoding = tok(
        ["the man", "the"], padding=True, return_tensors=kind, return_offsets_mapping=True, return_length=True
    )
    wanted = torch.Tensor if kind == "pt" else np.ndarray
    assert all(isinstance(value, wanted) for value in encoding.values())
    assert encoding["input_ids"].tolist() == tok(["the man", "the"], padding=True)["input_ids"]
    assert encoding["offset_mapping"].shape == (*encoding["input_ids"].shape, 2)
    assert tok("the man", return_tensors=kind)["input_ids"].shape == (1, 4)
    empty = tok("", add_special_tokens=False, return_tensors=kind)["input_ids"]
    assert empty.shape == (1, 0)
    assert empty.dtype in (torch.int64, np.int64)


def test_an_encoding_is_a_dict_with_attributes(trained):
    encoding = load_tokenizer(trained["wordpiece"])(["the man", "he"], padding=True, return_tensors="pt")
    assert isinstance(encoding, dict)
    assert encoding.input_ids is encoding["input_ids"]
    assert encoding.to("cpu") is encoding
    assert encoding.to(torch.device("meta")).input_ids.device.type == "meta"
    assert encoding.tokens(1) == ["[CLS]", "he", "[SEP]", "[PAD]"]
    assert encoding.offsets(0)[1] == (0, 3)
    with pytest.raises(AttributeError, match="input_ids"):
        _ = encoding.inputs_ids
    with pytest.raises(InputError, match="no row 2"):
        encoding.tokens(2)


def test_an_encoding_survives_pickling(trained):
    import copy
    import pickle

    encoding = load_tokenizer(trained["bpe"])("the man")
    for other in (pickle.loads(pickle.dumps(encoding)), copy.deepcopy(encoding)):
        assert isinstance(other, Encoding)
        assert other == encoding
        assert other.tokens() == encoding.tokens()


def test_encode_and_tokenize(folder):
    ours, theirs = both(folder)
    for text in awkward_texts(30, seed=5):
        assert ours.encode(text) == theirs.encode(text)
        assert ours.encode(text, add_special_tokens=False) == theirs.encode(text, add_special_tokens=False)
        assert ours.tokenize(text) == theirs.tokenize(text)
    assert ours.num_special_tokens_to_add() == theirs.num_special_tokens_to_add()
    assert ours.num_special_tokens_to_add(pair=True) == theirs.num_special_tokens_to_add(pair=True)


def test_an_empty_batch_is_empty(trained):
    tok = load_tokenizer(trained["wordpiece"])
    assert tok([], padding=True) == {"input_ids": [], "token_type_ids": [], "attention_mask": []}


# ---- mistakes


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (None, {}, "NoneType"),
        (7, {}, "of type int"),
        (b"text", {}, "Decode bytes"),
        (["a", None], {}, "Item 1 of the batch"),
        (np.array(["a", "b"]), {}, "tolist"),
        ("a", {"is_split_into_words": True}, "list of words"),
        (["a", 3], {"is_split_into_words": True}, "of type int"),
        (["a", "b"], {"text_pair": "c"}, "must be a list"),
        (["a", "b"], {"text_pair": ["c"]}, "batch of 2"),
        ("a", {"text_pair": 3}, "Text_pair"),
        ("a", {"padding": "longst"}, "Did you mean longest"),
        ("a", {"truncation": "first"}, "Did you mean"),
        ("a", {"return_tensors": "tf"}, "one of pt, np"),
        ("a", {"max_length": 0}, "max_length"),
        ("a", {"max_length": 2.5, "truncation": True}, "max_length"),
        ("a", {"max_length": 1, "truncation": True}, "adds 2 special tokens"),
        ("a", {"stride": -1}, "stride"),
        (
            "a b c d e",
            {"stride": 3, "max_length": 5, "truncation": True, "return_overflowing_tokens": True},
            "stride=3",
        ),
        ("a b c", {"truncation": "only_second", "max_length": 3}, "cannot be encoded as asked"),
        ("a", {"padding": True, "padding_side": "top"}, "one of right, left"),
        ("a", {"padding": True, "pad_to_multiple_of": 0}, "pad_to_multiple_of"),
        ("a", {"padding": True, "truncation": True, "max_length": 9, "pad_to_multiple_of": 8}, "multiple"),
        (["a", "a b"], {"return_tensors": "np"}, "padding=True"),
        ("\ud83d", {}, "lone surrogate"),
        (["fine", "half \udc00 pair"], {}, "Row 1 holds a lone surrogate"),
    ],
)
def test_mistakes_are_explained(trained, text, options, words):
    with pytest.raises(InputError, match=words):
        load_tokenizer(trained["wordpiece"])(text, **options)


def test_a_stride_too_long_for_one_text_of_a_pair_is_explained(trained):
    with pytest.raises(InputError, match="shorter stride"):
        load_tokenizer(trained["wordpiece"])(
            "a b c d e f", "a b c d e f", truncation=True, max_length=8, stride=3, return_overflowing_tokens=True
        )


def test_padding_needs_a_padding_token(trained):
    tok = load_tokenizer(trained["bpe"])
    with pytest.raises(TokenizerError, match=r"tok\.pad_token = tok\.eos_token"):
        tok(["a", "b c"], padding=True)
    tok.pad_token = tok.eos_token
    assert tok(["a", "a"], padding="max_length")["attention_mask"] == [[1] + [0] * 63] * 2


def test_padding_to_no_length_is_explained(trained):
    tok = load_tokenizer(trained["wordpiece"])
    tok.model_max_length = int(1e30)
    with pytest.raises(InputError, match="max_length"):
        tok("a", padding="max_length")
    assert len(tok("a " * 600, truncation=True)["input_ids"]) == 602


def test_only_tensors_move(trained):
    with pytest.raises(InputError, match="return_tensors"):
        load_tokenizer(trained["bpe"])("a").to("cpu")


def test_the_options_of_a_call_keep_their_order():
    named = inspect.signature(Tokenizer.__call__).parameters.values()
    assert EncodeOptions._fields == tuple(p.name for p in named if p.kind is p.KEYWORD_ONLY)
