"""RNN, LSTM and GRU: torch.nn's numbers and state dicts, fused and step by step; every gate announced."""

import pytest
import torch
from torch import nn as torch_nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import clearhead as ch
from clearhead import nn
from clearhead.errors import InputError

KINDS = ["RNN", "LSTM", "GRU"]
OPTIONS = [
    {},
    {"num_layers": 3, "bidirectional": True},
    {"num_layers": 2, "batch_first": True, "bias": False},
    {"num_layers": 2, "bidirectional": True, "batch_first": True, "proj_size": 3},
    {"nonlinearity": "relu"},
]


def both(kind, **options):
    if "proj_size" in options and kind != "LSTM":
        pytest.skip("only an LSTM projects")
    if "nonlinearity" in options and kind != "RNN":
        pytest.skip("only an RNN has a choice")
    torch.manual_seed(len(str(options)))
    theirs = getattr(torch_nn, kind)(5, 4, **options)
    ours = getattr(nn, kind)(5, 4, **options)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    return ours.eval(), theirs.eval()


def flat(result):
    output, states = result
    if isinstance(output, torch_nn.utils.rnn.PackedSequence):
        output, lengths = pad_packed_sequence(output, batch_first=True)
        return [output, lengths, *(states if isinstance(states, tuple) else (states,))]
    return [output, *(states if isinstance(states, tuple) else (states,))]


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def states_for(module, batch):
    count = module.num_layers * (2 if module.bidirectional else 1)
    h = torch.randn(count, *batch, module.proj_size or module.hidden_size)
    return (h, torch.randn(count, *batch, module.hidden_size)) if module.mode == "LSTM" else h


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_torchs_numbers_fused_and_traced(kind, options):
    ours, theirs = both(kind, **options)
    x = torch.randn(3, 7, 5)
    for given, hx in [
        (x, None),
        (x, states_for(ours, (7 if not ours.batch_first else 3,))),
        (x[0], states_for(ours, ())),
    ]:
        expected = flat(theirs(given, hx))
        same(flat(ours(given, hx)), expected)
        with ch.trace(ours, "layers.*.hidden"):
            same(flat(ours(given, hx)), expected)


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_texts_of_several_lengths(kind, enforce_sorted):
    ours, theirs = both(kind, num_layers=2, bidirectional=True, batch_first=True)
    lengths = [6, 4, 1] if enforce_sorted else [4, 6, 1]
    packed = pack_padded_sequence(torch.randn(3, 6, 5), lengths, batch_first=True, enforce_sorted=enforce_sorted)
    hx = states_for(ours, (3,))
    expected = flat(theirs(packed, hx))
    same(flat(ours(packed, hx)), expected)
    with ch.trace(ours, "**.hidden") as seen:
        same(flat(ours(packed, hx)), expected)
    top = torch.cat([seen["layers.1.hidden"], seen["layers.1.reverse.hidden"]], -1)
    torch.testing.assert_close(top, expected[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_through_the_explicit_path(kind):
    ours, theirs = both(kind, num_layers=2)
    x = torch.randn(4, 2, 5)
    theirs(x)[0].square().sum().backward()
    with ch.trace(ours, "layers.0.hidden"):
        ours(x)[0].square().sum().backward()
    for name, weight in theirs.named_parameters():
        torch.testing.assert_close(ours.get_parameter(name).grad, weight.grad, atol=1e-5, rtol=1e-4)


def test_an_lstms_gates_are_its_formulas():
    ours, _ = both("LSTM", batch_first=True)
    x = torch.randn(2, 3, 5)
    with ch.trace(ours, "layers.0.*") as seen:
        ours(x)
    assert {name.removeprefix("layers.0.") for name in seen} == set(nn.LSTM.taps_of_a_layer)
    gate = {name.removeprefix("layers.0."): tensor for name, tensor in seen.items()}
    before = torch.cat([torch.zeros(2, 1, 4), gate["cell"][:, :-1]], 1)
    torch.testing.assert_close(gate["cell"], gate["forget_gate"] * before + gate["input_gate"] * gate["candidate"])
    torch.testing.assert_close(gate["hidden"], gate["output_gate"] * gate["cell"].tanh())
    h = torch.cat([torch.zeros(2, 1, 4), gate["hidden"][:, :-1]], 1)
    scores = x @ ours.weight_ih_l0.T + ours.bias_ih_l0 + h @ ours.weight_hh_l0.T + ours.bias_hh_l0
    torch.testing.assert_close(gate["from_input"], x @ ours.weight_ih_l0.T + ours.bias_ih_l0)
    torch.testing.assert_close(gate["from_state"], h @ ours.weight_hh_l0.T + ours.bias_hh_l0)
    torch.testing.assert_close(gate["input_gate"], scores[..., :4].sigmoid())
    torch.testing.assert_close(gate["forget_gate"], scores[..., 4:8].sigmoid())
    torch.testing.assert_close(gate["candidate"], scores[..., 8:12].tanh())
    torch.testing.assert_close(gate["output_gate"], scores[..., 12:].sigmoid())


def test_a_grus_gates_are_its_formulas():
    ours, _ = both("GRU", batch_first=True)
    with ch.trace(ours, "layers.0.*") as seen:
        ours(torch.randn(2, 3, 5))
    update, candidate, hidden = (seen[f"layers.0.{name}"] for name in ("update_gate", "candidate", "hidden"))
    before = torch.cat([torch.zeros(2, 1, 4), hidden[:, :-1]], 1)
    torch.testing.assert_close(hidden, (1 - update) * candidate + update * before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_replaced_state_is_what_the_next_step_reads(kind):
    ours, theirs = both(kind, batch_first=True)
    x = torch.randn(2, 5, 5)

    def without_step_2(hidden):
        hidden = hidden.clone()
        hidden[:, 2] = 0
        return hidden

    with ch.trace(ours, "layers.0.hidden", replace={"layers.0.hidden": without_step_2}, every=True) as seen:
        output, _ = ours(x)
    assert len(seen.calls("layers.0.hidden")) == 1
    first, states = theirs(x[:, :3])
    torch.testing.assert_close(output[:, :2], first[:, :2], atol=1e-6, rtol=1e-5)
    assert not output[:, 2].any()
    if kind == "LSTM":
        states = (torch.zeros_like(states[0]), states[1])
    else:
        states = torch.zeros_like(states)
    torch.testing.assert_close(output[:, 3:], theirs(x[:, 3:], states)[0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(seen["layers.0.hidden"], output)


def test_dropout_between_layers_in_training_only():
    module = nn.LSTM(5, 4, num_layers=2, dropout=1.0)  # in training the second layer reads nothing
    x = torch.randn(3, 2, 5)
    with ch.trace(module, "layers.*.hidden") as trained:
        module(x)
    with ch.trace(module, replace={"layers.0.hidden": torch.zeros(2, 3, 4)}):
        nothing, _ = module.eval()(x)
    torch.testing.assert_close(trained["layers.1.hidden"].transpose(0, 1), nothing)
    assert trained["layers.0.hidden"].any() and not torch.allclose(module(x)[0], nothing)


def test_what_does_not_fit_is_refused_in_torchs_words():
    module = nn.GRU(5, 4)
    with ch.trace(module, "layers.0.hidden"), pytest.raises(RuntimeError, match=r"input\.size"):
        module(torch.randn(3, 2, 6))
    with (
        ch.trace(module, replace={"layers.0.hidden": torch.zeros(1)}),
        pytest.raises(InputError, match=r"layers\.0\.hidden must be a tensor of shape"),
    ):
        module(torch.randn(3, 2, 5))
