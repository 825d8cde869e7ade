"""CLIP's text tower alone, as `CLIPTextModel` and with its projection, against transformers, in both directions."""

import random

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import clearhead as ch
from clearhead import hub
from clearhead.errors import ConfigError, InputError
from tests.parity.harness import close
from tests.tiny import shake

CLASSES = {"features": transformers.CLIPTextModel, "projection": transformers.CLIPTextModelWithProjection}


def drawn(seed: int, **values) -> transformers.CLIPTextConfig:
    rng = random.Random(seed)
    heads, vocab = rng.choice([1, 2, 4]), rng.choice([40, 61])
    options = {
        "vocab_size": vocab,
        "hidden_size": heads * rng.choice([4, 8]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([12, 40]),
        "num_hidden_layers": rng.choice([1, 2, 3]),
        "max_position_embeddings": rng.choice([16, 24]),
        "projection_dim": rng.choice([6, 20]),
        "hidden_act": rng.choice(["quick_gelu", "gelu", "relu"]),
        "layer_norm_eps": rng.choice([1e-5, 1e-3]),
        "bos_token_id": vocab - 2,
        "eos_token_id": vocab - 1,  # seeds of odd numbers have the rule of old files: the largest id
    }
    if seed % 2:
        options |= {"eos_token_id": 2, "bos_token_id": 0}
    return transformers.CLIPTextConfig(**options | values, attn_implementation="eager")


def texts(config, batch: int = 4, time: int = 11) -> dict[str, torch.Tensor]:
    """Ids with the end token (the largest id) somewhere, padded with it or with 0, and hidden there or not."""
    end = config.vocab_size - 1
    ids = torch.randint(3, end - 1, (batch, time))
    mask = torch.ones_like(ids)
    for row in range(batch):
        stop = time - 1 - 2 * row
        ids[row, stop:] = end if row % 2 else 0
        ids[row, stop] = end
        mask[row, stop + 1 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def case(task, seed, folder, **values):
    torch.manual_seed(seed)
    config = drawn(seed, **values)
    theirs = shake(CLASSES[task](config)).eval()
    theirs.save_pretrained(folder)
    return theirs, hub.load_model(folder), texts(config)


def compare(ours, theirs, given):
    seen = {"output_hidden_states": True, "output_attentions": True}
    a, b = ours(**given, **seen), theirs(**given, **seen)
    names = ["last_hidden_state", "text_embeds" if "text_embeds" in b else "pooler_output"]
    for name in names:
        close(a[name], b[name])
    assert len(a.hidden_states) == len(b.hidden_states)
    for name in ("hidden_states", "attentions"):
        for mine, other in zip(a[name], b[name], strict=True):
            close(mine, other)
    plain = ours(**given)
    close(plain.last_hidden_state, b.last_hidden_state)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("task", CLASSES)
def test_outputs(task, seed, tmp_path):
    theirs, ours, given = case(task, seed, tmp_path)
    assert ours.task == task
    compare(ours, theirs, given)
    compare(ours, theirs, {"input_ids": given["input_ids"]})


@pytest.mark.parametrize("task", CLASSES)
def test_gradients(task, tmp_path):
    theirs, ours, given = case(task, 2, tmp_path)
    for model in (theirs, ours):
        out = model(**given)
        (out["text_embeds"] if task == "projection" else out["pooler_output"]).square().sum().backward()
    grads = {name.removeprefix("text_model."): p.grad for name, p in theirs.named_parameters()}
    entries = ours.family.checkpoint_map(ours.config, task).entries
    assert len(entries) == len(grads)
    for entry in entries:
        close(ours.get_parameter(entry.ours[0]).grad, grads[entry.theirs[0]], tolerance=2e-5)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("task", CLASSES)
def test_saved_here_opens_there(task, seed, tmp_path):
    theirs, ours, given = case(task, seed, tmp_path / "theirs")
    hub.save_model(ours, tmp_path / "ours")
    stored = load_file(tmp_path / "ours" / "model.safetensors")
    assert all(name.startswith(("text_model.", "text_projection.")) for name in stored)  # as older versions need it
    there = CLASSES[task].from_pretrained(tmp_path / "ours", attn_implementation="eager").eval()
    again = hub.load_model(tmp_path / "ours")
    compare(again, there, given)
    compare(again, theirs, given)
    assert again.config == ours.config and there.config.eos_token_id == theirs.config.eos_token_id


def restored(folder, rename):
    path = folder / "model.safetensors"
    tensors = {rename(name): tensor for name, tensor in load_file(path).items()}
    positions = torch.arange(16)[None]
    prefix = "text_model." if any(name.startswith("text_model.") for name in tensors) else ""
    save_file(tensors | {f"{prefix}embeddings.position_ids": positions}, path, metadata={"format": "pt"})
    return hub.load_model(folder)


def test_with_and_without_the_prefix(tmp_path):
    _, ours, given = case("features", 0, tmp_path)
    want = ours(**given).last_hidden_state
    assert torch.equal(restored(tmp_path, lambda name: f"text_model.{name}")(**given).last_hidden_state, want)
    bare = restored(tmp_path, lambda name: name.removeprefix("text_model."))
    assert torch.equal(bare(**given).last_hidden_state, want)


def test_the_tower_of_a_projected_file(tmp_path):
    theirs, _, given = case("projection", 0, tmp_path)
    tower = hub.load_model(tmp_path, task="features")
    out = tower(**given)
    close(out.last_hidden_state, theirs(**given).last_hidden_state)
    close(theirs.text_projection(out.pooler_output), theirs(**given).text_embeds)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype, tmp_path):
    theirs, _, given = case("projection", 0, tmp_path)
    half = hub.load_model(tmp_path, dtype=dtype)(**given).text_embeds
    want = theirs.to(getattr(torch, dtype))(**given).text_embeds
    assert half.dtype == want.dtype
    torch.testing.assert_close(half.float(), want.float(), rtol=0.05, atol=0.05 * want.abs().max().item())


def test_inner_tensors_and_wrong_input(tmp_path):
    _, ours, given = case("features", 0, tmp_path)
    with ch.trace(ours, "layers.*.attention.weights", "pooled") as seen:
        out = ours(**given)
    assert torch.equal(seen["pooled"], out.pooler_output)
    assert seen["layers.0.attention.weights"].triu(1).abs().max() == 0
    with pytest.raises(InputError, match="end token"):
        ours(inputs_embeds=torch.zeros(1, 3, ours.config.hidden_size))
    with pytest.raises(InputError, match="position"):
        ours(input_ids=torch.ones(1, 99, dtype=torch.long))


def test_options_that_cannot_be(tmp_path):
    config = type(case("features", 0, tmp_path)[1].config)
    with pytest.raises(ConfigError, match="eos_token_id"):
        config.from_dict({"eos_token_id": [1, 2]})
    with pytest.raises(ConfigError, match="Unknown activation"):
        config.from_dict({"hidden_act": "quick_relu"})
    assert config.from_dict({"dropout": 0.1, "model_type": "clip_text_model"}).unknown == []
