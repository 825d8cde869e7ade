"""Writing lays matrices out for its kernels; nobody else may notice: values, ties, files and gradients stay."""

import threading
import time

import pytest
import torch
from torch import nn

from clearhead import hub
from clearhead.models import family
from clearhead.nn.linear import Linear, lay_out


def saved_gpt2(folder):
    chosen = family("gpt2")
    config = chosen.config(vocab_size=61, hidden_size=48, num_hidden_layers=2, num_attention_heads=4)
    hub.save_model(chosen.make(config), folder)
    return folder


def turned(model: nn.Module) -> list[nn.Module]:
    return [m for m in model.modules() if isinstance(m, Linear) and not m.weight.is_contiguous()]


def test_writing_turns_matrices_over_and_saves_the_same(tmp_path):
    model = hub.load_model(saved_gpt2(tmp_path / "one"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    parameters = dict(model.named_parameters())
    assert len(turned(model)) == 8  # as published: four in each layer
    prompt = torch.arange(5)[None]
    with torch.no_grad():
        scores = model(prompt).logits
    model.generate(prompt, max_new_tokens=3)
    assert not turned(model)
    assert all(now is parameters[name] for name, now in model.named_parameters())
    assert model.stack.embed.tokens.weight is model.head.output.weight
    after = model.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    with torch.no_grad():
        torch.testing.assert_close(model(prompt).logits, scores)
    hub.save_model(model, tmp_path / "two")
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]


def test_shared_matrices_stay_shared_and_gradients_flow():
    one, two = Linear(3, 5), Linear(3, 5)
    one.weight.data = torch.randn(3, 5).t()
    two.weight = one.weight
    model = nn.Sequential(nn.ModuleList([one, two]))
    wanted = one.weight.detach().clone()
    lay_out(model)
    assert two.weight is one.weight and one.weight.is_contiguous() and torch.equal(one.weight, wanted)
    (one(torch.ones(1, 3)) + two(torch.ones(1, 3))).sum().backward()
    assert torch.equal(one.weight.grad, torch.full((5, 3), 2.0))


def test_what_lies_well_is_not_copied():
    layer = Linear(3, 5)
    address = layer.weight.data_ptr()
    lay_out(layer)
    assert layer.weight.data_ptr() == address


def turned_layer(inputs: int = 6, outputs: int = 10) -> Linear:
    layer = Linear(inputs, outputs)
    layer.weight.data = layer.weight.data.t().contiguous().t()
    return layer


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {}], ids=str)
@pytest.mark.parametrize("begun", ["a step before", "a gradient before"])
def test_training_goes_on_as_if_nothing_had_been_written(options, begun):
    """A fused optimiser walks weights, gradients and averages in the order of memory: none may change alone."""

    def train(write: bool) -> torch.Tensor:
        torch.manual_seed(0)
        layer, x = turned_layer(), torch.randn(2, 6)
        learns = torch.optim.AdamW(layer.parameters(), lr=0.1, **options)
        for n in range(6):
            learns.zero_grad()
            if write and n == 3 and begun == "a step before":
                lay_out(layer)
            layer(x).square().sum().backward()
            if write and n == 0 and begun == "a gradient before":
                lay_out(layer)
            learns.step()
        return layer.weight.detach().clone()

    torch.testing.assert_close(train(True), train(False))


def test_a_gradient_without_an_optimiser_keeps_the_matrix_in_place():
    layer = turned_layer()
    layer(torch.ones(1, 6)).sum().backward()
    lay_out(layer)
    assert not layer.weight.is_contiguous()
    layer.weight.grad = None
    lay_out(layer)
    assert layer.weight.is_contiguous()


def test_what_was_written_in_inference_mode_can_still_be_trained(tmp_path):
    model = hub.load_model(saved_gpt2(tmp_path))
    with torch.inference_mode():
        model.generate(torch.arange(5)[None], max_new_tokens=3)
    assert not turned(model) and not any(p.is_inference() for p in model.parameters())
    model.train()(torch.arange(5)[None]).logits.sum().backward()


def test_what_processes_share_stays_shared():
    layer = turned_layer().share_memory()
    address = layer.weight.data_ptr()
    lay_out(layer)
    assert layer.weight.is_shared() and layer.weight.data_ptr() == address


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_and_parametrised_weights_are_left_alone(tmp_path):
    model = hub.load_model(saved_gpt2(tmp_path))
    up, down = model.stack.layers[0].feedforward.up, model.stack.layers[1].feedforward.down
    up.weight = nn.Parameter(up.weight.data.to_sparse_csr(), requires_grad=False)
    nn.utils.parametrizations.weight_norm(down)
    with torch.no_grad():
        wanted = model(torch.arange(5)[None]).logits[:, -1].argmax(-1)
    assert model.generate(torch.arange(5)[None], max_new_tokens=1)[:, -1] == wanted
    assert up.weight.layout is torch.sparse_csr


def test_two_texts_begun_at_once(monkeypatch):
    """Each matrix is laid out once: the second to come must not take it from under the first."""
    layer, seen, copy = turned_layer(), [], torch.Tensor.contiguous

    def slowly(tensor: torch.Tensor) -> torch.Tensor:
        time.sleep(0.05)
        return copy(tensor)

    def begin() -> None:
        lay_out(layer)
        seen.append(layer.weight.data_ptr())

    monkeypatch.setattr(torch.Tensor, "contiguous", slowly)
    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4 and set(seen) == {layer.weight.data_ptr()}
