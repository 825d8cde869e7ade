"""Which stacks may take the short way on a CUDA device; what that way computes is tested in tests/test_gpu.py."""

import pytest
import torch
from torch import nn

from clearhead.models import family
from clearhead.nn import Attention, Rotary
from clearhead.nn.fast import gpu_decode, gpu_gemv
from clearhead.nn.linear import Linear
from clearhead.nn.norms import RMSNorm
from clearhead.nn.stack import Stack

SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    monkeypatch.setattr(gpu_gemv, "prepare", lambda: True)


def make(name="gpt2", dtype=torch.bfloat16, **options):
    chosen = family(name)
    return chosen.make(chosen.config(**SIZES | options)).to(dtype)


def is_plain(model) -> bool:
    return gpu_decode.is_supported(model.stack, model.head.output)


@pytest.mark.parametrize("name", ["gpt2", "ctrl"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_plain_layers(name, dtype):
    assert is_plain(make(name, dtype))


@pytest.mark.parametrize("name", ["openai-gpt", "gptj", "gpt_neo"])
def test_other_families(name):
    assert not is_plain(make(name, **({"rotary_dim": 8} if name == "gptj" else {})))


def last(model):
    return model.stack.layers[-1]


class Other(Linear):
    pass


def in_fp32(model):
    model.float()


def one_matrix_in_fp32(model):
    last(model).feedforward.down.float()


def transposed(model):
    weight = last(model).attention.qkv.weight
    weight.data = weight.data.T.contiguous().T


def gated(model):
    last(model).feedforward.gate = Linear(32, 128).bfloat16()


def looks_across(model):
    last(model).cross_attention = Attention(32, 2, cross=True).bfloat16()


def rotates(model):
    last(model).attention.rotary = Rotary(16)


def looks_at_distances(model):
    last(model).attention.relative = nn.Identity()


def attends_otherwise(model):
    last(model).attention.attend = lambda *_: None


def another_linear(model):
    last(model).attention.output = Other(32, 32).bfloat16()


def another_first_norm(model):
    last(model).attention_norm = RMSNorm(32).bfloat16()


def another_second_norm(model):
    last(model).feedforward_norm = RMSNorm(32).bfloat16()


def another_forward(part):
    def change(model):
        model.get_submodule(f"stack.layers.1.{part}").forward = lambda x, *_, **__: x

    change.__name__ = f"another forward of {part}"
    return change


def another_activation(model):
    last(model).feedforward.activation.function = torch.tanh


def another_stack(model):
    model.stack.__class__ = type("Other", (Stack,), {})


def another_head(model):
    model.head.output = nn.Sequential(model.head.output)


def a_window(model):
    last(model).window = 4


def after(model):
    last(model).placement = "post"


def no_final_norm(model):
    model.stack.final_norm = None


@pytest.mark.parametrize(
    "change",
    [
        in_fp32, one_matrix_in_fp32, transposed, gated, looks_across, rotates, looks_at_distances, attends_otherwise,
        another_linear, another_first_norm, another_second_norm, another_activation, another_stack, another_head,
        a_window, after, no_final_norm, another_forward("attention"), another_forward("feedforward"),
        another_forward("feedforward.activation"), another_forward("feedforward.up"),
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_anything_else_takes_the_long_way(change):
    model = make()
    change(model)
    assert not is_plain(model)


def test_sizes_and_surroundings(monkeypatch):
    assert not is_plain(make(hidden_size=48))  # heads of 24
    with monkeypatch.context() as patch:
        patch.setattr(gpu_gemv, "MAX_WIDTH", 16)
        assert not is_plain(make())
    with monkeypatch.context() as patch:
        patch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
        assert not is_plain(make())
    monkeypatch.setattr(gpu_gemv, "prepare", lambda: False)
    assert not is_plain(make())


@pytest.mark.parametrize("inputs", [3, 64, 768, 1600, 6400, 20000])
def test_tiles(inputs):
    width, rows, warps = gpu_gemv.tile(inputs)
    assert all(n & (n - 1) == 0 for n in (width, rows, warps))
    assert width >= min(inputs, gpu_gemv.MAX_WIDTH)  # a norm sees all of its inputs
