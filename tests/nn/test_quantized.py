"""Weights of few bits: what rounding loses, that products are those of the rounded matrix, and what is refused."""

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.errors import InputError
from clearhead.nn import trace
from clearhead.nn.fast import cpu_kernels
from clearhead.nn.fast.quantized import FEW, QuantizedEmbedding, QuantizedLinear, QuantizedMatrix, quantize_
from clearhead.nn.linear import Linear
from clearhead.nn.tracing import tap

KINDS = ["int8", "int4"]
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(params=["native", "torch"])
def way(request, monkeypatch):
    """With the native kernels, and without."""
    if request.param == "torch":
        monkeypatch.setattr(cpu_kernels, "loaded", None)
    elif cpu_kernels.load() is None:
        pytest.skip(cpu_kernels.why_not())
    return request.param


@pytest.mark.parametrize("shape", [(1, 1), (5, 31), (70, 33), (64, 64), (3, 200)])
def test_int8_rounds_to_half_a_step(shape):
    weight = torch.randn(shape) * torch.logspace(-3, 3, shape[0])[:, None]  # each row has a size of its own
    matrix = QuantizedMatrix(weight, "int8")
    step = weight.abs().amax(1, keepdim=True) / 127
    assert matrix.codes.dtype == torch.int8 and matrix.codes.shape == shape and matrix.scales.shape == (shape[0], 1)
    assert bool(((matrix.rows(slice(None)) - weight).abs() <= step * 0.5001).all())


@pytest.mark.parametrize("shape", [(1, 1), (5, 31), (70, 33), (64, 64), (3, 200)])
def test_int4_rounds_to_half_a_step_and_keeps_the_largest(shape):
    weight = torch.randn(shape)
    matrix = QuantizedMatrix(weight, "int4")
    groups = -(-shape[1] // 32)
    assert matrix.codes.dtype == torch.uint8 and matrix.codes.shape == (shape[0], groups * 16)
    found = matrix.rows(slice(None))
    assert found.shape == shape
    for n in range(groups):
        part, got = weight[:, 32 * n : 32 * n + 32], found[:, 32 * n : 32 * n + 32]
        largest = part.abs().amax(1, keepdim=True)
        at = part.abs().argmax(1, keepdim=True)
        torch.testing.assert_close(got.gather(1, at), part.gather(1, at))
        # half a step; a whole one at the far end, where there is no code for +8
        assert bool(((got - part).abs() <= largest / 8 * 1.0001).all())
        inner = part.abs() <= largest * 7 / 8
        assert bool(((got - part).abs() <= largest / 16 * 1.0001)[inner].all())


@every_kind
def test_zeros_stay_zeros(kind):
    weight = torch.randn(4, 64)
    weight[1], weight[2, :32] = 0, 0
    found = QuantizedMatrix(weight, kind).rows(slice(None))
    assert bool((found[1] == 0).all()) and bool((found[2, :32] == 0).all()) and bool((found[0] != 0).any())


@every_kind
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_broken_weights_are_refused(kind, wrong):
    weight = torch.randn(4, 64)
    weight[2, 40] = wrong
    with pytest.raises(InputError, match="NaN"):
        QuantizedMatrix(weight, kind)


def assert_product(layer: QuantizedLinear, x: torch.Tensor, wanted: torch.Tensor) -> None:
    """Right to fp32, and to 1/65,534 of the largest input where many rows are multiplied as whole numbers."""
    allowed = 1e-5 * layer.in_features**0.5 + 1e-5 * wanted.abs()
    if cpu_kernels.loaded is not None and cpu_kernels.loaded.has_many and x[..., 0].numel() > 8:
        allowed = allowed + x.abs().amax(-1, keepdim=True) / 65534 * layer.weight.abs().sum(-1)
    assert bool(((layer(x) - wanted).abs() <= allowed).all())


@every_kind
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 8, 9, FEW, FEW + 1, 130])
@pytest.mark.parametrize("shape", [(70, 33), (5, 31), (129, 768)])
def test_the_product_is_that_of_the_rounded_matrix(way, kind, rows, bias, shape):
    outputs, inputs = shape
    layer = QuantizedLinear(QuantizedMatrix(torch.randn(shape), kind), torch.randn(outputs) if bias else None)
    x = torch.randn(rows, inputs)
    wanted = F.linear(x.double(), layer.weight.double(), None if layer.bias is None else layer.bias.double())
    assert_product(layer, x, wanted)


@every_kind
def test_blocks_cover_the_whole_matrix(way, kind, monkeypatch):
    monkeypatch.setattr("clearhead.nn.fast.quantized.BLOCK", 1000)  # 15 outputs at a time: 70 is not a multiple
    layer = QuantizedLinear(QuantizedMatrix(torch.randn(70, 64), kind), torch.randn(70))
    x = torch.randn(2, 50, 64)
    assert_product(layer, x, F.linear(x, layer.weight, layer.bias))


