"""Muon: singular values near one, the numbers of torch's own, q, k and v apart, and a loss that falls."""

import copy
import os

import pytest
import torch
from torch import nn

from clearhead import models
from clearhead.errors import InputError
from clearhead.nn import Attention
from clearhead.nn.disentangled import DisentangledAttention
from clearhead.train.engine import muon
from clearhead.train.engine.muon import Muon, Parts, directions, hidden_matrices, orthogonal
from clearhead.train.engine.optim import optimizer

TINY = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def gpt2(**more):
    family = models.family("gpt2")
    return family.make(family.config(**TINY | more))


@pytest.mark.parametrize("shape", [(5, 16, 16), (3, 16, 64), (1, 8, 100)])
def test_singular_values_come_near_one(shape):
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    wide = shape[-1] > shape[-2]  # random square matrices have singular values near zero, which rise more slowly
    assert values.max() < 1.25
    assert values.min() > 0.65 if wide else values.median() > 0.65
    directions_kept = torch.linalg.svdvals(orthogonal(torch.randn(shape) * 1e-4))
    assert directions_kept.max() < 1.25  # whatever the scale
    assert torch.equal(orthogonal(torch.zeros(1, 4, 4)), torch.zeros(1, 4, 4))  # and no 0/0


def test_directions_keep_their_place_and_have_one_size():
    shapes = [(8, 32), (32, 8), (8, 8), (8, 32), (6, 10)]
    matrices = [torch.randn(shape) for shape in shapes]
    for matrix, moved in zip(matrices, directions(matrices), strict=True):
        alone = directions([matrix])[0]
        torch.testing.assert_close(moved, alone)
        u, _, v = torch.linalg.svd(matrix, full_matrices=False)
        exact = u @ v
        assert torch.cosine_similarity(moved.flatten(), exact.flatten(), 0) > 0.95
        assert 0.13 < moved.square().mean().sqrt() < 0.25


def test_large_stacks_are_cut(monkeypatch):
    matrices = [torch.randn(4, 6) for _ in range(5)]
    whole = directions(matrices)
    monkeypatch.setattr(muon, "MAX_NUMBERS_TOGETHER", 48)  # two at a time
    for a, b in zip(whole, directions(matrices), strict=True):
        torch.testing.assert_close(a, b)


