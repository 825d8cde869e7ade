"""The moving average of weights: its numbers, and that the model's own come back."""

import copy

import pytest
import torch
from torch import nn

from clearhead.errors import CheckpointError, InputError
from clearhead.train.engine.ema import EMA, TriggeredAverage


def moved(model, seed):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("warmup", [True, False])
def test_the_average(warmup):
    model = nn.Linear(3, 2)
    ema = EMA(model, 0.6, warmup=warmup)
    wanted = model.weight.detach().double()
    for n in range(20):
        moved(model, n)
        ema.update()
        decay = min(0.6, (1 + n) / (10 + n)) if warmup else 0.6
        wanted = decay * wanted + (1 - decay) * model.weight.detach().double()
    torch.testing.assert_close(ema.state_tensors()["weight"].double(), wanted, rtol=1e-5, atol=1e-6)


def test_swap_gives_the_averages_and_takes_them_back():
    model = nn.Linear(3, 2)
    ema = EMA(model, 0.9)
    moved(model, 1)
    ema.update()
    own = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match="on purpose"), ema.swap():
        assert torch.equal(model.weight, ema.averages["weight"])
        assert not torch.equal(model.weight, own["weight"])
        raise RuntimeError("on purpose")
    assert all(torch.equal(tensor, own[name]) for name, tensor in model.state_dict().items())


def test_small_steps_are_not_lost_in_half_precision():
    model = nn.Linear(4, 4, bias=False).bfloat16()
    with torch.no_grad():
        model.weight.fill_(1.0)
    ema = EMA(model, 0.999, warmup=False)
    with torch.no_grad():
        model.weight.fill_(2.0)
    for _ in range(10):
        ema.update()
    average = ema.state_tensors()["weight"]
    assert average.dtype is torch.float32
    torch.testing.assert_close(average, torch.full((4, 4), 2 - 0.999**10))
    with ema.swap():
        assert model.weight.dtype is torch.bfloat16


def test_state():
    model = nn.Linear(3, 2)
    ema = EMA(model, 0.9)
    for n in range(3):
        moved(model, n)
        ema.update()
    twin = copy.deepcopy(model)
    other = EMA(twin, 0.9)
    other.load_state({k: t.clone() for k, t in ema.state_tensors().items()}, ema.state_numbers())
    for one, average in ((model, ema), (twin, other)):
        moved(one, 9)
        average.update()
    for name, tensor in ema.state_tensors().items():
        assert torch.equal(tensor, other.state_tensors()[name])
    assert other.state_numbers() == {"updates": 4}
    with pytest.raises(CheckpointError, match="another model"):
        EMA(nn.Linear(3, 2, bias=False)).load_state(ema.state_tensors(), {"updates": 1})
    with pytest.raises(CheckpointError, match=r"\(2, 3\)"):
        EMA(nn.Linear(4, 2)).load_state(ema.state_tensors(), {"updates": 1})


def test_what_never_learns_is_left_out():
    model = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))
    assert set(EMA(model).state_tensors()) == {"1.weight", "1.bias"}
    with pytest.raises(InputError, match=r"such as 0\.999"):
        EMA(model, 1.0)


def test_an_average_that_begins_when_nothing_gets_better():
    """NT-ASGD: worse than the best of those before the last two evaluations; from then on the mean of all weights."""
    model = nn.Linear(3, 2)
    average = TriggeredAverage(model, patience=2)
    for n, loss in enumerate([5.0, 4.0, 4.5, 3.9, 4.1]):  # 4.1 is worse than 4.0, which is more than two ago
        moved(model, n)
        average.update()
        assert not average.began
        own = model.weight.clone()
        with average.swap():
            assert torch.equal(model.weight, own)
        average.observe(loss, higher_is_better=False)
    assert average.began
    seen = []
    for n in range(4):
        moved(model, 10 + n)
        average.update()
        seen.append(model.weight.detach().clone())
    with average.swap():
        torch.testing.assert_close(model.weight, torch.stack(seen).mean(0))
    twin = TriggeredAverage(model, patience=2)
    twin.load_state(average.state_tensors(), average.state_numbers())
    assert (twin.updates, twin.began, twin.history) == (4, True, average.history)
    rising = TriggeredAverage(model, patience=1)
    for accuracy in (0.5, 0.6, 0.4):
        rising.observe(accuracy, higher_is_better=True)
    assert rising.began