@every_kind
def test_input_that_is_not_in_order(way, kind):
    layer = QuantizedLinear(QuantizedMatrix(torch.randn(70, 48), kind))
    for x in (torch.randn(48, 4).t(), torch.randn(4, 96)[:, ::2], torch.randn(1, 1, 48).expand(2, 3, 48)):
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight), rtol=1e-5, atol=1e-4)


@every_kind
def test_a_matrix_from_any_layout_and_type(kind):
    weight = torch.randn(48, 70)
    assert torch.equal(QuantizedMatrix(weight.t(), kind).codes, QuantizedMatrix(weight.t().contiguous(), kind).codes)
    half = weight.bfloat16()
    assert torch.equal(QuantizedMatrix(half, kind).codes, QuantizedMatrix(half.float(), kind).codes)


@every_kind
def test_gradients_reach_the_input(kind):
    layer = QuantizedLinear(QuantizedMatrix(torch.randn(70, 48), kind), torch.randn(70))
    x = torch.randn(2, 48, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(2, 48))


@every_kind
def test_compiled_it_says_the_same(kind):
    layer = QuantizedLinear(QuantizedMatrix(torch.randn(70, 48), kind), torch.randn(70))
    x = torch.randn(2, 48)
    torch.testing.assert_close(torch.compile(layer, backend="eager")(x), layer(x), rtol=1e-5, atol=1e-4)


class Tiny(nn.Module):
    """An embedding that is the output matrix as well, two layers that share one matrix, and one that is too small."""

    taps = ("middle",)

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 64)
        self.others = nn.Embedding(9, 64)
        self.first, self.second = Linear(64, 64), Linear(64, 64)
        self.second.weight = self.first.weight
        self.again = self.first
        self.norm = nn.LayerNorm(64)
        self.small = Linear(64, 2)
        self.output = Linear(64, 50, bias=False)
        self.output.weight = self.tokens.weight

    def forward(self, ids):
        x = tap(self, "middle", self.norm(self.second(self.again(self.tokens(ids) + self.others(ids % 9)))))
        return self.output(x), self.small(x)


def bytes_of(model: nn.Module) -> int:
    return sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers()])


@every_kind
def test_a_model_is_rounded_in_place_and_shares_as_before(way, kind):
    model = Tiny()
    plain, size = copy.deepcopy(model), bytes_of(model)
    assert quantize_(model, kind) is model
    assert isinstance(model.first, QuantizedLinear) and model.again is model.first
    assert model.second.matrix is model.first.matrix and model.second.bias is not model.first.bias
    assert isinstance(model.tokens, QuantizedEmbedding) and model.tokens.matrix is model.output.matrix
    assert type(model.small) is Linear and type(model.others) is nn.Embedding
    matrices, kept = 64 * 64 + 50 * 64, 9 * 64 + 2 * 64 + 2 + 4 * 64  # others, small, norm and the two biases
    scales = 64 + 50 if kind == "int8" else 2 * (64 + 50)
    assert bytes_of(model) == matrices * (1 if kind == "int8" else 0.5) + 4 * (scales + kept)
    assert bytes_of(model) < size / 2

    for dense in (plain.first, plain.output):  # the same rounding, in fp32
        dense.weight.data = QuantizedMatrix(dense.weight, kind).rows(slice(None))
    ids = torch.randint(0, 50, (2, 3))
    for ours, wanted in zip(model(ids), plain(ids), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)
    assert not any(p.requires_grad for p in model.parameters())
    with trace(model, "middle") as seen:
        model(ids)
    assert seen["middle"].shape == (2, 3, 64)
    twin = copy.deepcopy(model)
    assert twin.tokens.matrix is twin.output.matrix
    assert torch.equal(twin(ids)[0], model(ids)[0])


@every_kind
def test_other_types_become_fp32(kind):
    model = quantize_(Tiny().bfloat16(), kind)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model(torch.tensor([[1, 2]]))[0].dtype == torch.float32


def test_what_is_refused():
    model = quantize_(Tiny(), "int8")
    with pytest.raises(InputError, match="already"):
        quantize_(model, "int4")
    with pytest.raises(InputError, match=r"'int9'.*Did you mean int8"):
        quantize_(Tiny(), "int9")
    with pytest.raises(InputError, match="meta"):
        quantize_(Tiny().to("meta"), "int8")
    with pytest.raises(InputError, match="bfloat16"):
        model.to(torch.bfloat16)
    with pytest.raises(InputError, match="run on the CPU"):
        model.to("meta")
    with pytest.raises(InputError, match="float32 on the CPU"):
        model.first(torch.randn(1, 64).double())
    with pytest.raises(InputError, match="64 numbers"):
        model.first(torch.randn(1, 65))
    model.first.to("cpu").float()


def test_without_kernels_it_says_that_it_will_be_slow(monkeypatch, caplog):
    monkeypatch.setattr(cpu_kernels, "loaded", None)
    monkeypatch.setattr(cpu_kernels, "_tried", True)
    monkeypatch.setattr(cpu_kernels, "_reason", "there is no C compiler")
    with caplog.at_level(logging.WARNING, "clearhead"):
        quantize_(Tiny(), "int8")
    assert "slow" in caplog.text and "there is no C compiler" in caplog.text
