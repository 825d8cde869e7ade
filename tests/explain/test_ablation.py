"""Taking a head away does what zeroing its part of the output matrix does, one head at a time, for every family."""

import json
import math

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import ablation
from clearhead.explain.inference import call
from clearhead.nn.tracing import trace
from tests.explain.copying import copying_gpt2
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, TEXT, texts, tiny_pipeline


def divergence(before, after):
    p, q = before.double().softmax(-1), after.double().softmax(-1)
    return float((p * (p.log() - q.log())).sum() / math.log(2))


def part_of(model, side, layer):
    stack = model.stack if side == "self" else model.encoder if side == "encoder" else model.decoder
    block = stack.layers[layer]
    return block.cross_attention if side == "cross" else block.attention


def without(pipe, side, layer, head, given, where):
    """The scores before and after, with the head's columns of the output matrix at zero."""
    attention = part_of(pipe.model, side, layer)
    own, size = attention.output.weight, attention.head_dim
    with torch.no_grad():
        before = call(pipe, pipe.read(**given)).logits[0]
        attention.output.weight = torch.nn.Parameter(own.clone())  # other layers may share it
        attention.output.weight[:, head * size : (head + 1) * size] = 0
        after = call(pipe, pipe.read(**given)).logits[0]
        attention.output.weight = own
    return (before, after) if where is None else (before[where], after[where])


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL, *ENCODER_DECODER])
def test_one_head_less(name):
    pipe, given = tiny_pipeline(name), texts(name)
    for side in ("encoder", "decoder", "cross") if name in ENCODER_DECODER else ("self",):
        found = ablation(pipe, **given, side=side)
        written = [t.id for t in pipe.read(**given).outputs]
        where = written.index(pipe.tokenizer.mask_token_id) if name in MASKED else len(written) - 1
        assert (found.position, found.side) == (where, side)
        assert found.effect.shape == (len(found.layers), len(found.heads)) and (found.effect >= 0).all()
        for layer, head in ((0, 1), (1, 2)):
            before, after = without(pipe, side, layer, head, given, where)
            assert found.effect[layer, head] == pytest.approx(divergence(before, after), rel=2e-3, abs=1e-5)
        before, after = without(pipe, side, *found.strongest, given, where)
        for shown, scores in ((found.before, before), (found.after, after)):
            assert [c.token_id for c in shown] == scores.topk(10).indices.tolist()
            assert [c.probability for c in shown] == pytest.approx(
                scores.softmax(-1).topk(10).values.tolist(), rel=1e-3
            )
        assert found.effect[found.strongest] == found.effect.max()


def test_a_chosen_score():
    pipe = tiny_pipeline("gpt2")
    found = ablation(pipe, TEXT, layers=[2], heads=[3], chosen=7, position=4)
    before, after = without(pipe, "self", 2, 3, {"text": TEXT}, 4)
    assert found.effect[0, 0] == pytest.approx(float(after[7] - before[7]), rel=1e-3, abs=1e-5)
    assert found.strongest == (2, 3) and "score" in found.metric
    assert found.after[0].token_id == int(after.argmax())


def test_a_head_that_says_the_same_everywhere():
    pipe = tiny_pipeline("gpt2")
    found = ablation(pipe, TEXT, layers=[1], heads=[2], how="mean")
    attention = pipe.model.stack.layers[1].attention
    size = attention.head_dim

    def average(heads):
        heads = heads.clone()
        heads[:, 2] = heads[:, 2].mean(1, keepdim=True)
        return heads

    with torch.no_grad():
        before = call(pipe, pipe.read(TEXT)).logits[0, -1]
        with trace(pipe.model, replace={"layers.1.attention.heads": average}):
            after = call(pipe, pipe.read(TEXT)).logits[0, -1]
    assert found.effect[0, 0] == pytest.approx(divergence(before, after), rel=1e-3)
    zero = ablation(pipe, TEXT, layers=[1], heads=[2]).effect[0, 0]
    assert found.effect[0, 0] != pytest.approx(zero, rel=1e-2) and size == 6


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart", "xlnet", "deberta"])
def test_the_label_of_a_text(name):
    pipe = tiny_pipeline(name, "sequence-classification", kind="wordpiece" if name != "bart" else None)
    found = ablation(pipe, TEXT)
    side = found.side
    before, after = without(pipe, side, 1, 0, {"text": TEXT}, None)
    assert found.effect[1, 0] == pytest.approx(divergence(before, after), rel=2e-3, abs=1e-6)
    assert found.position is None
    assert {c.token for c in found.before} == set(pipe.model.config.id2label.values())
    label = pipe.model.config.id2label[1]
    chosen = ablation(pipe, TEXT, chosen=label)
    assert chosen.effect[1, 0] == pytest.approx(float(after[1] - before[1]), rel=2e-3, abs=1e-5)
    with pytest.raises(InputError, match="Did you mean LABEL_1"):
        ablation(pipe, TEXT, chosen="LABEL1")


