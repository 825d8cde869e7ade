"""Patching brings back what it must, changes nothing where nothing was swapped, and finds a circuit that is known."""

import json

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import patching
from clearhead.explain.inference import call
from clearhead.nn.tracing import trace
from tests.explain.copying import copying_gpt2
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, TEXT, texts, tiny_pipeline

EXCHANGED = TEXT.replace("cat sat on", "cat on sat")  # as many tokens, whatever cuts it


def pair(name):
    clean = texts(name)["text"]
    return clean, clean.replace("cat sat on", "cat on sat")


def scores(pipe, given, where):
    with torch.no_grad():
        logits = call(pipe, given).logits[0]
    return (logits if where is None else logits[where]).double()


def by_hand(pipe, clean, corrupted, name, at, where, axis=1):
    """The corrupted run with one piece of the clean run in it."""
    with torch.no_grad():
        with trace(pipe.model, name) as seen:
            call(pipe, clean)

        def put(tensor):
            tensor = tensor.clone()
            tensor.movedim(axis, 0)[at] = seen[name].movedim(axis, 0)[at]
            return tensor

        with trace(pipe.model, replace={name: put}):
            return scores(pipe, corrupted, where)


def metric(found, pipe, row):
    ids = [next(n for n in range(len(row)) if name_of(pipe, n) == text) for text in found.answers if text is not None]
    return float(row[ids[0]] - (row[ids[1]] if len(ids) > 1 else 0))


