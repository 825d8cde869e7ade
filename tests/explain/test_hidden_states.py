"""After each layer the model's own head speaks: the last layer is the model's answer to the bit, for every family."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

from clearhead.errors import InputError
from clearhead.explain import Comparison, HiddenStates, hidden_states
from clearhead.explain.hidden_states import to_words
from clearhead.explain.inference import call
from clearhead.nn.tracing import trace
from tests.explain.copying import copying_gpt2
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, TEXT, texts, tiny_pipeline


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL, *ENCODER_DECODER])
def test_the_last_layer_is_the_model(name):
    pipe, given = tiny_pipeline(name), texts(name)
    reading = pipe.read(**given)
    stack = pipe.model.decoder if name in ENCODER_DECODER else pipe.model.stack
    last = f"{'decoder.' if name in ENCODER_DECODER else ''}layers.{len(stack.layers) - 1}.output"
    with torch.no_grad(), trace(pipe.model, last) as seen:
        logits = call(pipe, reading).logits
    assert torch.equal(to_words(pipe.model, seen[last]), logits)

    everywhere = list(range(len(reading.outputs)))
    found = hidden_states(pipe, **given, positions=everywhere, top_k=3)
    assert isinstance(found, HiddenStates)
    assert found.layers == list(range(len(stack.layers) + 1)) and found.positions == everywhere
    chosen = torch.tensor([c.id for c in found.chosen])[:, None]
    chances = logits[0].softmax(-1)
    assert torch.equal(torch.tensor(found.probabilities[-1]), chances.gather(-1, chosen)[:, 0])
    order = logits[0].argsort(-1, descending=True)
    assert found.ranks[-1].tolist() == [
        row.tolist().index(int(id_)) + 1 for row, id_ in zip(order, chosen, strict=True)
    ]
    best = chances.topk(3)
    assert [[p for _, p in top] for top in found.top[-1]] == best.values.tolist()
    assert found.predicts == ("here" if name in MASKED else "next")
    assert [t.text for t in found.source] == [t.text for t in reading.units if name in ENCODER_DECODER]


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL, *ENCODER_DECODER])
def test_a_layer_is_what_a_model_of_fewer_layers_says(name):
    pipe, given = tiny_pipeline(name), texts(name)
    found = hidden_states(pipe, **given, positions=[2])
    stack = pipe.model.decoder if name in ENCODER_DECODER else pipe.model.stack
    stack.layers = nn.ModuleList(list(stack.layers)[:1])
    with torch.no_grad():
        chances = call(pipe, pipe.read(**given)).logits[0, 2].softmax(-1)
    assert found.probabilities[1, 0] == pytest.approx(float(chances[found.chosen[0].id]), rel=1e-4)
    assert [p for _, p in found.top[1][0]] == pytest.approx(chances.topk(5).values.tolist(), rel=1e-4)


def test_which_token_is_followed():
    gpt = tiny_pipeline("gpt2")
    ids = [t.id for t in gpt.read(TEXT).units]
    found = hidden_states(gpt, TEXT)
    assert [c.id for c in found.chosen[:-1]] == ids[1:]
    assert found.ranks[-1, -1] == 1  # nothing follows the last token: the model's own choice
    assert {c.id for c in hidden_states(gpt, TEXT, chosen=" cat").chosen} == set(gpt.tokenizer.encode(" cat"))
    assert [c.id for c in hidden_states(gpt, TEXT, positions=[-1, 0], chosen=[7, 8]).chosen] == [7, 8]
    bert = tiny_pipeline("bert")
    found = hidden_states(bert, "the [MASK] sat on the [MASK]")
    assert found.positions == [2, 6] and found.ranks[-1].tolist() == [1, 1]
    assert hidden_states(bert, "the [MASK] sat", positions=1).chosen[0].text == "the"
    t5 = tiny_pipeline("t5")
    found = hidden_states(t5, TEXT, target="a dog")
    assert [c.id for c in found.chosen[:-1]] == [t.id for t in found.tokens[1:]]


def test_candidates_compared():
    pipe = tiny_pipeline("gpt2")
    found = hidden_states(pipe, TEXT, candidates=[5, " cat", 9])
    assert isinstance(found, Comparison) and found.position == len(found.tokens) - 1
    assert found.ranks.shape == found.probabilities.shape == (4, 3)
    for column, candidate in enumerate(found.candidates):
        alone = hidden_states(pipe, TEXT, positions=[-1], chosen=candidate.id)
        assert found.ranks[:, column].tolist() == alone.ranks[:, 0].tolist()
        np.testing.assert_allclose(found.probabilities[:, column], alone.probabilities[:, 0], rtol=1e-6)
    assert hidden_states(tiny_pipeline("bert"), "the [MASK] sat on [MASK]", candidates=["cat", "dog"]).position == 2


def test_an_answer_appears_where_it_is_made():
    """The hand-built model knows what follows only after its second layer."""
    found = hidden_states(copying_gpt2(), "the cat sat on a mat . the cat sat", positions=[-1], chosen="on")
    assert (found.probabilities[:2, 0] < 0.05).all() and found.probabilities[2, 0] > 0.99


def test_many_positions_share_memory(monkeypatch):
    pipe = tiny_pipeline("bert")
    whole = hidden_states(pipe, TEXT, positions=range(9))
    monkeypatch.setattr(sys.modules["clearhead.explain.hidden_states"], "_AT_ONCE", 2 * pipe.model.config.vocab_size)
    parts = hidden_states(pipe, TEXT, positions=range(9))
    assert parts.ranks.tolist() == whole.ranks.tolist() and parts.chosen == whole.chosen
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, rtol=1e-5)
    assert [[t[0][0] for t in layer] for layer in parts.top] == [[t[0][0] for t in layer] for layer in whole.top]


def test_as_data():
    found = hidden_states(tiny_pipeline("gpt2"), "the cat", top_k=2)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["ranks"] == found.ranks.tolist() and len(data["top"][0][0]) == 2
    assert len(found.to_csv().splitlines()) == 1 + found.ranks.size
    compared = hidden_states(tiny_pipeline("gpt2"), "the cat", candidates=[1, 2])
    assert compared.to_csv().splitlines()[0] == "layer,candidate,rank,probability"


def test_what_cannot_be_shown():
    gpt, bert = tiny_pipeline("gpt2"), tiny_pipeline("bert")
    for pipe, options, says in (
        (tiny_pipeline("xlnet"), {}, "stream of its own"),
        (tiny_pipeline("bert", "sequence-classification"), {}, "language model"),
        (bert, {}, "no hidden word"), (gpt, {"top_k": 0}, "top_k"), (gpt, {"chosen": [1, 2]}, "2 tokens are chosen"),
        (gpt, {"candidates": [1]}, "two candidates"), (gpt, {"candidates": " cat"}, "two candidates"),
        (gpt, {"candidates": [1, 2], "chosen": 3}, "not both"), (gpt, {"positions": [99]}, "no position 99"),
        (gpt, {"candidates": [1, 2], "positions": [0, 1]}, "one position"), (gpt, {"chosen": 5000}, "no token 5000"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says):
            hidden_states(pipe, TEXT, **options)
