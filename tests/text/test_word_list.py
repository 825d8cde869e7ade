"""fastai's vocabularies: its rules, beside fastai's own; words cut without spaCy; text again; training one."""

import pickle
import random

import pytest
from fastai.text import core as fastai_core
from fastai.text.learner import decode_spec_tokens

from clearhead.errors import TokenizerError
from clearhead.text import TextStream, load_tokenizer, train_tokenizer
from clearhead.text.builders.word_list import word_tokenizer
from clearhead.text.word_rules import SPECIAL, WordJoiner, WordRules, without_leftovers

RULES = [
    fastai_core.fix_html, fastai_core.replace_rep, fastai_core.replace_wrep, fastai_core.spec_add_spaces,
    fastai_core.rm_useless_spaces, fastai_core.replace_all_caps, fastai_core.replace_maj,
]  # fmt: skip


def by_rules(text: str) -> str:
    """fastai's rules, without a cut into words: what is left has spaces between some of them."""
    for rule in RULES:
        text = rule(text)
    return fastai_core.lowercase(text, add_bos=False)


def ours(text: str) -> list[str]:
    plain = [text]
    without_leftovers(text, lambda old, new: plain.__setitem__(0, plain[0].replace(old, new)))
    return WordRules().tokens(plain[0])


def test_random_texts_have_fastais_marks():
    """Words without signs, so that spaces alone cut them: then the rules say everything."""
    rng = random.Random(0)
    words = ["Hello", "hello", "HELLO", "I", "a", "iPhone", "McDonald", "soooo", "AAAA", "x", "no", "No", "very", "B2B"]
    for _ in range(300):
        text = " ".join(rng.choice(words) for _ in range(rng.randint(1, 9)))
        text = text.replace("no", "no no no" if rng.random() < 0.2 else "no")
        text = text.replace("very ", "very " * rng.randint(1, 5)).replace("x ", rng.choice(["x/y ", "x#", "x  "]))
        assert ours(text) == by_rules(text).split(), text


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hello, Mr. Bennet!", "xxmaj hello , xxmaj mr . xxmaj bennet !"),
        ("don't he's we're I'll can't cannot", "do n't he 's we 're xxmaj i 'll ca n't can not"),
        ('"Who?" she asked--twice.', '" who ? " she asked -- twice .'),
        ("well-known (really) 3.5% of $1,250", "well - known ( really ) 3.5 % of $ 1,250"),
        ("AT&amp;T<br />new", "xxup at&&t \n new"),
        ("wait... &lt;what&gt;", "wait … < what >"),
        ("so!!!! sad", "so xxrep 4 ! sad"),
        ("one\n\n two", "one \n\n two"),
        ("Ça va, ÉTÉ", "ça va , été"),  # capitals beyond ASCII are not marked, as there
    ],
)
def test_words(text, tokens):
    assert ours(text) == tokens.split(" ")


def test_a_vocabulary_keeps_what_it_holds_whole():
    assert WordRules({"a.m.", "no", *SPECIAL}).tokens("no a.m. x.y.") == ["no", "a.m.", "x.y", "."]
    bare = WordRules({"hello", "xxunk"})  # without the marks, nothing is marked
    assert bare.tokens("Hello HELLO soooo no no no") == ["hello", "hello", "soooo", "no", "no", "no"]


@pytest.fixture(scope="module")
def tokenizer():
    texts = ["Hello there, \"dear Bennet\"! HE said: don't (ever) go so so so far -- it's 3 miles.\n\nHello 4 5"] * 3
    return train_tokenizer(texts, kind="words", vocab_size=60, show_progress=False)


TEXTS = [
    "Hello there, \"dear Bennet\"! HE said: don't (ever) go so so so far--it's 3 miles.",
    "Hello!!!!\n\nHello there.",
    "so",
    "Hello Zebra, so far",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_again(tokenizer, text):
    ids = tokenizer.encode(text)
    want = text if "Zebra" not in text else "Hello, so far"
    assert tokenizer.decode(ids, skip_special_tokens=True) == want
    stream = TextStream(tokenizer)
    assert "".join(map(stream.push, ids)) + stream.flush() == want


def test_marks_become_text_as_in_fastai():
    tokens = "xxmaj the cat xxup sat xxmaj on mat".split()
    assert WordJoiner.join(tokens) == " ".join(decode_spec_tokens(tokens))
    assert WordJoiner.join("xxrep 3 o xxwrep 2 very x".split()) == "ooo very very x"


@pytest.mark.parametrize("text", TEXTS)
def test_every_token_knows_its_characters(tokenizer, text):
    encoding = tokenizer(text, add_special_tokens=False)
    for token, (start, stop) in zip(encoding.tokens(), encoding.offsets(), strict=True):
        assert 0 <= start < stop <= len(text)
        if token not in SPECIAL and not token.isdecimal() and "!!" not in text:
            assert text[start:stop].lower() == token
    units = [unit for unit in tokenizer.units(text) if unit.word is not None]
    assert [unit.word for unit in units] == sorted(unit.word for unit in units)


def test_special_tokens(tokenizer):
    assert tokenizer.encode("")[0] == tokenizer.bos_token_id == tokenizer.eos_token_id == 2
    assert (tokenizer.unk_token_id, tokenizer.pad_token_id) == (0, 1)
    assert tokenizer(["so", "so far"], padding=True)["input_ids"][0][-1] == 1
    assert tokenizer.encode("zebra", add_special_tokens=False) == [0]


def test_it_is_saved_and_sent(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    for again in (load_tokenizer(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert again.get_vocab() == tokenizer.get_vocab()
        assert all(again.encode(text) == tokenizer.encode(text) for text in TEXTS)
        assert again.decode(again.encode(TEXTS[0]), skip_special_tokens=True) == TEXTS[0]


def test_frequent_words_are_kept():
    texts = ["a a b a b c", "b a"] * 2
    tok = train_tokenizer(iter(texts), kind="words", vocab_size=11, show_progress=False)
    assert list(tok.source_files.words) == [*SPECIAL, "a", "b"]
    assert "c" not in tok.get_vocab()
    with pytest.raises(TokenizerError, match="too small"):
        train_tokenizer(iter(texts), kind="words", vocab_size=9, show_progress=False)


def test_words_are_added_after_those_that_are_there(tokenizer):
    source = tokenizer.source_files
    longer = source.extended(["zebra", "hello", "zebra"])
    assert longer.words == (*source.words, "zebra")
    again = word_tokenizer(longer.words)
    assert again.encode("hello zebra", add_special_tokens=False)[-1] == len(source.words)
