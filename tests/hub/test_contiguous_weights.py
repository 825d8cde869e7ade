"""Loading makes weights contiguous, which decoding reads fastest; from then on nobody but their owner moves them."""

import copy

import pytest
import torch
from torch import nn

from clearhead import hub
from clearhead.hub.packed import PACKED, pack
from clearhead.models import family
from clearhead.nn.linear import Linear

PROMPT = torch.arange(5)[None]


def made_gpt2():
    chosen = family("gpt2")
    config = chosen.config(vocab_size=61, hidden_size=48, num_hidden_layers=2, num_attention_heads=4)
    return chosen.make(config)


@pytest.fixture
def saved(tmp_path):
    """The folder of a GPT-2, whose file holds the matrices of the layers transposed: (in, out)."""
    hub.save_model(made_gpt2(), tmp_path / "saved")
    return tmp_path / "saved"


def not_contiguous(model: nn.Module) -> list[str]:
    return [name for name, p in model.named_parameters() if not p.is_contiguous()]


def addresses(model: nn.Module) -> list[tuple[int, tuple[int, ...]]]:
    return [(p.data_ptr(), p.stride()) for p in model.parameters()]


def as_safetensors(folder):
    pass


def as_bin(folder):
    file = folder / "model.safetensors"
    weights = hub.open_weights(folder)
    torch.save({name: weights[name].clone() for name in weights}, folder / "pytorch_model.bin")
    file.unlink()


def as_packed(folder):
    pack(folder, folder)
    (folder / "model.safetensors").unlink()
    assert (folder / PACKED).is_file()


@pytest.mark.parametrize("store", [as_safetensors, as_bin, as_packed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}, {"quantize": "auto"}], ids=str)
def test_loaded_weights_are_contiguous(saved, store, options, monkeypatch):
    if "quantize" in options:  # it chooses by speed; here, what is not rounded is asked about
        monkeypatch.setattr("clearhead.hub.precision.choose", lambda model: "float32")
    store(saved)
    model = hub.load_model(saved, **options)
    assert not not_contiguous(model)
    assert model.stack.embed.tokens.weight is model.head.output.weight


def test_a_loaded_model_is_the_one_that_was_saved(tmp_path):
    model = made_gpt2()
    hub.save_model(model, tmp_path / "one")
    loaded = hub.load_model(tmp_path / "one")
    for (name, p), (other, q) in zip(model.named_parameters(), loaded.named_parameters(), strict=True):
        assert name == other and torch.equal(p, q) and p.stride() == q.stride()
    with torch.no_grad():
        assert torch.equal(model.eval()(PROMPT).logits, loaded.eval()(PROMPT).logits)
    hub.save_model(loaded, tmp_path / "two")
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]


def test_what_the_file_holds_in_order_stays_mapped(tmp_path):
    chosen = family("bert")
    config = chosen.config(vocab_size=61, hidden_size=48, num_hidden_layers=2, num_attention_heads=4)
    hub.save_model(chosen.make(config), tmp_path)
    model, weights = hub.load_model(tmp_path), hub.open_weights(tmp_path)
    size = sum(weights[name].nbytes for name in weights)
    # views of one mapped file lie no further apart than the file is long
    places = [p.data_ptr() for p in model.stack.layers.parameters()]
    assert max(places) - min(places) < size


@pytest.mark.parametrize("inference", [False, True])
def test_generating_moves_no_weight(saved, inference):
    model = hub.load_model(saved)
    weight = model.stack.layers[0].feedforward.up.weight
    weight.data = weight.data.t().contiguous().t()  # somebody's own order, which stays theirs
    before = addresses(model)
    with torch.inference_mode(inference):
        written = model.generate(PROMPT, max_new_tokens=3, do_sample=False)
    assert addresses(model) == before
    assert not any(p.is_inference() for p in model.parameters())
    weight.data = weight.data.contiguous()
    assert torch.equal(model.generate(PROMPT, max_new_tokens=3, do_sample=False), written)


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {}], ids=str)
@pytest.mark.parametrize("order", ["as loaded", "transposed"])
def test_training_goes_on_as_if_nothing_had_been_written(saved, options, order):
    """A fused optimiser goes through weights, gradients and averages in the order of memory: none may change alone."""
    start = hub.load_model(saved).train()

    def train(write: bool) -> list[torch.Tensor]:
        model = copy.deepcopy(start)
        if order == "transposed":
            for layer in model.modules():
                if isinstance(layer, Linear) and layer is not model.head.output:
                    layer.weight.data = layer.weight.data.t().contiguous().t()
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
        for n in range(4):
            if write and n in (0, 2):
                model.generate(PROMPT, max_new_tokens=2)
            optimizer.zero_grad()
            with torch.random.fork_rng():
                torch.manual_seed(n)
                model(PROMPT, labels=PROMPT).loss.backward()
            if write and n == 1:  # between a gradient and the step that takes it
                model.generate(PROMPT, max_new_tokens=2)
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    for ours, wanted in zip(train(True), train(False), strict=True):
        assert torch.equal(ours, wanted)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_and_parametrised_weights_still_write(saved):
    model = hub.load_model(saved)
    up, down = model.stack.layers[0].feedforward.up, model.stack.layers[1].feedforward.down
    up.weight = nn.Parameter(up.weight.data.to_sparse_csr(), requires_grad=False)
    nn.utils.parametrizations.weight_norm(down)
    with torch.no_grad():
        wanted = model(PROMPT).logits[:, -1].argmax(-1)
    assert model.generate(PROMPT, max_new_tokens=1)[:, -1] == wanted
    assert up.weight.layout is torch.sparse_csr
