"""Rows of a decoder's look at its source are named by what is written at each step, with what has just been read."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead.explain import attention, attention_steps, query_key, walk
from clearhead.views.terminal import text_of
from clearhead.views.terminal.attention import telling_head
from tests.tiny import ENCODER_DECODER, TEXT, texts, tiny_pipeline

# What each word was translated from, by anybody's dictionary; words that could be argued about are left out.
ALIGNED = {
    "A young girl is playing with a brown dog.": {
        "junges": "young", "Mädchen": "girl", "spielt": "playing", "mit": "with", "braunen": "brown", "Hund": "dog",
    },
    "Two men are standing in front of a red car.": {
        "Zwei": "two", "Männer": "men", "stehen": "standing", "roten": "red", "Auto": "car",
    },
    "A girl in a blue dress is reading a book to her little brother.": {
        "Mädchen": "girl", "blauen": "blue", "Kleid": "dress", "Buch": "book", "kleinen": "little", "Bruder": "brother",
    },
    "A man in a black jacket is riding a bicycle down the street.": {
        "Mann": "man", "schwarzen": "black", "Jacke": "jacket", "Fahrrad": "bicycle", "Straße": "street",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def translator():
    return ch.load("translate-en-de")


@pytest.mark.parametrize("name", ENCODER_DECODER)
def test_what_is_given_names_its_rows_and_the_last_is_the_models_own(name):
    pipe, given = tiny_pipeline(name), texts(name)
    ids = pipe.read(**given).inputs["decoder_input_ids"]
    with torch.no_grad():
        likeliest = int(pipe.model(**pipe.read(**given).inputs).logits[0, -1].argmax())
    for finding in (attention(pipe, **given), attention_steps(pipe, **given), query_key(pipe, **given)):
        rows = finding.tokens
        assert [row.id for row in rows] == [*ids[0, 1:].tolist(), likeliest]
        assert [row.read for row in rows] == [unit.text for unit in pipe.read(**given).target]
        assert [row.guessed for row in rows] == [False] * (len(rows) - 1) + [True]
        assert {row.kind for row in rows} == {"written"}
    own = attention(pipe, **given, side="decoder")  # it looks at what it has read: those are the names there
    assert [row.id for row in own.tokens] == ids[0].tolist() and {row.kind for row in own.tokens} == {"token"}


def test_its_own_answer_ends_with_the_token_that_ended_it(translator):
    text = "Two dogs are running."
    answer = translator.write(text)[0]
    assert answer.finish_reason == "end"
    rows = attention(translator, text).tokens
    assert [row.id for row in rows] == answer.token_ids
    assert rows[-1].text == "</s>" and rows[-1].special and not any(row.guessed for row in rows)
    assert rows[0].read == "</s>" and [row.read for row in rows[1:]] == [row.text for row in rows[:-1]]
    assert text_of(walk(translator, text, position=2)).count(f"the model writes {rows[2].text.replace(' ', '␣')}.") == 1


def test_an_answer_that_was_cut_short_goes_on(monkeypatch):
    pipe = tiny_pipeline("bart")
    answer = replace(pipe.write(TEXT, max_new_tokens=4, min_new_tokens=4)[0], finish_reason="length")
    monkeypatch.setattr(pipe, "write", lambda *a, **k: [answer])
    rows = attention(pipe, TEXT).tokens
    assert [row.id for row in rows[:-1]] == answer.token_ids and rows[-1].guessed


def test_a_model_that_writes_nothing_is_named_by_what_it_reads():
    rows = attention(tiny_pipeline("bart", "sequence-classification"), TEXT).tokens
    assert {row.kind for row in rows} == {"token"}


def test_words_follow_words(translator):
    rows = attention(translator, "A dog with a ball in the snow.", words=True).tokens
    assert "einem" in [row.text.strip() for row in rows]  # two tokens
    assert [row.read for row in rows[1:]] == [row.text for row in rows[:-1]]


def test_both_names_are_in_what_is_saved():
    found = attention(tiny_pipeline("t5"), **texts("t5"), layers=[0], heads=[0])
    header, first = found.to_csv().splitlines()[:2]
    assert header == "layer,head,query,written_token,read_token,key,key_token,weight"
    assert first.split(",")[3:5] == [found.tokens[0].text, found.tokens[0].read]
    row = json.loads(json.dumps(found.to_dict()))["tokens"][-1]
    assert row["read"] == found.tokens[-1].read and row["guessed"] is True
    steps = attention_steps(tiny_pipeline("t5"), **texts("t5")).to_csv().splitlines()[0]
    assert steps == "head,query,written_token,read_token,key,key_token,product,score,weight"
    assert "would write" in text_of(found)


def test_alignment_by_hand():
    found = attention(tiny_pipeline("bart"), **texts("bart"))
    rows = [n for n, row in enumerate(found.tokens) if not row.special]
    keys = [n for n, key in enumerate(found.keys) if not key.special]
    for one in found.summaries:
        pairs = found.head(one.layer, one.head)[np.ix_(rows, keys)]
        assert one.alignment == pytest.approx(pairs.max(0).mean() * pairs.max(1).mean(), rel=1e-5)
    assert all(np.isnan(one.alignment) for one in attention(tiny_pipeline("gpt2"), TEXT).summaries)


@pytest.mark.parametrize("text", ALIGNED)
def test_the_head_that_is_shown_aligns(translator, text):
    """The views show the head with the highest alignment: there the words lie on what they were translated from."""
    found = attention(translator, text, words=True)
    layer, head = telling_head(found)
    written = {row.text.strip(): n for n, row in enumerate(found.tokens)}
    keys = [key.text.strip().lower() for key in found.keys]
    looked_at = {word: keys[found.weights[layer, head, written[word]].argmax()] for word in ALIGNED[text]}
    wrong = {word: key for word, key in looked_at.items() if key != ALIGNED[text][word]}
    assert len(wrong) <= 1, wrong
