"""CLIP, its vision tower alone and its image classifier against transformers, in both directions."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead as ch
from clearhead import hub
from clearhead.errors import CheckpointError, ConfigError, InputError
from clearhead.models.clip import ClipConfig
from clearhead.nn.tracing import tap_points
from tests.parity.clip_reference import CLASSES, pictures, reference, texts
from tests.parity.harness import close

SEEN = {"output_hidden_states": True, "output_attentions": True}


def opened(kind, seed, folder, **values):
    theirs = reference(kind, seed, **values)
    theirs.save_pretrained(folder)
    return theirs, hub.load_model(folder)


def inputs(kind, theirs, count=3):
    given = {"pixel_values": pictures(theirs.config, count)}
    return given | (texts(theirs.config, count) if kind == "clip features" else {})


def same_tower(ours, theirs):
    for name in ("last_hidden_state", "pooler_output"):
        close(ours[name], theirs[name])
    for name in ("hidden_states", "attentions"):
        for a, b in zip(ours[name], theirs[name], strict=True):
            close(a, b)


def compare(kind, ours, theirs, given, **options):
    with torch.no_grad():
        a, b = ours(**given, **SEEN, **options), theirs(**given, **SEEN, **options)
        fast = ours(**given, **options)
    if kind == "clip features":
        for name in ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds"):
            close(a[name], b[name])
            close(fast[name], b[name])
        same_tower(a.text_model_output, b.text_model_output)
        same_tower(a.vision_model_output, b.vision_model_output)
        close(a.image_embeds.norm(dim=-1), torch.ones(len(a.image_embeds)))
        return
    for name in ("logits", "image_embeds", "last_hidden_state", "pooler_output"):
        if name in b:
            close(a[name], b[name])
            close(fast[name], b[name])
    for name in ("hidden_states", "attentions"):
        for mine, other in zip(a[name], b[name], strict=True):
            close(mine, other)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", CLASSES)
def test_outputs_and_inner_tensors(kind, seed, tmp_path):
    theirs, ours = opened(kind, seed, tmp_path)
    assert f"{ours.family.name} {ours.task}" == kind
    given = inputs(kind, theirs)
    compare(kind, ours, theirs, given)
    if kind == "clip features":  # other numbers of texts and pictures, and nothing hidden
        given = {"input_ids": given["input_ids"][:2], "pixel_values": pictures(theirs.config, 5)}
        compare(kind, ours, theirs, given)


@pytest.mark.parametrize("size", [(17, 11), (6, 6), (25, 25)])
@pytest.mark.parametrize("kind", ["clip features", "clip_vision_model projection"])
def test_pictures_of_another_size(kind, size, tmp_path):
    theirs, ours = opened(kind, 2, tmp_path)
    given = inputs(kind, theirs) | {"pixel_values": pictures(theirs.config, 3, size)}
    compare(kind, ours, theirs, given, interpolate_pos_encoding=True)
    with pytest.raises(InputError, match="interpolate_pos_encoding"):
        ours(**given)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["clip features", "clip image-classification"])
def test_loss_and_gradients(kind, seed, tmp_path):
    theirs, ours = opened(kind, seed, tmp_path)
    learns = {"return_loss": True} if kind == "clip features" else {"labels": torch.tensor([0, 2, 1])}
    given = inputs(kind, theirs) | learns
    losses = [model(**given).loss for model in (ours, theirs)]
    close(*losses)
    for loss in losses:
        loss.backward()
    grads = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    compared = 0
    for entry in ours.family.checkpoint_map(ours.config, ours.task).entries:
        if entry.theirs[0] in grads:
            [grad] = entry.to_theirs([ours.get_parameter(entry.ours[0]).grad])
            close(grad, grads[entry.theirs[0]], tolerance=2e-5)
            compared += 1
    assert compared == len(grads)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", CLASSES)
def test_saved_here_opens_there(kind, seed, tmp_path):
    theirs, ours = opened(kind, seed, tmp_path / "theirs")
    hub.save_model(ours, tmp_path / "ours")
    there, report = CLASSES[kind].from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    again = hub.load_model(tmp_path / "ours")
    given = inputs(kind, theirs)
    compare(kind, again, there.eval(), given)
    compare(kind, again, theirs, given)
    assert again.config == ours.config


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype, tmp_path):
    theirs, _ = opened("clip features", 0, tmp_path)
    given = inputs("clip features", theirs)
    half = hub.load_model(tmp_path, dtype=dtype)(**given, return_loss=True)
    want = theirs.to(getattr(torch, dtype))(**given, return_loss=True)
    assert half.logits_per_text.dtype == want.logits_per_text.dtype
    for name in ("image_embeds", "text_embeds"):
        torch.testing.assert_close(half[name].float(), want[name].float(), rtol=0.05, atol=0.05)
    assert abs(float(half.loss) - float(want.loss)) < 0.05 * max(1.0, float(want.loss))


def test_the_scale_is_clamped_in_training_only(tmp_path):
    theirs, ours = opened("clip features", 0, tmp_path)
    for model in (theirs, ours.head):
        model.logit_scale.data.fill_(6.0)
    given = inputs("clip features", theirs)
    close(ours(**given).logits_per_text, theirs(**given).logits_per_text)
    cosines = ours(**given).logits_per_text / math.exp(6)
    out = ours.train()(**given, return_loss=True)
    close(out.logits_per_text, cosines * 100)
    out.loss.backward()
    assert ours.head.logit_scale.grad is not None and bool(ours.head.logit_scale.grad)
    assert float(ours.head.logit_scale) == 6.0
    ours.head.hold_scale()  # as training does between two steps
    assert abs(float(ours.head.logit_scale) - math.log(100)) < 1e-6


def test_one_side_alone(tmp_path):
    theirs, ours = opened("clip features", 0, tmp_path)
    given = inputs("clip features", theirs)
    both = ours(**given)
    pixels = given.pop("pixel_values")
    text, image = ours(**given), ours(pixel_values=pixels)
    assert torch.equal(text.text_embeds, both.text_embeds) and text.image_embeds is None
    assert torch.equal(image.image_embeds, both.image_embeds) and image.logits_per_text is None
    for wrong in ({}, {"pixel_values": pixels, "return_loss": True}):
        with pytest.raises(InputError, match="pixel_values"):
            ours(**wrong)
    with pytest.raises(InputError, match="3 texts and 2 pictures"):
        ours(**given, pixel_values=pixels[:2], return_loss=True)
    with pytest.raises(InputError, match="channels"):
        ours(pixel_values=pixels[:, :0])


def test_trace_names(tmp_path):
    theirs, ours = opened("clip features", 2, tmp_path)
    given = inputs("clip features", theirs)
    with ch.trace(ours, "text.layers.0.attention.weights", "vision.layers.0.attention.weights", "logits") as seen:
        out = ours(**given)
    patches = ours.vision.embed.positions.length
    assert seen["vision.layers.0.attention.weights"].shape[-2:] == (patches, patches)
    assert seen["text.layers.0.attention.weights"].shape[-2:] == (10, 10)
    assert torch.equal(seen["logits"], out.logits_per_text)
    assert {"text.pooled", "vision.pooled", "vision.embed.patches", "text.final.norm"} <= set(tap_points(ours))


# ---- files as people have them


def test_old_files(tmp_path):
    """A second copy of each tower's options, which counts; position counters among the tensors."""
    theirs, ours = opened("clip features", 1, tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    for name in ("text_config", "vision_config"):
        raw[f"{name}_dict"] = raw[name]
        raw[name] = None if name == "text_config" else {"hidden_size": 999, "bos_token_id": None, "torchscript": False}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    path = tmp_path / "model.safetensors"
    tensors = load_file(path) | {
        f"{tower}_model.embeddings.position_ids": torch.arange(5)[None] for tower in ("text", "vision")
    }
    save_file(tensors, path, metadata={"format": "pt"})
    again = hub.load_model(tmp_path)
    given = inputs("clip features", theirs)
    assert torch.equal(again(**given).logits_per_text, ours(**given).logits_per_text)
    assert "text_config_dict" not in again.config.to_dict()


def test_wrong_configurations(tmp_path, caplog):
    with pytest.raises(ConfigError, match=r"text_config is 3; it must be a table"):
        ClipConfig.from_dict({"text_config": 3})
    with pytest.raises(ConfigError, match="no patch fits"):
        ClipConfig.from_dict({"vision_config": {"image_size": 8, "patch_size": 16}})
    with pytest.raises(ConfigError, match="image_size"):
        ClipConfig.from_dict({"vision_config": {"image_size": [224, 112]}})
    with pytest.raises(ConfigError, match="use_rope"):
        ClipConfig.from_dict({"vision_config": {"use_rope": True}})
    with pytest.raises(ConfigError, match="depth_scale"):
        ClipConfig.from_dict({"vision_config": {"depth_scale": 3}}, strict=True)
    opened("clip features", 0, tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    raw["vision_config"]["depth_scale"] = 3
    (tmp_path / "config.json").write_text(json.dumps(raw))
    hub.load_model(tmp_path)
    assert "vision_config.depth_scale = 3" in caplog.text
    raw["vision_config"]["num_hidden_layers"] = 90_000
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match="90,000 layers"):
        hub.load_model(tmp_path)


def test_a_missing_part_is_named(tmp_path):
    opened("clip features", 0, tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(path).items() if name != "logit_scale"}
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="logit_scale"):
        hub.load_model(tmp_path)


def test_first_weights(tmp_path):
    """Drawn as the reference draws them: the same spread in every tensor."""
    from clearhead.models import family

    config = ClipConfig.from_dict({"text_config": {"num_hidden_layers": 2}, "vision_config": {"num_hidden_layers": 2}})
    torch.manual_seed(0)
    ours = family("clip").make(config)
    hub.save_model(ours, tmp_path)
    mine = load_file(tmp_path / "model.safetensors")
    theirs = CLASSES["clip features"](CLASSES["clip features"].config_class.from_pretrained(tmp_path))
    for name, tensor in theirs.state_dict().items():
        assert mine[name].shape == tensor.shape
        if tensor.numel() > 500:
            assert abs(float(mine[name].std()) - float(tensor.std())) < 0.1 * float(tensor.std()) + 1e-6, name
    assert abs(float(mine["logit_scale"]) - 2.6592) < 1e-6


def test_published_sizes():
    from clearhead.models import family

    clip = family("clip")
    counts = {name: clip.make(clip.preset(name), device="meta").num_parameters() for name in clip.presets}
    assert counts["clip-vit-base-patch32"] == 151_277_313
    assert counts["clip-vit-large-patch14"] == 427_616_513
