"""Factors: themes that were put in are found again, the same each time, and the error is what is left over."""

import json

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import factors, neurons
from clearhead.nn.tracing import trace
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, TEXT, texts, tiny_pipeline


def with_activations(pipe, wanted):
    """A trace under which the first layer's neurons say what they are told: wanted (tokens, neurons)."""
    return trace(
        pipe.model,
        replace={"layers.0.feedforward.hidden": lambda x: torch.as_tensor(wanted, dtype=x.dtype).expand_as(x)},
    )


@pytest.mark.parametrize("name", [*CAUSAL, *MASKED, *ENCODER_DECODER])
def test_every_family_and_side(name):
    pipe = tiny_pipeline(name)
    for side in ("encoder", "decoder") if name in ENCODER_DECODER else (None,):
        found = factors(pipe, **texts(name), n=3, side=side)
        whole = neurons(pipe, **texts(name), side=side, top=None)
        assert found.side == side
        assert found.layers == whole.layers
        assert [t.id for t in found.tokens] == [t.id for t in whole.tokens]
        assert found.factors.shape == (3, len(found.tokens))
        assert (found.factors >= 0).all()
        np.testing.assert_allclose(found.factors.max(1), 1)
        assert found.weights.sum() == pytest.approx(1)
        assert (np.diff(found.weights) <= 0).all()
        assert 0 <= found.error < 1
        below = np.square(whole.activations.clip(max=0)).sum() / np.square(whole.activations).sum()
        assert found.clipped == pytest.approx(below, abs=1e-4)


def test_planted_themes_are_found():
    pipe = tiny_pipeline("gpt2")
    count, width = len(pipe.tokenizer.encode(TEXT)), 20
    themes = np.zeros((3, count))
    themes[0, :3], themes[1, 3:7], themes[2, 7:] = 1, 0.5, 1
    who = np.zeros((width, 3))
    who[:8, 0], who[8:14, 1], who[14:, 2] = 3, 2, 1
    who[2, 0] = 9
    activations = (who @ themes).T
    activations[:, 19] = -5  # below zero: left out
    with with_activations(pipe, activations):
        found = factors(pipe, TEXT, 0, n=3)
    assert found.error < 1e-3
    assert found.clipped == pytest.approx(25 * count / np.square(activations).sum(), rel=1e-4)
    assert found.layers == [0]
    expected = {tuple(theme > 0) for theme in themes}
    assert {tuple(row > 0.5) for row in found.factors} == expected
    heaviest = found.neurons[[tuple(row > 0.5) for row in found.factors].index(tuple(themes[0] > 0))]
    assert heaviest[0] == (0, 2, pytest.approx(9, rel=1e-2))
    assert len(heaviest) == 8


def test_the_neurons_of_a_range_have_their_layers():
    pipe = tiny_pipeline("gpt2")
    found = factors(pipe, TEXT, range(1, 3), n=4, top=5)
    assert found.layers == [1, 2]
    named = {(layer, index): row for (layer, index), row in _rows(pipe, [1, 2]).items()}
    for k, listed in enumerate(found.neurons):
        assert len(listed) == 5
        assert all(layer in (1, 2) for layer, _, _ in listed)
        assert [s for _, _, s in listed] == sorted((s for _, _, s in listed), reverse=True)
        layer, index, strength = listed[0]
        peak = int(found.factors[k].argmax())
        assert strength <= named[layer, index][peak] * 1.5 + 0.5  # it does fire where the factor peaks


def _rows(pipe, layers):
    whole = neurons(pipe, TEXT, layers, top=None)
    return dict(zip(whole.neurons, whole.activations, strict=True))


def test_the_same_each_time_and_closer_with_more():
    pipe = tiny_pipeline("gpt2")
    one, two = (factors(pipe, TEXT, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.factors, two.factors)
    assert one.neurons == two.neurons
    assert (one.error, one.seed) == (two.error, 3)
    errors = [factors(pipe, TEXT, n=n).error for n in (1, 3, 6, 9)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 2


def test_the_error_is_what_is_left_over():
    pipe = tiny_pipeline("gpt2")
    found = factors(pipe, TEXT, 0, n=2, top=20)
    positive = np.zeros((20, len(found.tokens)))
    for (_, index), row in _rows(pipe, [0]).items():
        positive[index] = row.clip(min=0)
    strengths = np.zeros((20, 2))
    for k, listed in enumerate(found.neurons):
        for _, index, strength in listed:
            strengths[index, k] = strength
    left = np.linalg.norm(positive - strengths @ found.factors) / np.linalg.norm(positive)
    assert found.error == pytest.approx(left, rel=1e-4)


def test_as_plain_data():
    found = factors(tiny_pipeline("gpt2"), TEXT, n=2)
    assert json.loads(json.dumps(found.to_dict()))["kind"] == "factors"
    assert len(found.to_csv().splitlines()) == 1 + 2 * len(found.tokens)


def test_what_cannot_be_taken_apart():
    pipe = tiny_pipeline("gpt2")
    for wrong, words in (
        ({"n": 0}, "n is 0"),
        ({"n": 99}, "99 factors"),
        ({"top": 0}, "top is 0"),
        ({"layers": 9}, "9"),
    ):
        with pytest.raises(InputError, match=words):
            factors(pipe, TEXT, **wrong)
    with with_activations(pipe, np.full(1, -1.0)), pytest.raises(InputError, match="above zero"):
        factors(pipe, TEXT, 0)
