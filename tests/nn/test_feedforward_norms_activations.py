"""The small parts: feed-forward, norms and activations, each against its reference."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import T5Config
from transformers.activations import ACT2FN
from transformers.models.t5.modeling_t5 import T5DenseActDense, T5DenseGatedActDense, T5LayerNorm

from clearhead.errors import ConfigError
from clearhead.nn import ACTIVATIONS, Activation, FeedForward, LayerNorm, RMSNorm, trace
from clearhead.nn.activations import activation

LEARNED = {"prelu", "xielu"}  # these have weights of their own


# --- activations -------------------------------------------------------------------------------------------------


def test_every_name_transformers_knows_is_known_or_refused_by_name():
    assert set(ACTIVATIONS) == set(ACT2FN) - LEARNED


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_equal_transformers_and_so_do_their_gradients(name):
    x = torch.linspace(-12, 12, 4801, requires_grad=True)
    ours, theirs = Activation(name)(x), ACT2FN[name](x)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    slope = torch.randn(4801, generator=torch.Generator().manual_seed(0))
    got, want = (torch.autograd.grad((out * slope).sum(), x)[0] for out in (ours, theirs))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_keep_half_precision(name):
    x = torch.linspace(-6, 6, 101).bfloat16()
    out = Activation(name)(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), Activation(name)(x.float()), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", sorted(LEARNED))
def test_activations_with_weights_are_refused_by_name(name):
    with pytest.raises(ConfigError, match=f"{name}.*learned"):
        activation(name)


def test_a_misspelt_activation_lists_near_names():
    with pytest.raises(ConfigError, match="gelu_new") as caught:
        activation("gelu_neww")
    assert "Did you mean" in str(caught.value)


def test_an_activation_shows_its_name():
    assert "gelu_new" in repr(FeedForward(4, 8, "gelu_new"))


# --- feed-forward ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gated", [True, False], ids=["gated", "plain"])
@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_new", "silu"])
def test_feedforward_follows_its_formula(name, gated, bias):
    torch.manual_seed(0)
    layer, x = FeedForward(6, 10, name, gated=gated, bias=bias), torch.randn(2, 3, 6)
    function = ACT2FN[name]

    def linear(module: nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
        assert (module.bias is not None) == bias
        return inputs @ module.weight.t() + (module.bias if bias else 0)

    if gated:
        assert layer.gate is not None
        hidden = function(linear(layer.gate, x)) * linear(layer.up, x)
    else:
        assert layer.gate is None
        hidden = function(linear(layer.up, x))
    with trace(layer, "*") as seen:
        out = layer(x)
    torch.testing.assert_close(seen["hidden"], hidden)
    torch.testing.assert_close(out, linear(layer.down, hidden))
    assert torch.equal(seen["output"], out)


def test_the_plain_kind_is_that_of_t5():
    torch.manual_seed(0)
    theirs = T5DenseActDense(T5Config(d_model=8, d_ff=12, feed_forward_proj="relu")).eval()
    ours = FeedForward(8, 12, "relu", bias=False)
    ours.up.weight.data.copy_(theirs.wi.weight)
    ours.down.weight.data.copy_(theirs.wo.weight)
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(ours(x), theirs(x))


def test_the_gated_kind_is_that_of_t5():
    torch.manual_seed(0)
    theirs = T5DenseGatedActDense(T5Config(d_model=8, d_ff=12, feed_forward_proj="gated-gelu")).eval()
    ours = FeedForward(8, 12, "gelu_new", gated=True, bias=False)
    assert ours.gate is not None
    ours.gate.weight.data.copy_(theirs.wi_0.weight)
    ours.up.weight.data.copy_(theirs.wi_1.weight)
    ours.down.weight.data.copy_(theirs.wo.weight)
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(ours(x), theirs(x))


def test_dropout_is_on_the_widened_vector_and_in_training_only():
    torch.manual_seed(0)
    layer, x = FeedForward(6, 10, "relu", dropout=1.0), torch.randn(2, 3, 6)
    with trace(layer, "hidden") as seen:
        dropped = layer.train()(x)
    assert torch.equal(dropped, layer.down.bias.expand(2, 3, 6))  # nothing of the widened vector is left
    assert seen["hidden"].any()  # announced before dropout
    kept = layer.eval()(x)
    torch.testing.assert_close(kept, layer.down(F.relu(layer.up(x))))


# --- norms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("inputs", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_rms_norm_is_that_of_t5(eps, inputs, weights):
    torch.manual_seed(0)
    ours, theirs = RMSNorm(16, eps=eps), T5LayerNorm(16, eps=eps)
    ours.weight.data.normal_()
    theirs.weight.data.copy_(ours.weight)
    ours.to(weights)
    theirs.to(weights)
    x = (torch.randn(3, 5, 16) * 7).to(inputs)
    got, want = ours(x), theirs(x)
    assert got.dtype == want.dtype
    assert torch.equal(got, want)


def test_rms_norm_does_not_overflow_in_half_precision():
    x = torch.full((1, 4), 300.0, dtype=torch.float16)  # 300² is beyond fp16
    torch.testing.assert_close(RMSNorm(4).half()(x), torch.ones(1, 4, dtype=torch.float16))


def test_rms_norm_gradients():
    torch.manual_seed(0)
    norm, x = RMSNorm(8, eps=1e-3), torch.randn(3, 8, requires_grad=True)
    norm.weight.data.normal_()
    want = F.rms_norm(x, (8,), norm.weight, eps=1e-3)
    torch.testing.assert_close(norm(x), want)
    slope = torch.randn(3, 8)
    got_grads, want_grads = (torch.autograd.grad((out * slope).sum(), (x, norm.weight)) for out in (norm(x), want))
    for got, expected in zip(got_grads, want_grads, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_layer_norm_centres_and_scales():
    torch.manual_seed(0)
    norm, x = LayerNorm(8, eps=1e-3), torch.randn(3, 8) * 3 + 2
    norm.weight.data.normal_()
    norm.bias.data.normal_()
    centred = x - x.mean(-1, keepdim=True)
    want = centred / (centred.square().mean(-1, keepdim=True) + 1e-3).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(norm(x), want)
