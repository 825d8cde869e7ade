"""Tokens as units: every token has its word and its characters, whatever the tokenizer."""

import pytest

import clearhead as ch
from clearhead.errors import InputError
from clearhead.text import train_tokenizer
from clearhead.text.units import display_texts, token_id, units_of_ids, word_groups, word_units
from tests.tiny import CORPUS, tokenizer

SENTENCE = "The cats don't sit, 'unbelievably': naïve!"
WORDS = ["the", "cats", "don't", "sit", ",", "'", "unbelievably", "'", ":", "naïve", "!"]


def words_in(tok, text):
    tokens = units_of_ids(tok, tok.encode(text), text)
    return [word.text.strip() for word in word_units(tok, tokens) if not word.special]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_words_are_the_same_for_every_tokenizer(kind):
    apart = " ".join(SENTENCE.lower())  # signs that no token joins
    tok = train_tokenizer(["the cats can don sit unbelievably naïve", apart] * 3, kind=kind, vocab_size=280)
    found = words_in(tok, SENTENCE.lower())
    assert found == [word if kind != "wordpiece" else word.replace("ï", "i") for word in WORDS]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_every_piece_has_one_place(kind):
    tok = tokenizer(kind)
    text = "unbelievably, dogs don't sit  on\n\nsofas 🤖🚀 我喜欢狗。"
    ids = tok.encode(text)
    tokens = units_of_ids(tok, ids, text)
    assert [token.id for token in tokens] == ids
    numbers = [token.word for token in tokens if not token.special]
    assert numbers == sorted(numbers) and set(numbers) == set(range(len(set(numbers))))
    assert [n for group in word_groups(tokens) for n in group] == list(range(len(ids)))


def test_chinese_is_read_token_by_token():
    """No spaces tell words apart: a token is a word, and half characters belong to their character."""
    unigram = train_tokenizer(["我喜欢猫 我喜欢狗"] * 20, kind="unigram", vocab_size=30, show_progress=False)
    tokens = [t for t in units_of_ids(unigram, unigram.encode("我喜欢猫"), "我喜欢猫") if not t.special]
    assert len({t.word for t in tokens if t.text.strip()}) == len([t for t in tokens if t.text.strip()])
    bpe = train_tokenizer(["abc"] * 9, kind="bpe", vocab_size=260, show_progress=False)
    assert len(bpe.encode("我猫")) == 6
    assert words_in(bpe, "我猫") == ["我", "猫"]
    assert words_in(tokenizer("wordpiece"), "我喜欢") == ["我", "喜", "欢"]


def test_a_space_goes_with_the_word_after_it():
    bpe = train_tokenizer(["abc"] * 9, kind="bpe", vocab_size=257, show_progress=False)
    assert [w.text for w in word_units(bpe, units_of_ids(bpe, bpe.encode("ab  cd\nef"), "ab  cd\nef"))] == [
        "ab", " ", " cd", "\n", "ef",
    ]  # fmt: skip


def test_special_tokens():
    tok = tokenizer("wordpiece")
    ids = tok.encode("the [MASK] 🚀")
    tokens = units_of_ids(tok, ids, "the [MASK] 🚀")
    assert [t.text for t in tokens] == ["[CLS]", "the", "[MASK]", "[UNK]", "[SEP]"]
    assert [t.special for t in tokens] == [True, False, False, False, True]  # a hidden or unknown word is a word
    gpt = ch.load("random-gpt2")
    end = gpt.tokenizer.eos_token
    tokens = units_of_ids(gpt.tokenizer, gpt.tokenizer.encode(f"the{end}cat"), f"the{end}cat")
    assert [t.text for t in tokens if t.special] == [end]  # although it is also the unknown token


def test_ids_that_no_text_gives_are_words_each():
    tok = tokenizer("bpe")
    ids = tok.encode("unbelievably")
    assert [t.word for t in units_of_ids(tok, [*ids[::-1], 5], "unbelievably")] == list(range(len(ids) + 1))
    assert [t.word for t in units_of_ids(tok, [5], "")] == [0]


def test_spaces_are_spaces():
    tok = tokenizer("unigram")
    shown = display_texts(tok, tok.encode("the cat"))
    assert "".join(shown) == " the cat</s>"
    byte = train_tokenizer(CORPUS, kind="bpe", vocab_size=300, show_progress=False)
    assert "".join(display_texts(byte, byte.encode("the cat"))) == "the cat"


def test_a_token_by_its_text_or_id():
    tok = tokenizer("bpe")
    assert token_id(tok, " cat", len(tok)) == tok.encode(" cat")[0]
    assert token_id(tok, 7, len(tok)) == 7
    pieces = tokenizer("wordpiece")
    inside = next(piece for piece in pieces.get_vocab() if piece.startswith("##"))
    assert token_id(pieces, inside, 90) == pieces.convert_tokens_to_ids(inside)
    with pytest.raises(InputError, match=r"is \d tokens \("):
        token_id(tok, " cat dog", len(tok))
    for wrong in (len(tok), -1):
        with pytest.raises(InputError, match="ids go from 0"):
            token_id(tok, wrong, len(tok))
    for wrong in ("", None, True, 1.5):
        with pytest.raises(InputError, match="by its text or its id"):
            token_id(tok, wrong, len(tok))


def test_units_of_a_pair_know_their_characters():
    tok, text, pair = tokenizer("wordpiece"), "unbelievably, a cat", "the sofa"
    units = tok.units(text, pair)
    assert [unit.id for unit in units] == tok.encode(text, pair)
    assert [unit.segment for unit in units] == tok(text, pair)["token_type_ids"]
    words = word_units(tok, units)
    assert [word.text for word in words if not word.special] == ["unbelievably", ",", "a", "cat", "the", "sofa"]
    for word in words:
        assert (text, pair)[word.segment][word.start : word.end] == ("" if word.special else word.text)
    assert {unit.kind for unit in units} == {"token"}
