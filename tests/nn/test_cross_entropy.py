"""The loss in stretches is torch's own, with its gradients."""

import pytest
import torch
import torch.nn.functional as F

from clearhead.nn import cross_entropy
from clearhead.nn.cross_entropy import linear_cross_entropy
from clearhead.nn.fast import cpu_cross_entropy


@pytest.fixture
def native():
    if cpu_cross_entropy.load() is None:
        pytest.skip("no C compiler here")


@pytest.fixture
def at_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("chunk", [1, 7, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_equals_cross_entropy(chunk, smoothing, with_bias, padded, monkeypatch):
    if padded:  # as on a GPU: the table is filled up to a round number of rows
        monkeypatch.setattr(cross_entropy.Tensor, "is_cuda", True)
    torch.manual_seed(chunk)
    hidden, weight = torch.randn(23, 8, dtype=torch.double), torch.randn(50, 8, dtype=torch.double)
    bias = torch.randn(50, dtype=torch.double) if with_bias else None
    labels = torch.randint(0, 50, (23,))
    labels[[0, 5, 22]] = -100
    given = [t.clone().requires_grad_() if t is not None else None for t in (hidden, weight, bias)]
    asked = [t.clone().requires_grad_() if t is not None else None for t in (hidden, weight, bias)]
    ours = linear_cross_entropy(*given, labels, chunk, smoothing)
    theirs = F.cross_entropy(F.linear(*asked), labels, label_smoothing=smoothing)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-6)
    (3 * ours).backward()
    (3 * theirs).backward()
    for mine, reference in zip(given, asked, strict=True):
        if mine is not None:
            torch.testing.assert_close(mine.grad, reference.grad, rtol=1e-4, atol=1e-6)


def test_nothing_to_learn_from_is_zero_and_not_nan():
    hidden = torch.randn(4, 8, requires_grad=True)
    loss = linear_cross_entropy(hidden, torch.randn(10, 8), None, torch.full((4,), -100), 2)
    loss.backward()
    assert loss == 0 and (hidden.grad == 0).all()


def test_half_precision_is_close():
    torch.manual_seed(1)
    hidden, weight = torch.randn(40, 16, requires_grad=True), torch.randn(100, 16)
    labels = torch.randint(0, 100, (40,))
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(hidden, weight, None, labels, 16)
    loss.backward()
    plain = hidden.detach().clone().requires_grad_()
    F.cross_entropy(plain @ weight.T, labels).backward()
    assert hidden.grad.dtype == torch.float32
    assert (hidden.grad - plain.grad).norm() / plain.grad.norm() < 0.02


def test_a_frozen_table_costs_no_gradient_and_a_share_is_not_rounded():
    hidden, weight = torch.randn(10, 8).bfloat16().requires_grad_(), torch.randn(30, 8).bfloat16()
    loss = linear_cross_entropy(hidden, weight, None, torch.arange(10), 4)
    assert [t is None for t in loss.grad_fn.saved_tensors] == [False, True, True]
    (whole,) = torch.autograd.grad(loss, hidden, retain_graph=True)
    (third,) = torch.autograd.grad(loss / 3, hidden)
    torch.testing.assert_close(third, (whole.float() / 3).bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("vocab", [1, 63, 64, 1000, 8193])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_kernel_in_c_equals_the_plain_one(vocab, smoothing, with_bias, dtype, threads, native, at_threads):
    at_threads(threads)
    torch.manual_seed(vocab)
    logits = (6 * torch.randn(37, vocab)).to(dtype)
    bias = torch.randn(vocab).to(dtype) if with_bias else None
    labels = torch.randint(0, vocab, (37,))
    labels[[3, 36]] = -100
    count = torch.tensor(35.0)
    losses, gradient = cross_entropy.loss_and_gradient(logits, bias, labels, count, vocab, smoothing)
    place = logits.clone()
    ours, theirs = cpu_cross_entropy.loss_and_gradient(place, bias, labels, count, vocab, smoothing)
    assert theirs.data_ptr() == place.data_ptr()
    torch.testing.assert_close(ours, losses, rtol=1e-5, atol=2e-5)
    if dtype == torch.float32:
        torch.testing.assert_close(theirs, gradient, rtol=1e-5, atol=1e-7)
    else:  # the last bit may be rounded the other way
        torch.testing.assert_close(theirs, gradient, rtol=0.008, atol=1e-8)


def test_the_kernel_in_c_hides_no_broken_number(native):
    logits = torch.randn(3, 100)
    logits[1, 7] = torch.nan
    logits[2, 7] = torch.inf
    losses, gradient = cpu_cross_entropy.loss_and_gradient(
        logits, None, torch.tensor([1, 2, 3]), torch.tensor(3.0), 100, 0.0
    )
    assert losses[0].isfinite() and not losses[1].isfinite() and not losses[2].isfinite()
    assert gradient[0].isfinite().all() and gradient[1].isnan().any() and gradient[2].isnan().any()
    low = torch.full((1, 100), -1e30)
    low[0, 5] = 10.0
    losses, _ = cpu_cross_entropy.loss_and_gradient(low, None, torch.tensor([5]), torch.tensor(1.0), 100, 0.0)
    assert losses.item() == 0.0


def test_training_on_a_cpu_uses_it(native, monkeypatch):
    calls = []
    monkeypatch.setattr(
        cpu_cross_entropy,
        "loss_and_gradient",
        lambda logits, *rest: calls.append(len(logits)) or cross_entropy.loss_and_gradient(logits, *rest),
    )
    monkeypatch.setattr(cross_entropy, "_kernels", {})
    assert cross_entropy.prepare("cpu")
    hidden, weight, labels = torch.randn(10, 8), torch.randn(30, 8), torch.arange(10)
    linear_cross_entropy(hidden, weight, None, labels, 4)
    assert calls == [4, 4, 2]
    linear_cross_entropy(hidden.double(), weight.double(), None, labels, 4)
    assert len(calls) == 3  # it knows fp32 and bf16 alone
