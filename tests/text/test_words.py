"""Texts as words and sentences, and words as characters: the rules, the places, the vocabulary of a language model."""

import random

import pytest

from clearhead.errors import InputError, TokenizerError
from clearhead.text.characters import CharacterCodec
from clearhead.text.words import lowercase_sentences, sentences_of, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The stick, broke.", ["The", "stick", ",", "broke", "."]),
        ("don't half-way rock'n'roll", ["don't", "half-way", "rock'n'roll"]),
        ("'Tis 3.14 at 12:30, 1,000 times", ["'", "Tis", "3.14", "at", "12:30", ",", "1,000", "times"]),
        ("Wait... -- what?!", ["Wait", "...", "--", "what", "?", "!"]),
        ("naïve Größe 光明 ok", ["naïve", "Größe", "光", "明", "ok"]),
        ("@user #tag http://a.b", ["@", "user", "#", "tag", "http", ":", "//", "a", ".", "b"]),
        ("  \n ", []),
    ],
)
def test_words(text, words):
    found = words_of(text)
    assert [word.text for word in found] == words
    assert all(text[word.start : word.end] == word.text for word in found)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It rains. We stay!", ["It rains .", "We stay !"]),
        ('"Go." He went. "Why?" she asked.', ['" Go . "', "He went .", '" Why ? "', "she asked ."]),
        ("Mr. J. S. Bach met Dr. Who. Then I. Left.", ["Mr . J . S . Bach met Dr . Who .", "Then I .", "Left ."]),
        ("See x.com or e.g. this one", ["See x . com or e . g .", "this one"]),
        ("天黑了。我们走吧！", ["天 黑 了 。", "我 们 走 吧 ！"]),
        ("no end", ["no end"]),
        ("", []),
    ],
)
def test_sentences(text, sentences):
    assert [" ".join(word.text for word in sentence) for sentence in sentences_of(text)] == sentences


def test_characters_by_hand():
    ids = CharacterCodec(7)(["é", "longer"])["character_ids"]
    begin, end, pad = 259, 260, 261
    assert ids.tolist() == [
        [
            [begin, 257, end, pad, pad, pad, pad],
            [begin, 0xC3 + 1, 0xA9 + 1, end, pad, pad, pad],
            [begin, *(ord(c) + 1 for c in "longe"), end],
            [begin, 258, end, pad, pad, pad, pad],
        ]
    ]


def test_several_sentences_are_filled_up_with_no_words():
    ids = CharacterCodec()([["a", "b", "c"], ["a"]])["character_ids"]
    assert ids.shape == (2, 5, 50) and not ids[1, 3:].any() and ids[1, :3].all()
    assert (CharacterCodec()("a b c")["character_ids"][0] == ids[0]).all()


def test_units_name_words_and_marks():
    units = CharacterCodec().units("The stick, yes")
    assert [unit.text for unit in units] == ["<S>", "The", " stick", ",", " yes", "</S>"]
    assert [unit.special for unit in units] == [True, False, False, False, False, True]
    assert [(unit.start, unit.end) for unit in units[1:-1]] == [(0, 3), (4, 9), (9, 10), (11, 14)]
    cut = CharacterCodec().units(["The", "stick"])
    assert [unit.text for unit in cut] == ["<S>", "The", " stick", "</S>"] and cut[2].start == 4


def test_a_vocabulary_is_learned_saved_and_read(tmp_path):
    codec = CharacterCodec.train(["the cat sat", "the dog sat", "the end"], 5)
    assert codec.vocabulary == ["<S>", "</S>", "<UNK>", "the", "sat"] and len(codec) == 5
    assert codec.word_ids(["the", "cat", "sat"]).tolist() == [0, 3, 2, 4, 1]
    assert [path.name for path in codec.save(tmp_path)] == ["words.txt"]
    assert CharacterCodec.from_folder(tmp_path, 20).vocabulary == codec.vocabulary
    assert [unit.id for unit in codec.units("the cat")] == [0, 3, -1, 1]
    assert CharacterCodec.from_folder(tmp_path / "nowhere").vocabulary is None


def test_what_cannot_be_a_codec():
    with pytest.raises(InputError, match="3 or more"):
        CharacterCodec(2)
    with pytest.raises(InputError, match="4 or more"):
        CharacterCodec.train(["a"], 3)
    with pytest.raises(TokenizerError, match="begins with <S>"):
        CharacterCodec(50, ["a", "b", "c"])
    with pytest.raises(TokenizerError, match="says no words"):
        CharacterCodec().word_ids(["a"])
    with pytest.raises(InputError, match="must be a list of words"):
        CharacterCodec()([["a"], 3])


def test_the_quick_way_finds_the_same_sentences():
    words = "Mr Dr J I word don't O'B DON'T 3.14 12:30 A-B 中 文 İ e.g".split()
    signs = ". . ... ! ? ?! … \" ' ’ ” ) ] ( “ , ; - -- 。".split()
    parts = [*words, *signs, "\n", *" " * 6]
    draw = random.Random(1)
    for _ in range(4000):
        text = "".join(draw.choices(parts, k=draw.randint(1, 14)))
        wanted = [[word.text.lower() for word in one if word.text[0].isalnum()] for one in sentences_of(text)]
        assert lowercase_sentences(text) == [words for words in wanted if words], text
