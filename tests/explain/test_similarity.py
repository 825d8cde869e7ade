"""CKA and CCA are what their definitions say, and tokens of two models stand beside each other where they should."""

import json

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import similarity
from clearhead.explain.inference import call
from clearhead.explain.layer_states import text_spans
from clearhead.explain.similarity import _LayerStates, _stretches, _value
from clearhead.nn.tracing import trace
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, TEXT, tiny_pipeline

LONG = [TEXT, "a dog sat on the sofa: unbelievably", "don't! the dog ran on and on, and the cat sat on a mat"]


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cka(x, y, unbiased=False):
    return _value(_LayerStates.of(x), _LayerStates.of(y), "cka", unbiased, 0.99)


def cca(x, y, variance=1.0):
    return _value(_LayerStates.of(x), _LayerStates.of(y), "cca", False, variance)


def written_out(x, y, unbiased):
    """From the squares of products between all tokens, centred by rows and columns."""
    n = len(x)
    p, q = x @ x.T, y @ y.T
    if not unbiased:
        h = torch.eye(n, dtype=torch.float64) - 1 / n

        def hsic(p, q):
            return torch.trace(h @ p @ h @ q)
    else:
        p, q = (m - torch.diag(torch.diagonal(m)) for m in (p, q))
        one = torch.ones(n, dtype=torch.float64)

        def hsic(p, q):
            rest = (one @ p @ one) * (one @ q @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * (one @ p @ q @ one)
            return (torch.trace(p @ q) + rest) / (n * (n - 3))

    return float(hsic(p, q) / (hsic(p, p) * hsic(q, q)).sqrt())


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("tokens", [9, 60])  # fewer than the numbers of a state, and more
def test_cka_is_its_definition(unbiased, tokens):
    x, y = normal(tokens, 20), normal(tokens, 30, seed=1) + 3
    y[:, :20] += 2 * x
    assert cka(x, y, unbiased) == pytest.approx(written_out(x, y, unbiased), rel=1e-9)
    assert 0.2 < cka(x, y, unbiased) < 0.95


@pytest.mark.parametrize("unbiased", [False, True])
def test_cka_does_not_see_rotation_size_or_place(unbiased):
    x = normal(40, 12) * torch.arange(1, 13)
    turned = torch.linalg.qr(normal(12, 12, seed=1))[0]
    assert cka(x, x, unbiased) == pytest.approx(1)
    assert cka(x, 7 * x @ turned + normal(12, seed=2), unbiased) == pytest.approx(1)
    stretched = torch.linspace(0.1, 9, 12).flip(0)
    assert cka(x, x * stretched, unbiased) < 0.9  # but any other linear map it does see


def test_unrelated_states():
    x, y = normal(50, 100), normal(50, 100, seed=1)
    assert cka(x, y) > 0.5  # with few tokens, chance looks like agreement
    assert abs(cka(x, y, unbiased=True)) < 0.05
    assert cka(normal(3000, 5), normal(3000, 5, seed=1)) < 0.01


def test_cca_does_not_see_any_invertible_map():
    x, y = normal(200, 6), normal(200, 4, seed=1)
    y[:, 0] = x[:, 0]
    plain = cca(x, y)
    assert cca(x, x @ normal(6, 6, seed=2)) == pytest.approx(1)
    assert cca(x @ normal(6, 6, seed=3) + 5, y @ normal(4, 4, seed=4)) == pytest.approx(plain)
    centred = [m - m.mean(0) for m in (x, y)]
    xx, yy, xy = (p.T @ q for p, q in ((centred[0],) * 2, (centred[1],) * 2, centred))
    squares = torch.linalg.eigvals(torch.linalg.solve(yy, xy.T) @ torch.linalg.solve(xx, xy)).real
    assert plain == pytest.approx(float(squares.sqrt().mean()), rel=1e-9)


def test_cca_keeps_few_directions():
    x = normal(100, 40)
    x[:, 0] *= 100
    layer = _LayerStates.of(x)
    assert layer.strongest(0.9).shape == (100, 1)  # one direction holds almost everything
    assert layer.strongest(1.0).shape == (100, 10)  # and never more than one for ten tokens
    assert cca(x, normal(100, 40, seed=1)) < 0.5


def states_of(pipe, text, side=""):
    names = f"{side}layers.0.input", f"{side}layers.*.output"
    nothing = {"target": ""} if side else {}
    with torch.no_grad(), trace(pipe.model, *names) as seen:
        call(pipe, pipe.read(text, **nothing))
    return [seen[name][0] for name in seen], pipe.read(text, **nothing).units


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL, *ENCODER_DECODER, "xlnet"])
def test_every_family(name):
    pipe = tiny_pipeline(name)
    found = similarity(pipe, TEXT)
    states, tokens = states_of(pipe, TEXT, "encoder." if name in ENCODER_DECODER else "")
    words = [n for n, token in enumerate(tokens) if not token.special]
    assert found.layers_a == found.layers_b == list(range(len(states))) and found.count == len(words)
    x, y = states[0][words].double(), states[-1][words].double()
    assert found.values[0, -1] == pytest.approx(written_out(x, y, False), rel=1e-5)
    np.testing.assert_allclose(np.diag(found.values), 1)
    np.testing.assert_allclose(found.values, found.values.T)
    assert (found.a, found.b, found.aligned) == (pipe.name, pipe.name, "tokens")