def test_the_label_of_a_token_and_of_a_pair():
    pipe = tiny_pipeline("bert", "token-classification")
    found = ablation(pipe, TEXT, position=3)
    before, after = without(pipe, "self", 0, 1, {"text": TEXT}, 3)
    assert found.effect[0, 1] == pytest.approx(divergence(before, after), rel=2e-3, abs=1e-6)
    found = ablation(tiny_pipeline("bert", "next-sentence"), "the cat", "a dog")
    assert {c.token for c in found.before} == {"the second text follows", "it does not"}


def test_labels_that_are_not_rivals():
    pipe = tiny_pipeline("bert", "sequence-classification", problem_type="multi_label_classification")
    with pytest.raises(InputError, match="each label by itself"):
        ablation(pipe, TEXT)
    found = ablation(pipe, TEXT, chosen="LABEL_1")
    assert all(c.probability == pytest.approx(1 / (1 + math.exp(-c.logit)), rel=1e-5) for c in found.before)


def test_the_circuit_is_found():
    """In the hand-built model two heads do the work, and the other two do nothing."""
    found = ablation(copying_gpt2(), "the cat sat on a mat . the cat sat")
    assert found.before[0].token == "on" and found.after[0].token != "on"
    assert (found.effect[[0, 1], [1, 0]] > 1).all()
    assert (found.effect[[0, 1], [0, 1]] < 1e-6).all()


def test_few_rows_at_a_time(monkeypatch):
    pipe = tiny_pipeline("t5")
    whole = ablation(pipe, TEXT, target="a dog")
    monkeypatch.setattr("clearhead.explain.scores._MOST_ROWS", 3)
    parts = ablation(pipe, TEXT, target="a dog")
    np.testing.assert_allclose(parts.effect, whole.effect, rtol=1e-3, atol=1e-6)


def test_the_first_word_written_by_default():
    pipe = tiny_pipeline("t5")
    assert [t.id for t in ablation(pipe, TEXT, side="decoder").tokens] == [pipe.model.config.decoder_start_token_id]


def test_as_data():
    found = ablation(tiny_pipeline("gpt2"), TEXT, layers=[1])
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["effect"] == found.effect.tolist() and data["before"][0]["token"] == found.before[0].token
    assert len(found.to_csv().splitlines()) == 1 + 4


def test_what_cannot_be_asked():
    gpt, bert = tiny_pipeline("gpt2"), tiny_pipeline("bert")
    for pipe, options, says in (
        (gpt, {"how": "half"}, "how="), (gpt, {"top_k": 0}, "top_k"), (bert, {}, "in place of a word"),
        (tiny_pipeline("bert", "features"), {}, "no probabilities"),
        (tiny_pipeline("electra", "replaced-token"), {}, "no probabilities"),
        (tiny_pipeline("bert", "sequence-classification"), {"position": 1}, "leave the position out"),
        (tiny_pipeline("bert", "token-classification"), {}, "Say which position"),
        (gpt, {"position": 77}, "no position 77"),
        (tiny_pipeline("xlnet"), {}, "no probabilities"), (gpt, {"layers": 9}, "3 layers"),
        (gpt, {"chosen": "cat dog"}, "tokens"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says):
            ablation(pipe, TEXT, **options)
