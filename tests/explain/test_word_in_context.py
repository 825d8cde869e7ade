"""A word in context: each use has the mean of its pieces' states, in any family, and is found as a person would."""

import json

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import word_in_context
from clearhead.explain.questions import QUESTIONS
from clearhead.pipeline import load
from clearhead.pipeline.vector_files import pipeline_of
from clearhead.text.word_vectors import Words
from tests.studies import small
from tests.tiny import tiny_pipeline

SENTENCES = "the cat sat on the mat\nA Cat ran.\n\nmy cat's mat"


def states_of(pipe, sentence, span, layer):
    """(width): by hand, the hidden states of the model's own output, over the tokens that touch the word."""
    reading = pipe.read(sentence)
    with torch.no_grad():
        hidden = pipe.model.eval()(**reading.inputs, output_hidden_states=True).hidden_states[layer][0]
    touching = [
        n for n, unit in enumerate(reading.units)
        if not unit.special and unit.start < span[1] and span[0] < unit.end and sentence[unit.start : unit.end].strip()
    ]  # fmt: skip
    return hidden[touching].mean(0).numpy()


@pytest.mark.parametrize("name", ["bert", "deberta-v2", "gpt2", "rnn"])
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_the_vectors_are_the_states_of_the_pieces(name, layer):
    pipe = tiny_pipeline(name)
    found = word_in_context(pipe, SENTENCES, "cat", layer)
    assert [(use.sentence[use.start : use.end], use.group) for use in found.uses] == [
        ("cat", 0),
        ("Cat", 0),
        ("cat", 1),
    ]
    count = len(pipe.model.output_stack.layers)
    assert found.layers == [layer % (count + 1)] and found.of_layers == count
    assert found.ahead is (name in ("bert", "deberta-v2"))
    if name == "rnn" or (name == "gpt2" and layer == -1):  # whose last hidden state is given after its norm, or none
        return
    rows = np.stack([states_of(pipe, use.sentence, (use.start, use.end), layer) for use in found.uses])
    assert np.allclose(found.vectors, rows, atol=1e-5)


def test_elmo_gives_what_embed_words_gives(tmp_path):
    pipe = load(small.elmo(tmp_path / "elmo"))
    sentences = ["They sat on the bank .", "The Bank is closed ."]
    by_hand = pipe.embed_words([sentence.split() for sentence in sentences])
    rows = [by_hand[0, :, 4], by_hand[1, :, 1]]
    for layers in (0, 1, -1):
        found = word_in_context(pipe, sentences, "bank", layers)
        assert np.allclose(found.vectors, torch.stack([row[layers] for row in rows]), atol=1e-5)
    mixed = word_in_context(pipe, sentences, layers=None)
    assert mixed.word == "bank" and np.allclose(mixed.vectors, torch.stack([row.mean(0) for row in rows]), atol=1e-5)
    assert mixed.ahead and mixed.table_row is None  # characters have no table of words


def test_an_encoder_is_looked_at_and_nothing_is_written():
    pipe = tiny_pipeline("t5")
    found = word_in_context(pipe, SENTENCES, "cat")
    assert found.vectors.shape == (3, pipe.model.config.d_model) and found.ahead


def test_the_plane_the_cosines_and_the_groups():
    found = word_in_context(tiny_pipeline("bert"), SENTENCES + "\n\nthe cat sat", "CAT")
    unit = found.vectors / np.linalg.norm(found.vectors, axis=1, keepdims=True)
    assert np.allclose(found.cosines, unit @ unit.T) and np.allclose(found.places.mean(0), 0, atol=1e-6)
    assert [use.group for use in found.uses] == [0, 0, 1, 2]
    assert found.within == pytest.approx(found.cosines[0, 1])
    others = [found.cosines[a, b] for a, b in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3))]
    assert found.across == pytest.approx(np.mean(others))
    nearest = (found.cosines - 2 * np.eye(4)).argmax(1)
    assert found.at_home == sum(nearest[n] == 1 - n for n in (0, 1))
    alone = word_in_context(tiny_pipeline("bert"), "the cat sat\nthe cat ran")
    assert (alone.within, alone.across, alone.at_home) == (None, None, None)
    rows = list(found.table())
    assert rows[0][:3] == ["use", "group", "sentence"] and len(rows) == 5 and len(rows[1]) == len(rows[0])
    json.dumps(found.to_dict(), allow_nan=False)
    assert "4 uses lie nearest" in str(found) and "2  a" in str(found)