def name_of(pipe, id_):
    from clearhead.explain.scores import answer_scores

    return answer_scores(pipe).names([id_])[0]


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL, *ENCODER_DECODER])
def test_every_family(name):
    pipe, (clean, corrupted) = tiny_pipeline(name), pair(name)
    both = {"target": ""} if name in ENCODER_DECODER else {}
    good, bad = (pipe.read(text, **both) for text in (clean, corrupted))
    differ = [n for n, (x, y) in enumerate(zip(good.units, bad.units, strict=True)) if x.id != y.id]
    same = next(n for n in range(len(good.units)) if n not in differ)
    assert len(differ) >= 2
    if name in MASKED:
        where = [t.id for t in good.units].index(pipe.tokenizer.mask_token_id)
    else:
        where = len(good.outputs) - 1
    columns = [differ, same, differ[0]]
    found = patching(pipe, clean, corrupted, tap="input", positions=columns, answer=5, other=9)
    want, got = scores(pipe, good, where), scores(pipe, bad, where)
    value = [float(row[5] - row[9]) for row in (want, got)]
    assert (found.clean_score, found.corrupted_score) == pytest.approx(tuple(value), rel=1e-4, abs=1e-4)
    assert found.positions == [differ, [same], [differ[0]]] and found.position == where
    assert found.effect.shape == found.scores.shape == (len(found.layers), 3)
    assert found.effect[0, 0] == pytest.approx(1, abs=2e-3)  # all that differs is the clean text's
    assert found.effect[0, 1] == pytest.approx(0, abs=1e-5)  # nothing was swapped
    side = "encoder." if name in ENCODER_DECODER else ""
    row = by_hand(pipe, good, bad, f"{side}layers.1.input", differ[0], where)
    assert found.scores[1, 2] == pytest.approx(float(row[5] - row[9]), rel=1e-3, abs=1e-4)
    np.testing.assert_allclose(found.effect, (found.scores - value[1]) / (value[0] - value[1]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("tap", ["output", "attention.output", "feedforward.output", "feedforward.hidden"])
def test_any_tensor_with_positions(tap):
    pipe = tiny_pipeline("gpt2")
    good, bad = pipe.read(TEXT), pipe.read(EXCHANGED)
    found = patching(pipe, TEXT, EXCHANGED, tap=tap, layers=[0, 2])
    assert found.tap == f"layers.*.{tap}" and found.positions == [[n] for n in range(len(good.units))]
    where = len(good.units) - 1
    for layer, at in ((0, 5), (2, where)):
        row = by_hand(pipe, good, bad, f"layers.{layer}.{tap}", at, where)
        assert found.scores[found.layers.index(layer), at] == pytest.approx(
            metric(found, pipe, row), rel=1e-3, abs=1e-4
        )
    if tap == "output":
        assert found.effect[1, -1] == pytest.approx(1, abs=1e-3)  # the last layer at the last place is the answer
        np.testing.assert_allclose(found.effect[1, :-1], 0, atol=1e-5)


@pytest.mark.parametrize("tensor", ["heads", "query", "weights", "value"])
def test_heads(tensor):
    pipe = tiny_pipeline("gpt2")
    good, bad = pipe.read(TEXT), pipe.read(EXCHANGED)
    found = patching(pipe, TEXT, EXCHANGED, tap=f"attention.{tensor}")
    assert found.by == "head" and found.heads == [0, 1, 2, 3] and found.positions == []
    where = len(good.units) - 1
    row = by_hand(pipe, good, bad, f"layers.1.attention.{tensor}", 2, where)
    assert found.scores[1, 2] == pytest.approx(metric(found, pipe, row), rel=1e-3, abs=1e-4)
    by_position = patching(pipe, TEXT, EXCHANGED, tap=f"attention.{tensor}", by="position", positions=where, layers=1)
    row = by_hand(pipe, good, bad, f"layers.1.attention.{tensor}", where, where, axis=2)
    assert by_position.scores[0, 0] == pytest.approx(metric(by_position, pipe, row), rel=1e-3, abs=1e-4)


def test_encoder_decoders_on_both_sides():
    pipe, (clean, corrupted) = tiny_pipeline("bart"), pair("bart")
    good, bad = (pipe.read(text, target="a dog") for text in (clean, corrupted))
    where = len(good.target) - 1
    for tap, side, at in (("decoder.layers.*.output", "decoder", 1), ("cross_attention.heads", "decoder", 2),
                          ("cross_attention.key", "decoder", 1), ("layers.*.output", "encoder", 3)):  # fmt: skip
        found = patching(pipe, clean, corrupted, tap=tap, target="a dog")
        assert found.side == side
        assert len(found.clean) == len(good.target if side == "decoder" else good.units)
        row = by_hand(pipe, good, bad, f"{side}.{found.tap.replace('*', '1')}", at, where)
        assert found.scores[1, at] == pytest.approx(metric(found, pipe, row), rel=1e-3, abs=1e-4)
    assert patching(pipe, clean, corrupted).position == 0  # by default the first word that is written


@pytest.mark.parametrize("name", ["bert", "gpt2", "xlnet", "bart", "deberta"])
def test_the_label_of_a_text(name):
    pipe = tiny_pipeline(name, "sequence-classification", kind="wordpiece" if name != "bart" else None)
    found = patching(pipe, TEXT, EXCHANGED, answer="LABEL_1")
    good, bad = pipe.read(TEXT), pipe.read(EXCHANGED)
    layer = "encoder.layers.1.output" if name == "bart" else "layers.1.output"
    row = by_hand(pipe, good, bad, layer, 4, None)
    assert found.scores[1, 4] == pytest.approx(float(row[1]), rel=1e-3, abs=1e-4)
    assert found.position is None and found.answers == ("LABEL_1", None)
    assert {c.token for c in found.clean_top} == set(pipe.model.config.id2label.values())


def test_the_label_of_a_token_and_of_a_pair():
    pipe = tiny_pipeline("bert", "token-classification")
    found = patching(pipe, TEXT, EXCHANGED, position=3, answer="LABEL_0", layers=[2])
    assert found.effect[0, 3] == pytest.approx(1, abs=1e-3) and found.effect[0, 4] == pytest.approx(0, abs=1e-5)
    found = patching(tiny_pipeline("bert", "next-sentence"), "the cat", "the dog", pair="a dog", answer="it does not")
    assert found.clean[-2].segment == 1


def test_the_circuit_is_found():
    """The hand-built model answers with what came after the word before: layer 0 notes it, layer 1 looks for it."""
    pipe = copying_gpt2()
    clean, corrupted = "the cat sat on a mat . the cat sat", "the cat ran on a mat . the cat sat"
    stream = patching(pipe, clean, corrupted, tap="input", answer="on")
    assert [token.text for token in stream.clean] == ["[CLS]", *clean.split()]
    assert stream.clean_top[0].token == "on" and stream.corrupted_top[0].token != "on"
    # Layer 0 reads the word that was changed; layer 1 reads what was noted of it, one place further on.
    assert stream.effect[0, 3] == pytest.approx(1, abs=1e-4) and stream.effect[1, 4] == pytest.approx(1, abs=1e-3)
    rest = stream.effect.copy()
    rest[0, 3] = rest[1, 4] = 0
    assert np.abs(rest).max() < 1e-3
    assert stream.strongest in ((0, 3), (1, 4))
    heads = patching(pipe, clean, corrupted, tap="attention.heads", answer="on")
    assert heads.effect[0, 1] == pytest.approx(1, abs=1e-3)  # the head that looks back one place
    assert heads.effect[1, 0] == pytest.approx(1, abs=1e-3)  # the induction head
    assert np.abs(heads.effect[[0, 1], [0, 1]]).max() < 1e-5
    final = patching(pipe, clean, corrupted, answer="on")
    assert final.effect[1, -1] == pytest.approx(1, abs=1e-3)


def test_what_is_followed():
    pipe = tiny_pipeline("gpt2")
    own = patching(pipe, TEXT, EXCHANGED, layers=1)
    good, bad = (scores(pipe, pipe.read(text), -1) for text in (TEXT, EXCHANGED))
    assert int(good.argmax()) != int(bad.argmax())
    assert own.clean_score == pytest.approx(float(good.max() - good[bad.argmax()]), rel=1e-4)
    assert own.answers == (own.clean_top[0].token, own.corrupted_top[0].token)
    alone = patching(pipe, TEXT, EXCHANGED, layers=1, answer=7)
    assert alone.clean_score == pytest.approx(float(good[7]), rel=1e-4) and alone.answers[1] is None
    assert [c.token_id for c in alone.corrupted_top] == bad.topk(5).indices.tolist()


def test_few_rows_at_a_time(monkeypatch):
    pipe, (clean, corrupted) = tiny_pipeline("t5"), pair("t5")
    whole = patching(pipe, clean, corrupted)
    monkeypatch.setattr("clearhead.explain.scores._MOST_ROWS", 4)
    parts = patching(pipe, clean, corrupted)
    np.testing.assert_allclose(parts.effect, whole.effect, rtol=1e-3, atol=1e-4)


def test_as_data():
    found = patching(tiny_pipeline("gpt2"), TEXT, EXCHANGED, layers=[1], positions=[[4, 5], [6]])
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["effect"] == found.effect.tolist() and data["positions"] == [[4, 5], [6]]
    lines = found.to_csv().splitlines()
    assert lines[0].startswith("layer,position,") and lines[1].startswith("1,4 5,") and len(lines) == 3
    heads = patching(tiny_pipeline("gpt2"), TEXT, EXCHANGED, tap="attention.heads", heads=[1, 2])
    assert len(heads.to_csv().splitlines()) == 1 + 3 * 2


def test_what_cannot_be_asked():
    gpt, bert = tiny_pipeline("gpt2"), tiny_pipeline("bert")
    masked = TEXT.replace("mat", "[MASK]")
    for options, says in (
        ({"tap": "attention.head"}, "Did you mean attention.heads"), ({"tap": "logits"}, "no tensor 'logits'"),
        ({"tap": 3}, "name"), ({"by": "head"}, "not split into heads"), ({"by": "word"}, "by="),
        ({"heads": 1}, "leave the heads out"), ({"other": 3}, "answer too"), ({"answer": 3, "other": 3}, "Choose two"),
        ({"tap": "attention.heads", "positions": 1}, "leave the positions out"), ({"layers": 3}, "3 layers"),
        ({"positions": [[99]]}, "no position 99"), ({"top_k": 0}, "top_k"), ({"side": "encoder"}, "one stack"),
        ({"side": "cross"}, "cross_attention.output"), ({"position": 0}, "nothing to bring back"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says):
            patching(gpt, TEXT, EXCHANGED, **options)
    for pipe, clean, corrupted, says in (
        (gpt, TEXT, TEXT, "are the same"), (gpt, TEXT, TEXT + " cat", "(?s)not correspond.*clean:.*corrupted:"),
        (bert, TEXT, EXCHANGED, "in place of a word"),
        (tiny_pipeline("bert", "features"), TEXT, EXCHANGED, "no probabilities"),
        (bert, masked, TEXT.replace("mat", "cat").replace("sat", "[MASK]"), "another place"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says):
            patching(pipe, clean, corrupted)
