"""Optimisers: who moves what, the same numbers as torch's, and a state that goes on to the bit."""

import copy

import pytest
import torch
from torch import nn

from clearhead import models
from clearhead.errors import CheckpointError, InputError
from clearhead.train.engine.freezing import discriminative
from clearhead.train.engine.muon import hidden_matrices
from clearhead.train.engine.optim import decayed, optimizer

TINY = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
FAMILIES = {
    "gpt2": {},
    "bert": {"intermediate_size": 24},
    "roberta": {"intermediate_size": 24},
    "albert": {"intermediate_size": 24, "embedding_size": 8},
    "deberta": {"intermediate_size": 24, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "t5": {"intermediate_size": 24, "head_dim": 8},
    "bart": {"decoder_layers": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
    "transformer": {"encoder_layers": 2, "feedforward_size": 24},
    "transfo-xl": {"intermediate_size": 24, "head_dim": 8, "embedding_size": 16, "cutoffs": [10, 20], "mem_len": 4},
    "xlnet": {"intermediate_size": 24},
}


def tiny(name="gpt2", **more):
    family = models.family(name)
    return family.make(family.config(**TINY | FAMILIES[name] | more))


def learn(model, opt, steps, first=0):
    """A few updates on text drawn by the number of the step; the losses."""
    model.train()
    losses = []
    for step in range(first, first + steps):
        torch.manual_seed(step)
        ids = torch.randint(3, 40, (4, 9))
        opt.scale_lr(1 / (1 + step))
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_every_parameter_is_in_exactly_one_group(name, kind):
    model = tiny(name)
    for rates in (None, discriminative(model)):
        opt = optimizer(model, kind, lr=1e-3, lr_factors=rates)
        placed = [id(p) for group in opt.groups for p in group["params"]]
        assert len(placed) == len(set(placed))
        assert set(placed) == {id(p) for p in model.parameters() if p.requires_grad}  # BART's output bias does not


def parameters_of(model, chosen):
    return {name for name, p in model.named_parameters(remove_duplicate=False) if p in chosen}


def test_what_decays():
    model = tiny("bert")
    assert model.head.output.weight is model.stack.embed.tokens.weight
    kept = parameters_of(model, decayed(model))
    assert {"stack.embed.tokens.weight", "stack.layers.0.attention.query.weight", "head.transform.dense.weight"} <= kept
    left = {name for name, _ in model.named_parameters(remove_duplicate=False)} - kept
    assert {
        "stack.embed.positions.weight",
        "stack.embed.segments.weight",
        "stack.layers.0.attention.query.bias",
    } <= left
    assert all("bias" in name or "norm" in name or "positions" in name or "segments" in name for name in left)

    model = tiny("transfo-xl")
    kept = parameters_of(model, decayed(model))
    assert {"stack.embed.tokens.tables.0.weight", "stack.embed.tokens.projections.1"} <= kept
    assert not any("content_bias" in name or "position_bias" in name for name in kept)
    model = tiny("xlnet")
    assert not {"stack.target", "stack.layers.0.attention.segments"} & parameters_of(model, decayed(model))
    model = tiny("t5")
    assert "encoder.position_bias.table.weight" not in parameters_of(model, decayed(model))


def test_what_muon_moves():
    for name in FAMILIES:
        model = tiny(name)
        moved = parameters_of(model, hidden_matrices(model))
        assert moved
        for own in moved:
            assert ".layers." in own
            assert "attention." in own or "feedforward." in own
        for own, p in model.named_parameters():  # and nothing of that kind is forgotten
            if ".layers." in own and own.endswith(".weight") and "norm" not in own and p.ndim == 2:
                assert own in moved


@pytest.mark.parametrize("fused", [True, False])
def test_adamw_is_torchs(fused, monkeypatch):
    if not fused:
        monkeypatch.setattr("clearhead.train.engine.optim.FUSED", ())
    model = tiny("gpt2", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    twin = copy.deepcopy(model)
    opt = optimizer(model, lr=0.01, weight_decay=0.1, betas=(0.8, 0.95), eps=1e-6)
    groups = {True: [], False: []}
    for name, p in twin.named_parameters():
        groups[p.ndim == 2 and "positions" not in name].append(p)
    plain = torch.optim.AdamW(
        [{"params": groups[True], "weight_decay": 0.1}, {"params": groups[False], "weight_decay": 0.0}],
        lr=0.01,
        betas=(0.8, 0.95),
        eps=1e-6,
        foreach=False,
    )
    for step in range(5):
        ids = torch.randint(0, 40, (4, 9), generator=torch.Generator().manual_seed(step))
        for m, o in ((model, opt), (twin, plain)):
            m(input_ids=ids, labels=ids).loss.backward()
            o.step()
            o.zero_grad()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_turned_weights_move_by_their_own_gradients():
    """The fused kernel walks over memory: weight and gradient must lie alike."""
    layer = nn.Linear(5, 7)
    straight = copy.deepcopy(layer)
    layer.weight = nn.Parameter(layer.weight.detach().t().contiguous().t())
    assert not layer.weight.is_contiguous()
    for module in (layer, straight):
        opt = optimizer(module, lr=0.1)
        for seed in range(3):
            module.weight.grad = torch.randn(7, 5, generator=torch.Generator().manual_seed(seed))
            opt.step()
    torch.testing.assert_close(layer.weight, straight.weight)


@pytest.mark.parametrize("name", ["gpt2", "albert", "t5"])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_restored_run_goes_on_to_the_bit(name, kind, tmp_path):
    import json

    from safetensors.torch import load_file, save_file

    def fresh():
        torch.manual_seed(7)
        model = tiny(name)
        return model, optimizer(model, kind, lr=3e-3, weight_decay=0.1, lr_factors=discriminative(model, 0.9))

    model, opt = fresh()
    learn(model, opt, 10)

    half, half_opt = fresh()
    learn(half, half_opt, 5)
    save_file({k: t.contiguous() for k, t in half_opt.state_tensors().items()}, tmp_path / "state.safetensors")
    numbers = json.loads(json.dumps(half_opt.state_numbers()))

    after, after_opt = fresh()
    after.load_state_dict(half.state_dict())
    after_opt.load_state(load_file(tmp_path / "state.safetensors"), numbers)
    for key, tensor in after_opt.state_tensors().items():
        assert torch.equal(tensor, half_opt.state_tensors()[key])
    learn(after, after_opt, 5, first=5)
    for a, b in zip(model.parameters(), after.parameters(), strict=True):
        assert torch.equal(a, b)
    assert after_opt.state_numbers() == opt.state_numbers()


def test_state_dict_of_both_side_by_side():
    model = tiny()
    opt = optimizer(model, "muon", lr=1e-3)
    learn(model, opt, 2)
    twin = copy.deepcopy(model)
    other = optimizer(twin, "muon", lr=1e-3)
    other.load_state_dict(copy.deepcopy(opt.state_dict()))
    assert learn(model, opt, 3, 2) == learn(twin, other, 3, 2)
    with pytest.raises(CheckpointError, match="muon"):
        optimizer(twin, "adamw", lr=1e-3).load_state_dict(opt.state_dict())


def test_another_models_state_is_refused():
    model = tiny()
    opt = optimizer(model, lr=1e-3)
    learn(model, opt, 1)
    tensors, numbers = opt.state_tensors(), opt.state_numbers()
    with pytest.raises(CheckpointError, match=r"unknown here"):
        optimizer(tiny(num_hidden_layers=2), lr=1e-3).load_state(tensors, numbers)
    with pytest.raises(CheckpointError, match=r"It lacks stack.layers.3"):
        optimizer(tiny(num_hidden_layers=4), lr=1e-3).load_state(tensors, numbers)
    with pytest.raises(CheckpointError, match=r"\(40, 16\) in the checkpoint, its weight here \(41, 16\)"):
        optimizer(tiny(vocab_size=41), lr=1e-3).load_state(tensors, numbers)
    with pytest.raises(CheckpointError, match="by adamw, this run by muon"):
        optimizer(tiny(), "muon", lr=1e-3).load_state(tensors, numbers)
    tensors.pop("stack.final_norm.weight.exp_avg")
    with pytest.raises(CheckpointError, match=r"It lacks stack.final_norm.weight.exp_avg"):
        optimizer(tiny(), lr=1e-3).load_state(tensors, numbers)


def test_frozen_parameters_stay_and_have_no_state():
    model = tiny()
    opt = optimizer(model, "muon", lr=0.1, weight_decay=0.5)
    still = {name: p for name, p in model.named_parameters() if "layers.0" in name}
    before = {name: p.detach().clone() for name, p in still.items()}
    for p in still.values():
        p.requires_grad_(False)
    learn(model, opt, 3)
    assert all(torch.equal(before[name], p) for name, p in still.items())
    assert not any("layers.0" in key for key in opt.state_tensors())
    assert not any("layers.0" in key for key in opt.state_numbers()["updates"])
    assert any("layers.0" in key for key in opt.state_numbers()["parameters"])


def test_rates():
    model = tiny()
    opt = optimizer(model, "muon", lr=0.1, matrix_lr=0.02)
    assert {group["base_lr"] for group in opt.parts["muon"].param_groups} == {0.02}
    assert {group["base_lr"] for group in opt.parts["adamw"].param_groups} == {0.1}
    opt.scale_lr(0.5)
    opt.scale_lr(0.25)
    assert {group["lr"] for group in opt.groups} == {0.005, 0.025}
    assert {group["base_lr"] for group in opt.groups} == {0.02, 0.1}


def test_compiling_does_not_change_the_names():
    model = tiny()
    assert set(optimizer(torch.compile(model), lr=0.1).names) == set(optimizer(model, lr=0.1).names)


def test_mistakes_are_named():
    model = tiny()
    with pytest.raises(InputError, match="Did you mean adamw"):
        optimizer(model, "adam", lr=0.1)
    with pytest.raises(InputError, match="lr must be zero or more, not -1"):
        optimizer(model, lr=-1)
    with pytest.raises(InputError, match="betas"):
        optimizer(model, lr=0.1, betas=(0.9, 1.0))
    with pytest.raises(InputError, match="use adamw"):
        optimizer(nn.Linear(3, 3), "muon", lr=0.1)
    with pytest.raises(InputError, match="frozen"):
        optimizer(model.requires_grad_(False), lr=0.1)