def test_without_context_all_uses_are_one_row():
    pipe = tiny_pipeline("bert")
    table = pipeline_of(Words.of(["cat", "mat", "sat"]), torch.eye(3), "own")
    found = word_in_context(pipe, SENTENCES, "Cat", table=table)
    assert found.table_row.model == "own" and found.table_row.terms[0].word == "cat" and found.table_row.count == 3
    assert QUESTIONS["word-in-context"].ask(pipe, SENTENCES, word="Cat", table=table).to_dict() == found.to_dict()
    with pytest.raises(InputError, match="no word “ran”"):
        word_in_context(pipe, "he ran\nthey ran", "ran", table=table)
    own = word_in_context(pipe, "the cat sat\nthe mat", "the").table_row
    assert own.model == pipe.name and own.terms[0].word == "the"
    assert word_in_context(pipe, "xylophonist a\nxylophonist b").table_row is None  # several tokens


def test_the_word_is_found_as_a_person_would():
    pipe = tiny_pipeline("bert")

    def uses(sentences, word=None):
        found = word_in_context(pipe, sentences, word)
        return found.word, [use.sentence[use.start : use.end] for use in found.uses]

    assert uses("Flies fly; fruit flies, too.\nThe flies flew") == ("flies", ["Flies", "flies", "flies"])
    assert uses("the cat sat on the mat and the cat ran") == ("the", ["the"] * 3)
    assert uses("New York is big\nold york, NEW  YORK", "new york") == ("new york", ["New York", "NEW  YORK"])
    assert uses("我在银行\n河的银行边", "银行") == ("银行", ["银行", "银行"])
    assert uses("cat’s\nThe CAT's mat", "cat") == ("cat", ["cat", "CAT"])


@pytest.mark.parametrize(
    ("sentences", "word", "said"),
    [
        ("the cat sat\nthe mat", "cat", "“cat” does not stand in “the mat”"),
        ("the cats sat\nthe cat", "cat", "“cat” does not stand in “the cats sat”"),
        ("the cat sat", "cat", "used only once"),
        ("cat\ndog", None, "no word in common"),
        (" \n ", "cat", "text"),
        (["the cat", 3], "cat", "A sentence is text, not int"),
        ("the cat\n" * 101, "cat", "100 at most"),
        ("the cat\na cat", "…", "does not stand in"),
    ],
)
def test_what_cannot_be_asked_is_said(sentences, word, said):
    with pytest.raises(InputError, match=said):
        word_in_context(tiny_pipeline("bert"), sentences, word)


def test_layers_that_cannot_be():
    pipe = tiny_pipeline("bert")
    with pytest.raises(InputError, match="there are layers 0"):
        word_in_context(pipe, SENTENCES, "cat", 99)
    both = word_in_context(pipe, SENTENCES, "cat", [0, 1])
    one, two = (word_in_context(pipe, SENTENCES, "cat", n).vectors for n in (0, 1))
    assert np.allclose(both.vectors, (one + two) / 2, atol=1e-6)
    asked = QUESTIONS["word-in-context"].ask(pipe, SENTENCES, word="cat", layers="all")
    assert asked.layers == list(range(asked.of_layers + 1))
    assert "table of word vectors" in QUESTIONS["word-in-context"].fits(pipeline_of(Words.of("ab"), torch.eye(2)))