def test_tasks_without_words():
    for name, task in (("bert", "features"), ("bert", "sequence-classification"), ("bart", "sequence-classification"),
                       ("t5", "features")):  # fmt: skip
        assert np.isfinite(similarity(tiny_pipeline(name, task), TEXT).values).all()


def test_two_families_beside_each_other():
    """A model that reads pieces and one that reads bytes: the pieces that make a word in both are averaged."""
    bert, gpt = tiny_pipeline("bert"), tiny_pipeline("gpt2")
    found = similarity(bert, LONG, gpt, layers_a=[0, 3], layers_b=-1)
    rows = ([], [])
    for text in LONG:
        both = [states_of(pipe, text) for pipe in (bert, gpt)]
        spans = [text_spans(pipe.read(text), text) for pipe in (bert, gpt)]
        for ours, theirs in _stretches(text, *spans):
            rows[0].append(both[0][0][3][ours].mean(0))
            rows[1].append(both[1][0][3][theirs].mean(0))
            parts = ["".join(text[slice(*spans[side][n])] for n in group) for side, group in ((0, ours), (1, theirs))]
            assert parts[0] == parts[1] and parts[0].strip()  # the same characters, all of them
    x, y = (torch.stack(part).double() for part in rows)
    assert found.aligned == "stretches" and found.count == len(x) and found.values.shape == (2, 1)
    assert found.values[1, 0] == pytest.approx(written_out(x, y, False), rel=1e-5)
    back = similarity(gpt, LONG, bert, layers_b=[0, 3], layers_a=-1)
    np.testing.assert_allclose(back.values, found.values.T, rtol=1e-9)


def test_stretches():
    #       0123456789
    text = "abc de 我x"
    ours = [(0, 0), (0, 2), (2, 3), (4, 6), (7, 8), (7, 8), (8, 9)]  # the sign is two pieces
    theirs = [(0, 1), (1, 3), (4, 5), (5, 6), (7, 9)]
    assert _stretches(text, ours, theirs) == [([1, 2], [0, 1]), ([3], [2, 3]), ([4, 5, 6], [4])]
    assert _stretches("ab", [(0, 1)], [(1, 2)]) == []  # nothing that both have


def test_the_same_tokens_are_not_averaged():
    one, other = tiny_pipeline("gpt2"), tiny_pipeline("gpt_neo")
    found = similarity(one, LONG, other)
    assert found.aligned == "tokens" and found.count == sum(len(one.read(text).units) for text in LONG)
    twin = similarity(one, LONG, tiny_pipeline("gpt2"))
    assert twin.a != twin.b  # two models of one name can be told apart
    np.testing.assert_allclose(np.diag(twin.values), 1)


def test_chance_is_what_unrelated_states_get():
    pipe = tiny_pipeline("bert")
    biased, unbiased = (similarity(pipe, LONG, unbiased=way) for way in (False, True))
    assert abs(unbiased.shuffled_baseline) < 0.25 < biased.shuffled_baseline + 0.1
    assert biased.shuffled_baseline < biased.values.mean()
    assert 0 < similarity(pipe, LONG, measure="cca").shuffled_baseline < 1


def test_tokens_at_the_beginning_can_be_left_out():
    pipe = tiny_pipeline("gpt2")
    whole, part = similarity(pipe, LONG), similarity(pipe, LONG, skip=1)
    assert part.count == whole.count - len(LONG)
    assert not np.allclose(part.values, whole.values)


def test_as_data():
    found = similarity(tiny_pipeline("gpt2"), TEXT, layers_a=[0, 2], measure="cca")
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["values"] == found.values.tolist() and data["count"] == found.count
    lines = found.to_csv().splitlines()
    assert lines[0] == "layer_a,layer_b,cca" and len(lines) == 1 + 2 * 4 and lines[2].startswith("0,1,")


def test_states_that_are_all_alike():
    assert np.isnan(cka(torch.ones(9, 3) * 0.1, normal(9, 3))) and np.isnan(cca(normal(9, 3), torch.ones(9, 3)))


def test_what_cannot_be_asked():
    pipe = tiny_pipeline("gpt2")
    for texts, options, says in (
        (TEXT, {"measure": "cak"}, "or .cca., not .cak."), (TEXT, {"measure": "cca", "unbiased": True}, "chance"),
        (TEXT, {"variance": 0.0}, "share"), (TEXT, {"skip": -1}, "whole number"), ([], {}, "no text"),
        (TEXT, {"skip": 500}, "smaller skip"), ("the", {}, "more text"),
        (TEXT, {"layers_a": 4}, "0 .the embedding. to 3"), ([" "], {}, "at least one word"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says):
            similarity(pipe, texts, **options)
