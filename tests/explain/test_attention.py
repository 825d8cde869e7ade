"""Attention weights are the model's own, for every family; the heads' summaries find what is known to be there."""

import json
import math

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import attention, induction_scores
from clearhead.explain.inference import call
from clearhead.nn.tracing import trace
from clearhead.text.units import word_groups
from tests.explain.copying import copying_gpt2
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, TEXT, texts, tiny_pipeline

REPEATED = "the cat sat on a mat . the cat sat"


def sides(name):
    return ("encoder", "decoder", "cross") if name in ENCODER_DECODER else ("self",)


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL, *ENCODER_DECODER, "xlnet"])
def test_weights_are_the_models_own(name):
    pipe, given = tiny_pipeline(name), texts(name)
    for side in sides(name):
        found = attention(pipe, **given, side=side)
        prefix = {"self": "", "encoder": "encoder.", "decoder": "decoder.", "cross": "decoder."}[side]
        part = "cross_attention" if side == "cross" else "attention"
        with torch.no_grad(), trace(pipe.model, f"{prefix}layers.*.{part}.weights") as seen:
            call(pipe, pipe.read(**given))
        want = torch.stack([seen[f"{prefix}layers.{n}.{part}.weights"][0] for n in range(len(found.layers))]).numpy()
        past = want.shape[-1] - len(found.tokens) if name == "transfo-xl" else 0
        if past:  # all that is remembered is one key
            assert (past, found.keys[0].text) == (4, "memory")
            want = np.concatenate((want[..., :past].sum(-1, keepdims=True), want[..., past:]), -1)
        np.testing.assert_array_equal(found.weights, want)
        assert found.weights.shape == (len(found.layers), len(found.heads), len(found.tokens), len(found.keys))
        np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-5)
        assert (found.side, found.model) == (side, f"tiny {name}")
        hides_later = np.triu(np.ones(found.weights.shape[-2:]), 1 + (past > 0)).astype(bool)
        assert (found.weights[..., hides_later] == 0).all() == (name in CAUSAL or side == "decoder")


def test_two_texts():
    pipe = tiny_pipeline("bert")
    found = attention(pipe, "the cat sat", "a dog sat")
    with torch.no_grad():
        out = pipe.model(**pipe.tokenizer("the cat sat", "a dog sat", return_tensors="pt"), output_attentions=True)
    np.testing.assert_array_equal(found.weights[1], out.attentions[1][0].numpy())
    assert [t.segment for t in found.tokens] == [0] * 5 + [1] * 4


def test_only_what_was_asked_for():
    pipe = tiny_pipeline("gpt2")
    whole = attention(pipe, TEXT)
    some = attention(pipe, TEXT, layers=[2, -3], heads=[3, 1])
    assert (some.layers, some.heads) == ([2, 0], [3, 1])
    # layer 1, which nobody looks at, takes the fused path: the same but for rounding
    np.testing.assert_allclose(some.weights, whole.weights[[2, 0]][:, [3, 1]], atol=1e-6)
    np.testing.assert_array_equal(some.head(0, 1), whole.head(0, 1))
    assert [(s.layer, s.head) for s in some.summaries] == [(2, 3), (2, 1), (0, 3), (0, 1)]
    entropy = {(s.layer, s.head): s.entropy for s in whole.summaries}
    assert [s.entropy for s in some.summaries] == pytest.approx([entropy[s.layer, s.head] for s in some.summaries])
    assert attention(pipe, TEXT, layers=1, heads=-1).weights.shape[:2] == (1, 1)
    with pytest.raises(InputError, match="is not in this finding"):
        some.head(1, 1)


def test_no_other_layer_is_looked_at(monkeypatch):
    """Layers that nobody asked for take the fused path and keep nothing."""
    import clearhead.nn.attention as inside

    pipe, seen = tiny_pipeline("gpt2"), []
    compute = inside.attention_weights
    monkeypatch.setattr(
        inside, "attention_weights", lambda module, *a, **k: seen.append(module) or compute(module, *a, **k)
    )
    attention(pipe, TEXT, layers=[1])
    assert seen == [pipe.model.stack.layers[1].attention]


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "transfo-xl"])
def test_whole_words(name):
    pipe = tiny_pipeline(name)
    given = texts(name) | {"text": "unbelievably dogs don't sit on sofas"}
    for side in sides(name):
        pieces = attention(pipe, **given, side=side)
        words = attention(pipe, **given, side=side, words=True)
        assert len(words.tokens) < len(pieces.tokens)
        np.testing.assert_allclose(words.weights.sum(-1), 1, atol=1e-5)
        from_, to = word_groups(pieces.tokens), word_groups(pieces.keys)
        for n, h in ((0, 0), (1, 2)):
            by_hand = [
                [np.mean([pieces.weights[n, h, q, word].sum() for q in asking]) for word in to] for asking in from_
            ]
            np.testing.assert_allclose(words.weights[n, h], by_hand, atol=1e-6)
        assert repr(words.summaries) == repr(pieces.summaries) and words.words and not pieces.words
    text = [word.text.strip() for word in attention(pipe, **given, words=True).keys]
    assert {"unbelievably", "don't"} <= set(text)


