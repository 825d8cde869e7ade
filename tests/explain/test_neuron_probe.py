"""Which neuron knows it: properties of texts, a planted neuron that is found, and texts that judge fairly."""

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import neuron_probe
from clearhead.explain.activations import corpus_activations
from clearhead.explain.text_properties import property_of
from clearhead.units import TokenUnit
from tests.tiny import TEXT, tiny_pipeline

TEXTS = [TEXT, "the dog sat", "a cat ran and the dog sat on the mat", "the mat and the cat", "a dog and a cat sat on"]


def units(text, special=()):
    return [TokenUnit(part, n, None if n in special else n) for n, part in enumerate(text.split("|"))]


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("inside-quotes", 'he said| "|come| here|",| and|"x"', [0, 1, 1, 1, 0, 0, 0]),
        ("inside-quotes", "他说：|“|来|”|。", [0, 1, 1, 0, 0]),
        ("inside-brackets", "a| (|b [c|]| d|)| e", [0, 1, 1, 1, 1, 0, 0]),
        ("position", "a|b|c", [1, 2, 3]),
        ("sentence-position", "a| b|.| c| d", [1, 2, 0, 1, 2]),
    ],
)
def test_properties(name, text, values):
    assert property_of(name, units(text)).tolist() == values


def test_special_tokens_have_no_property():
    assert np.isnan(property_of("position", units("<s>|a|b", special={0}))).tolist() == [True, False, False]


def test_a_neuron_that_counts_is_found():
    """A plain RNN whose unit 7 adds a little at every word, whatever the word: it counts."""
    pipe = tiny_pipeline("rnn", cell="rnn", num_hidden_layers=1)
    rnn = pipe.model.stack.layers[0].rnn
    with torch.no_grad():
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            getattr(rnn, name)[7] = 0
        rnn.weight_hh_l0[7, 7], rnn.bias_ih_l0[7] = 1.0, 0.01
    found = neuron_probe(pipe, TEXTS, "position", top=3)
    best = found.neurons[0]
    assert (best.layer, best.neuron) == (0, 7) and best.found > 0.999 and best.correlation > 0.999
    assert best.accuracy is None and found.total == 24 and found.texts == 2
    assert found.values.tolist() == list(range(1, len(found.tokens) + 1))
    assert found.activations.shape == (3, len(found.tokens))


def test_the_numbers_are_correlations():
    pipe = tiny_pipeline("gpt2")
    found = neuron_probe(pipe, TEXTS, "position", layers=1, top=4)
    halves = []
    for texts in (TEXTS[::2], TEXTS[1::2]):
        read = list(corpus_activations(pipe, texts, 1, None, 16))
        x = np.concatenate([one.activations for one in read], axis=1)
        halves.append((x, np.concatenate([property_of("position", one.tokens) for one in read])))
    for one in found.neurons:
        assert one.layer == 1
        for (x, y), r in zip(halves, (one.found, one.correlation), strict=True):
            assert r == pytest.approx(np.corrcoef(x[one.neuron], y)[0, 1], abs=1e-5)
    strength = [abs(one.found) for one in found.neurons]
    assert strength == sorted(strength, reverse=True)


def test_yes_or_no_is_told_by_a_threshold():
    texts = ['the cat "sat on" the mat', 'a "dog" ran', 'the "cat ran" and sat', 'the dog "sat" on']
    found = neuron_probe(tiny_pipeline("gpt2"), texts, "inside-quotes", top=2)
    assert all(0 <= one.accuracy <= 1 for one in found.neurons) and 0 < found.mean < 1
    pipe = tiny_pipeline("gpt2")
    best = found.neurons[0]
    values = {}
    for which, part in ((0, texts[::2]), (1, texts[1::2])):
        read = list(corpus_activations(pipe, part, best.layer, None, 16))
        x = np.concatenate([one.activations[best.neuron] for one in read])
        values[which] = x, np.concatenate([property_of("inside-quotes", one.tokens) for one in read]) > 0
    (x, y), (test, truth) = values[0], values[1]
    middle = (x[y].mean() + x[~y].mean()) / 2
    says = (test > middle) == (best.found > 0)
    assert best.accuracy == pytest.approx((says[truth].mean() + (~says[~truth]).mean()) / 2)


def test_of_one_text_the_first_half_chooses():
    pipe = tiny_pipeline("rnn")
    found = neuron_probe(pipe, [TEXT])
    count = len(pipe.read(TEXT).units)
    assert found.token_count == count - count // 2 and found.values[0] == count // 2 + 1


def test_reasons():
    pipe = tiny_pipeline("rnn")
    with pytest.raises(InputError, match="inside-quotes is the same at every token"):
        neuron_probe(pipe, TEXTS, "inside-quotes")
    with pytest.raises(InputError, match=r"no property 'inside-quote'.*Did you mean"):
        neuron_probe(pipe, TEXTS, "inside-quote")
    with pytest.raises(InputError, match="list"):
        neuron_probe(pipe, "one text")
    with pytest.raises(InputError):
        neuron_probe(pipe, [])
