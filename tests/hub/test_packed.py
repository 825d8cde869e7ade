"""Weights in few bits: much smaller, nearly the same numbers, and a model like any other once loaded."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

import clearhead as ch
from clearhead.errors import InputError
from clearhead.hub.packed import GROUP, PACKED, open_packed, pack
from clearhead.models.gpt2 import FAMILY, GPT2Config


@pytest.fixture
def both(tmp_path):
    """A saved model, and the same folder packed."""
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    ch.load("random-gpt2").save(plain)
    shutil.copytree(plain, packed)
    (packed / "model.safetensors").unlink()
    pack(plain, packed)
    return plain, packed


def test_every_number_is_within_half_a_step_of_its_row(both):
    plain, packed = (ch.load(folder).model for folder in both)
    ours, theirs = dict(packed.named_parameters()), dict(plain.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, p in theirs.items():
        published = p.t() if name.endswith(("qkv.weight", "output.weight", "up.weight", "down.weight")) else p
        got = ours[name].t() if published is not p else ours[name]
        step = published.abs().amax(-1, keepdim=True) / 127 if p.ndim > 1 else p.abs() / 1024
        tied = name == "head.output.weight"  # it is the token table, packed by its own rows
        assert tied or ((got - published).abs() <= 0.51 * step + 1e-6).all(), name


def test_it_is_a_quarter_as_large_and_saves_as_a_plain_model(both, tmp_path):
    plain, packed = both
    assert (packed / PACKED).stat().st_size < 0.3 * (plain / "model.safetensors").stat().st_size
    pipe = ch.load(packed)
    pipe.save(tmp_path / "again")
    assert not (tmp_path / "again" / PACKED).exists()
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(ch.load(tmp_path / "again").model(input_ids=ids).logits, pipe.model(input_ids=ids).logits)


def test_five_bits_for_the_matrices_of_the_layers(tmp_path):
    """Within half a step of a group where nothing is clipped, never worse than plain rounding, and 5.125 bits each."""
    torch.manual_seed(1)
    model = FAMILY.make(GPT2Config(vocab_size=50, hidden_size=128, num_hidden_layers=2, num_attention_heads=2), None)
    with torch.no_grad():
        model.stack.layers[1].feedforward.up.weight.zero_()  # a group of nothing but zeros
        model.stack.layers[0].feedforward.up.weight[0, :4] = 3.0  # and one with something large
    ch.pipeline.TextPipeline(model, ch.load("random-gpt2").tokenizer).save(tmp_path / "plain")
    (tmp_path / "packed").mkdir()
    pack(tmp_path / "plain", tmp_path / "packed", 5)
    packed = open_packed(tmp_path / "packed")
    for name, wanted in load_file(tmp_path / "plain" / "model.safetensors").items():
        got = packed[name]
        assert got.shape == wanted.shape == packed.shape(name)
        if wanted.ndim == 2 and ".h." in name:
            rows = wanted.unflatten(1, (-1, GROUP))
            largest = rows.gather(-1, rows.abs().argmax(-1, keepdim=True))
            scale = (largest / -16).half().float() + (largest == 0)
            plain = (rows / scale).round().clamp(-16, 15) * scale - rows
            error = got.view_as(rows) - rows
            assert (error.square().sum(-1) <= 1.001 * plain.square().sum(-1) + 1e-12).all()
            assert error.abs().max() <= largest.abs().max() / 4  # what is clipped is off by a quarter at most
        elif wanted.ndim == 2:
            assert (got - wanted).abs().max() <= wanted.abs().max() / 250
    size = (tmp_path / "packed" / PACKED).stat().st_size
    layers = sum(p.numel() for p in model.stack.layers.parameters())
    tables = sum(p.numel() for p in model.stack.embed.parameters())
    assert size < 1.1 * (layers * 5.125 / 8 + tables) + 20_000
    with pytest.raises(InputError, match="8 or 5 bits"):
        pack(tmp_path / "plain", tmp_path / "packed", 4)


def test_other_types_and_quantised(both):
    half = ch.load(both[1], dtype="bfloat16")
    assert half.model.dtype == torch.bfloat16
    assert ch.load(both[1], quantize="int8").generate("The robot", max_new_tokens=3)
