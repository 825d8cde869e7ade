"""Writing lays matrices out for its kernels; nobody else may notice: values, ties, files and gradients stay."""

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