def test_it_is_torchs_muon():
    """torch iterates in bf16, so the two agree to its rounding; several steps, both shapes, with decay."""
    own = [nn.Parameter(torch.randn(12, 30)), nn.Parameter(torch.randn(30, 12))]
    theirs = copy.deepcopy(own)
    start = copy.deepcopy(own)
    ours = Muon([{"params": own}], {p: Parts((len(p),)) for p in own}, lr=0.05, weight_decay=0.1)
    reference = torch.optim.Muon(theirs, lr=0.05, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(4):
        for a, b in zip(own, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=torch.Generator().manual_seed(step))
            b.grad = a.grad.clone()
        ours.step()
        reference.step()
    for a, b, first in zip(own, theirs, start, strict=True):
        assert (a - b).norm() < 0.03 * (b - first).norm()


def test_q_k_and_v_are_matrices_of_their_own():
    fused = Attention(16, 4, kv_heads=2, fused=True)
    assert muon._fused(fused)[1] == Parts((16, 8, 8))
    cross = Attention(16, 4, fused=True, cross=True)
    assert muon._fused(cross)[1] == Parts((16, 16))
    model = gpt2()
    parts = hidden_matrices(model)
    assert parts[model.stack.layers[0].attention.qkv.weight] == Parts((16, 16, 16))
    assert parts[model.stack.layers[0].feedforward.up.weight] == Parts((64,))

    gradient = torch.randn(48, 16)
    gradient[:16] *= 100  # as one matrix, the keys and values would hardly move
    weight = nn.Parameter(torch.zeros(48, 16))
    weight.grad = gradient
    Muon([{"params": [weight]}], {weight: Parts((16, 16, 16))}, lr=1.0).step()
    for n in (0, 16, 32):
        apart = directions([gradient[n : n + 16] * (1 - 0.95**2)])[0]
        torch.testing.assert_close(weight.detach()[n : n + 16], -apart, rtol=1e-3, atol=1e-4)


def test_debertas_heads_alternate():
    attention = DisentangledAttention(8, 2, fused=True)
    matrix, parts = muon._fused(attention)
    assert parts == Parts((8, 8, 8), heads=2)
    x = torch.randn(1, 5, 8)
    query, key, value = attention._content(x)
    for part, made in zip(parts.cut(matrix), (query, key, value), strict=True):
        torch.testing.assert_close(x @ part.mT, made.transpose(1, 2).flatten(-2))  # the biases are zero
    assert torch.equal(parts.join(parts.cut(matrix)), matrix)


def test_the_loss_falls():
    text = torch.randint(0, 40, (8, 12))
    model = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    opt = optimizer(model, "muon", lr=0.01, weight_decay=0.01)
    losses = []
    for _ in range(25):
        loss = model(input_ids=text, labels=text).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[0] > 3.6
    assert losses[-1] < 2.2


def test_faint_directions_learn_too():
    """Inputs ten times weaker than others have gradients a hundred times weaker; they arrive all the same."""
    strength = torch.logspace(0, -1, 8)
    wanted = torch.randn(8, 8) / 8**0.5
    weight = nn.Parameter(torch.zeros(8, 8))
    opt = Muon([{"params": [weight]}], {weight: Parts((8,))}, lr=0.1)
    for step in range(120):
        opt.param_groups[0]["lr"] = 0.1 * (1 - step / 120)
        ((weight - wanted) * strength).square().sum().backward()
        opt.step()
        opt.zero_grad()
    left = (weight.detach() - wanted).norm(dim=0) / wanted.norm(dim=0)
    assert left.max() < 0.2


def test_turned_weights_move_like_straight_ones():
    """GPT-2's published matrices are (in, out), and lie in memory that way."""
    model = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    turned = copy.deepcopy(model)
    for matrix in hidden_matrices(turned):
        matrix.data = matrix.data.t().contiguous().t()
    text = torch.randint(0, 40, (2, 12))
    for one in (model, turned):
        opt = optimizer(one, "muon", lr=0.01)
        for _ in range(3):
            one(input_ids=text, labels=text).loss.backward()
            opt.step()
            opt.zero_grad()
    for a, b in zip(model.parameters(), turned.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_a_wrong_momentum():
    with pytest.raises(InputError, match="momentum"):
        optimizer(gpt2(), "muon", lr=0.1, momentum=1.0)


def _sharded(rank, folder):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    saved = torch.load(f"{folder}/start.pt")
    torch.manual_seed(0)
    model = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model.load_state_dict(saved["model"])
    for layer in model.stack.layers:
        fully_shard(layer)
    fully_shard(model)
    opt = optimizer(model, "muon", lr=0.01, weight_decay=0.1)
    opt.load_state(saved["tensors"], saved["numbers"])  # whole tensors, cut here
    for _ in range(2):
        model(input_ids=saved["text"], labels=saved["text"]).loss.backward()
        opt.step()
        opt.zero_grad()
    weights = {name: p.full_tensor() for name, p in model.named_parameters()}
    state = {name: t.full_tensor() for name, t in opt.state_tensors().items()}
    if rank == 0:
        torch.save({"weights": weights, "state": state}, f"{folder}/end.pt")
    dist.destroy_process_group()


@pytest.mark.skipif(os.name == "nt", reason="gloo")
def test_two_ranks_with_shards_compute_what_one_does(tmp_path):
    import torch.multiprocessing as mp

    model = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    opt = optimizer(model, "muon", lr=0.01, weight_decay=0.1)
    text = torch.randint(0, 40, (2, 12))

    def step():
        model(input_ids=text, labels=text).loss.backward()
        opt.step()
        opt.zero_grad()

    step()
    start = {"model": model.state_dict(), "tensors": opt.state_tensors(), "numbers": opt.state_numbers(), "text": text}
    torch.save(start, tmp_path / "start.pt")
    step()
    step()
    mp.start_processes(_sharded, (str(tmp_path),), nprocs=2, start_method="fork")  # what is imported stays so
    end = torch.load(tmp_path / "end.pt")
    for name, p in model.named_parameters():
        torch.testing.assert_close(end["weights"][name], p.detach(), rtol=1e-3, atol=1e-5)
    for name, tensor in opt.state_tensors().items():
        torch.testing.assert_close(end["state"][name], tensor, rtol=1e-3, atol=1e-5)
