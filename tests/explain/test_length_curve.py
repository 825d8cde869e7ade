"""BLEU by source length: read from what lies beside the models, side by side only where the sentences were the same."""

import json

import pytest

from clearhead import zoo
from clearhead.errors import InputError
from clearhead.explain import length_curve
from clearhead.explain.length_curve import MEASURE, LengthBin, LengthCurve, MeasuredCurve
from clearhead.explain.questions import QUESTIONS
from clearhead.messages import Bilingual
from tests.tiny import tiny_pipeline

BINS = [{"first": 1, "last": 7, "sentences": 80, "bleu": 40.0}, {"first": 8, "last": 30, "sentences": 20, "bleu": 30.5}]


def curves():
    """As a view is given them."""
    bins = [LengthBin(**row) for row in BINS]
    return LengthCurve(
        "tiny", "a test", "greedy", "BLEU", [MeasuredCurve("tiny", bins, 38.0), MeasuredCurve("b", bins, 9)]
    )


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Three models with folders: two measured on the same sentences, one on others, and one not at all."""
    cards = {}
    for name, data in {"one": "test A", "two": "test A", "three": "test B", "four": None}.items():
        (tmp_path / name).mkdir()
        measured = {"data": data, "decoding": "beam search", "metric": "BLEU", "bleu": 37.5, "bins": BINS}
        if data is not None:
            (tmp_path / name / "measures.json").write_text(json.dumps({MEASURE: measured}))
        cards[name] = zoo.Card(name, "rnn-seq2seq", Bilingual("a", "b"), tmp_path / name)
    monkeypatch.setattr(zoo, "cards", lambda: cards)
    zoo.measures.cache_clear()
    yield
    zoo.measures.cache_clear()


def test_curves_side_by_side(shipped):
    found = length_curve(["one", "two"])
    assert [curve.model for curve in found.curves] == ["one", "two"] and found.data == "test A"
    assert found.curves[0].bins == [LengthBin(**row) for row in BINS] and found.curves[1].bleu == 37.5
    assert list(found.table())[1] == ["one", 1, 7, 80, 40.0]
    assert length_curve("one").model == "one"


def test_only_the_same_sentences_are_compared(shipped):
    with pytest.raises(InputError, match="different sentences"):
        length_curve(["one", "three"])
    with pytest.raises(InputError, match=r"'four'.*was not measured.*one, two, three"):
        length_curve("four")
    with pytest.raises(InputError):
        length_curve([])


def test_as_a_question(shipped):
    pipe = tiny_pipeline("rnn-seq2seq")
    asked = QUESTIONS["length-curve"]
    assert "not measured" in asked.fits(pipe)
    pipe.name = "one"
    assert asked.fits(pipe) is None
    assert [curve.model for curve in asked.ask(pipe, "", others="two").curves] == ["one", "two"]