def test_summaries_by_the_book():
    pipe = tiny_pipeline("gpt2", kind="wordpiece")
    found = attention(pipe, REPEATED)
    ids = [t.id for t in found.tokens]
    time = len(ids)
    for s in found.summaries:
        w = found.head(s.layer, s.head).astype(np.float64)
        entropies = [-sum(p * math.log2(p) for p in row if p) for row in w]
        assert s.entropy == pytest.approx(np.mean(entropies), rel=1e-4)
        assert s.distance == pytest.approx(
            np.mean([sum(w[i, j] * abs(i - j) for j in range(time)) for i in range(time)])
        )
        assert s.to_previous == pytest.approx(np.mean([w[i, i - 1] for i in range(1, time)]))
        assert s.to_separator == pytest.approx(w[1:, 0].mean())  # [CLS], which is also the first token
        same = {i: [j for j in range(i) if ids[j] == ids[i]] for i in range(time)}
        assert s.to_same == pytest.approx(np.mean([w[i, j].sum() for i, j in same.items() if j]))
        after = {i: [j + 1 for j in js if j + 1 < i] for i, js in same.items()}
        assert s.induction == pytest.approx(np.mean([w[i, j].sum() for i, j in after.items() if j]))


def test_summaries_where_there_is_nothing_to_say():
    found = attention(tiny_pipeline("bert"), "the cat")
    assert all(math.isnan(s.to_same) and math.isnan(s.induction) for s in found.summaries)
    cls_and_sep = found.weights[..., [0, -1]].sum(-1).mean(-1).ravel()
    np.testing.assert_allclose([s.to_separator for s in found.summaries], cls_and_sep, rtol=1e-5)
    cross = attention(tiny_pipeline("t5"), **texts("t5"))
    assert all(math.isnan(s.distance) and math.isnan(s.to_previous) and s.entropy > 0 for s in cross.summaries)
    one = attention(tiny_pipeline("gpt2", kind="bpe"), "a")
    assert len(one.tokens) == 1 and math.isnan(one.summaries[0].to_previous) and one.summaries[0].to_separator == 1
    json.dumps(one.to_dict(), allow_nan=False)


def test_an_induction_head_is_found():
    pipe = copying_gpt2()
    found = attention(pipe, REPEATED)
    first, second = found.sorted_by("induction")[:2]
    assert (first.layer, first.head) == (1, 0) and first.induction > 0.99 > 0.5 > second.induction
    first, second = found.sorted_by("to_previous")[:2]
    assert (first.layer, first.head) == (0, 1) and first.to_previous > 0.99 > 0.5 > second.to_previous
    scores = induction_scores(pipe)
    assert np.unravel_index(scores.argmax(), scores.shape) == (1, 0)
    assert scores[1, 0] > 0.9 and np.delete(scores.ravel(), 2).max() < 0.1
    np.testing.assert_array_equal(scores, induction_scores(pipe))


def test_induction_in_any_single_stack():
    for name in ("gpt2", "gptj", "transfo-xl", "bert"):
        scores = induction_scores(tiny_pipeline(name), length=4, rows=2)
        assert scores.shape == (3, 4 if name == "gpt2" else 3) and (scores > 0).all() and (scores < 1).all()
    with pytest.raises(InputError, match="one stack"):
        induction_scores(tiny_pipeline("t5"))
    with pytest.raises(InputError, match="at least two"):
        induction_scores(tiny_pipeline("gpt2"), length=1)


def test_sorting():
    found = attention(tiny_pipeline("gpt2"), TEXT)
    up = [s.entropy for s in found.sorted_by("entropy", lowest=True)]
    assert up == sorted(up) and up[::-1] == [s.entropy for s in found.sorted_by("entropy")]
    assert len(up) == 12
    with pytest.raises(InputError, match="Did you mean entropy"):
        found.sorted_by("entropi")
    cross = attention(tiny_pipeline("t5"), **texts("t5"))
    assert len(cross.sorted_by("induction")) == 6


def test_as_a_table_and_as_data():
    found = attention(tiny_pipeline("gpt2"), "the cat", layers=[1], heads=[2])
    rows = found.to_csv().splitlines()
    size = len(found.tokens)
    assert rows[0] == "layer,head,query,query_token,key,key_token,weight"
    assert len(rows) == 1 + size**2
    assert rows[-1].startswith(f"1,2,{size - 1},") and float(rows[-1].split(",")[-1]) == found.weights[0, 0, -1, -1]
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["kind"] == "attention" and np.allclose(data["weights"], found.weights)
    assert data["tokens"][0]["text"] == "the"


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("gpt2", {"layers": [3]}, "3 layers"), ("gpt2", {"heads": 4}, "4 heads"), ("gpt2", {"layers": []}, "empty"),
        ("gpt2", {"side": "cross"}, "one stack"), ("t5", {"side": "self"}, "an encoder and a decoder"),
        ("t5", {"side": "encoder", "layers": 3}, "the encoder has 3 layers"), ("gpt2", {"heads": "x"}, "whole number"),
        ("gpt2", {"target": "a"}, "target"), ("bert", {"layers": True}, "whole number"),
    ],
)  # fmt: skip
def test_what_is_not_there(name, options, says):
    with pytest.raises(InputError, match=says):
        attention(tiny_pipeline(name), TEXT, **options)


def test_an_encoder_needs_no_answer(monkeypatch):
    pipe = tiny_pipeline("t5")
    monkeypatch.setattr(pipe, "write", lambda *a, **k: pytest.fail("it wrote"))
    assert attention(pipe, TEXT, side="encoder").side == "encoder"
